import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('pulljobs', '0003_lake'),
    ]

    operations = [
        migrations.CreateModel(
            name='Stream',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=255)),
                ('owner', models.UUIDField(null=True)),
                ('owned_until', models.DateTimeField(null=True)),
                ('consumer', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pulljobs.consumer')),
            ],
        ),
        migrations.AddConstraint(
            model_name='stream',
            constraint=models.UniqueConstraint(fields=('name',), name='pulljobs_stream_name'),
        ),
        migrations.CreateModel(
            name='StreamBatch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('seq', models.BigIntegerField()),
                ('state', models.CharField(choices=[('open', 'Open'), ('released', 'Released'), ('acked', 'Acked')], max_length=8)),
                ('token', models.UUIDField()),
                ('job_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
                ('jobs', models.IntegerField()),
                ('acked', models.IntegerField(db_default=0, default=0)),
                ('failed', models.IntegerField(db_default=0, default=0)),
                ('lost', models.IntegerField(db_default=0, default=0)),
                ('claimed_at', models.DateTimeField()),
                ('acked_at', models.DateTimeField(null=True)),
                ('stream', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='batches', to='pulljobs.stream')),
            ],
            options={
                'db_table': 'pulljobs_stream_batch',
            },
        ),
        migrations.AddConstraint(
            model_name='streambatch',
            constraint=models.UniqueConstraint(fields=('stream', 'seq'), name='pulljobs_stream_batch_seq'),
        ),
        migrations.AddConstraint(
            model_name='streambatch',
            constraint=models.UniqueConstraint(fields=('token',), name='pulljobs_stream_batch_token'),
        ),
        migrations.AlterField(
            model_name='node',
            name='kind',
            field=models.CharField(choices=[('worker', 'Worker'), ('api', 'Api'), ('spark', 'Spark')], db_default='worker', max_length=6),
        ),
    ]
