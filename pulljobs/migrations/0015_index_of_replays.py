import django.db.models.deletion
from django.db import migrations, models

NAME = "pulljobs_replayed_job_publish_id_2a1d468b"
# What an interrupted one left behind is invalid; migration 0014 had made one of this name for a while.
DROP = f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}"
CREATE = f"CREATE INDEX CONCURRENTLY {NAME} ON pulljobs_replayed_job (publish_id)"


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('pulljobs', '0014_sinks_and_streams'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            [migrations.RunSQL([DROP, CREATE], [DROP])],
            [
                migrations.AlterField(
                    model_name='replayedjob',
                    name='publish',
                    field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='replayed', to='pulljobs.bulkpublish'),
                ),
            ],
        ),
    ]
