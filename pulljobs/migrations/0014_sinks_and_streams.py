from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('pulljobs', '0013_vacuum_of_leases_without_pauses'),
    ]

    operations = [
        migrations.AddField(
            model_name='stream',
            name='acked',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='stream',
            name='failed',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='stream',
            name='lost',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
    ]
