import django.contrib.postgres.indexes
import pulljobs.models.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('pulljobs', '0002_keys_limits_and_requests'),
    ]

    operations = [
        migrations.CreateModel(
            name='LakeDay',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('location', models.CharField(max_length=2000)),
                ('table', models.CharField(max_length=63)),
                ('day', models.DateField()),
                ('high_xid', models.BigIntegerField()),
                ('rows', models.BigIntegerField()),
                ('checksum', models.DecimalField(decimal_places=0, max_digits=38)),
                ('verified_at', models.DateTimeField()),
                ('dropped_at', models.DateTimeField(null=True)),
                ('restored_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'pulljobs_lake_day',
            },
        ),
        migrations.CreateModel(
            name='LakeRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('export', 'Export'), ('rebase', 'Rebase')], max_length=6)),
                ('state', models.CharField(choices=[('open', 'Open'), ('done', 'Done')], max_length=4)),
                ('location', models.CharField(max_length=2000)),
                ('system_identifier', models.BigIntegerField()),
                ('low_xid', models.BigIntegerField()),
                ('high_xid', models.BigIntegerField()),
                ('options', models.JSONField(default=dict)),
                ('opened_at', models.DateTimeField()),
                ('done_at', models.DateTimeField(null=True)),
                ('rows', models.JSONField(default=dict)),
                ('bytes', models.BigIntegerField(default=0)),
            ],
            options={
                'db_table': 'pulljobs_lake_run',
            },
        ),
        migrations.AddConstraint(
            model_name='lakeday',
            constraint=models.UniqueConstraint(fields=('location', 'table', 'day'), name='pulljobs_lake_day_once'),
        ),
        migrations.AddIndex(
            model_name='lakerun',
            index=models.Index(fields=['location', '-id'], name='pulljobs_lake_run_last'),
        ),
        migrations.AddConstraint(
            model_name='lakerun',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('state',), name='pulljobs_lake_run_open'),
        ),
        migrations.AddConstraint(
            model_name='lakerun',
            constraint=models.CheckConstraint(condition=models.Q(('low_xid__lte', models.F('high_xid'))), name='pulljobs_lake_run_window'),
        ),
        # Messages that are there already count as published by this migration.
        migrations.AddField(
            model_name='message',
            name='published_xid',
            field=models.BigIntegerField(db_default=pulljobs.models.fields.TransactionNumber(), editable=False),
        ),
        migrations.AddIndex(
            model_name='message',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['published_xid'], name='pulljobs_message_xid', pages_per_range=32),
        ),
    ]
