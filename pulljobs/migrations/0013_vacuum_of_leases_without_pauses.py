from django.db import migrations

# As the table of jobs has it: a vacuum of so few rows need not pause, and its room is soon used again.
LEASE_STORAGE = "ALTER TABLE pulljobs_lease SET (autovacuum_vacuum_cost_delay = 0)"


class Migration(migrations.Migration):

    dependencies = [
        ('pulljobs', '0012_one_short_check_of_jobs'),
    ]

    operations = [
        migrations.RunSQL(LEASE_STORAGE, migrations.RunSQL.noop),
    ]
