import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('pulljobs', '0005_bulk'),
    ]

    operations = [
        migrations.CreateModel(
            name='RollupRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('location', models.CharField(max_length=2000)),
                ('archive_run', models.BigIntegerField()),
                ('messages_run', models.BigIntegerField()),
                ('known_until', models.DateTimeField()),
                ('started_at', models.DateTimeField()),
                ('finished_at', models.DateTimeField()),
                ('settlements', models.BigIntegerField()),
                ('hours', models.PositiveIntegerField()),
            ],
            options={
                'db_table': 'pulljobs_rollup_run',
                'ordering': ('-id',),
            },
        ),
        migrations.CreateModel(
            name='Rollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('period', models.CharField(choices=[('hour', 'Hour'), ('day', 'Day'), ('month', 'Month')], max_length=5)),
                ('starts_at', models.DateTimeField()),
                ('published', models.BigIntegerField(default=0)),
                ('delivered', models.BigIntegerField(default=0)),
                ('dead', models.BigIntegerField(default=0)),
                ('dead_by_reason', models.JSONField(default=dict)),
                ('retries', models.BigIntegerField(default=0)),
                ('redeliveries', models.BigIntegerField(default=0)),
                ('duplicates', models.BigIntegerField(default=0)),
                ('settled_again', models.BigIntegerField(default=0)),
                ('run_seconds', models.FloatField(default=0.0)),
                ('first_settled_at', models.DateTimeField(null=True)),
                ('last_settled_at', models.DateTimeField(null=True)),
                ('slowest_job', models.BigIntegerField(null=True)),
                ('slowest_seconds', models.FloatField(null=True)),
                ('wait_p50', models.FloatField(null=True)),
                ('wait_p95', models.FloatField(null=True)),
                ('wait_p99', models.FloatField(null=True)),
                ('run_p50', models.FloatField(null=True)),
                ('run_p95', models.FloatField(null=True)),
                ('run_p99', models.FloatField(null=True)),
                ('total_p50', models.FloatField(null=True)),
                ('total_p95', models.FloatField(null=True)),
                ('total_p99', models.FloatField(null=True)),
                ('wait_sketch', models.BinaryField(null=True)),
                ('run_sketch', models.BinaryField(null=True)),
                ('total_sketch', models.BinaryField(null=True)),
                ('keys_sketch', models.BinaryField(null=True)),
                ('channel', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pulljobs.channel')),
                ('consumer', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pulljobs.consumer')),
            ],
        ),
        migrations.CreateModel(
            name='NodeCost',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('node_id', models.UUIDField(null=True)),
                ('jobs', models.BigIntegerField()),
                ('dead', models.BigIntegerField()),
                ('run_seconds', models.FloatField()),
                ('rollup', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='nodes', to='pulljobs.rollup')),
            ],
            options={
                'db_table': 'pulljobs_node_cost',
                'ordering': ('-run_seconds',),
            },
        ),
        migrations.CreateModel(
            name='HotKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rank', models.PositiveSmallIntegerField()),
                ('key', models.CharField(max_length=255)),
                ('jobs', models.BigIntegerField()),
                ('rollup', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='hot_keys', to='pulljobs.rollup')),
            ],
            options={
                'db_table': 'pulljobs_hot_key',
                'ordering': ('rank',),
            },
        ),
        migrations.CreateModel(
            name='ErrorFingerprint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('fingerprint', models.CharField(db_index=True, max_length=32)),
                ('reason', models.CharField(choices=[('rejected', 'rejected'), ('retries_exhausted', 'retries_exhausted'), ('max_deliveries', 'max_deliveries'), ('timed_out', 'timed_out'), ('killed', 'killed'), ('purged', 'purged'), ('key_overflow', 'key_overflow')], max_length=20)),
                ('jobs', models.BigIntegerField()),
                ('sample', models.TextField()),
                ('sample_job', models.BigIntegerField()),
                ('rollup', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='errors', to='pulljobs.rollup')),
            ],
            options={
                'db_table': 'pulljobs_error_fingerprint',
                'ordering': ('-jobs', 'fingerprint'),
            },
        ),
        migrations.AddIndex(
            model_name='rollup',
            index=models.Index(fields=['consumer', 'period', 'starts_at'], name='pulljobs_rollup_consumer'),
        ),
        migrations.AddConstraint(
            model_name='rollup',
            constraint=models.UniqueConstraint(fields=('period', 'starts_at', 'consumer'), name='pulljobs_rollup_period'),
        ),
    ]
