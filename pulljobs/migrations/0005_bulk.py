import django.contrib.postgres.indexes
import django.db.models.deletion
import pulljobs.models.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('pulljobs', '0004_streams'),
    ]

    operations = [
        migrations.CreateModel(
            name='BulkPublish',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('publish_id', models.CharField(max_length=255)),
                ('query_id', models.UUIDField(null=True)),
                ('batch_id', models.BigIntegerField(null=True)),
                ('mode', models.CharField(choices=[('atomic', 'Atomic'), ('chunked', 'Chunked')], max_length=7)),
                ('state', models.CharField(choices=[('open', 'Open'), ('aborted', 'Aborted'), ('done', 'Done')], db_default='open', max_length=7)),
                ('guarded', models.BooleanField(db_default=False)),
                ('rows', models.BigIntegerField(db_default=0)),
                ('messages', models.BigIntegerField(db_default=0)),
                ('jobs', models.BigIntegerField(db_default=0)),
                ('duplicates', models.BigIntegerField(db_default=0)),
                ('key_full', models.BigIntegerField(db_default=0)),
                ('rejected', models.BigIntegerField(db_default=0)),
                ('opened_at', models.DateTimeField()),
                ('touched_at', models.DateTimeField()),
                ('settled_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'pulljobs_bulk_publish',
                'ordering': ('-id',),
            },
        ),
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
        migrations.CreateModel(
            name='PublishedPart',
            fields=[
                ('pk', models.CompositePrimaryKey('publish_id', 'partition', blank=True, editable=False, primary_key=True, serialize=False)),
                ('partition', models.IntegerField()),
                ('checksum', models.BigIntegerField()),
                ('rows', models.BigIntegerField()),
                ('messages', models.BigIntegerField()),
                ('jobs', models.BigIntegerField()),
                ('duplicates', models.BigIntegerField()),
                ('key_full', models.BigIntegerField()),
                ('rejected', models.BigIntegerField()),
                ('published_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'pulljobs_published_part',
            },
        ),
        migrations.CreateModel(
            name='RejectedRow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reason', models.CharField(max_length=50)),
                ('error', models.TextField()),
                ('row', models.TextField()),
                ('payload', models.BinaryField(null=True)),
                ('rejected_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'pulljobs_rejected_row',
                'ordering': ('id',),
            },
        ),
        migrations.CreateModel(
            name='ReplayedJob',
            fields=[
                ('message_id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('original_job_id', models.BigIntegerField(db_index=True)),
                ('consumer_id', models.BigIntegerField()),
            ],
            options={
                'db_table': 'pulljobs_replayed_job',
            },
        ),
        migrations.AddField(
            model_name='message',
            name='published_xid',
            field=models.BigIntegerField(db_default=pulljobs.models.fields.TransactionNumber(), editable=False),
        ),
        migrations.AddIndex(
            model_name='message',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['published_xid'], name='pulljobs_message_xid', pages_per_range=32),
        ),
        migrations.AddField(
            model_name='bulkpublish',
            name='channel',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pulljobs.channel'),
        ),
        migrations.AddField(
            model_name='bulkpublish',
            name='only_consumer',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pulljobs.consumer'),
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
        migrations.AddField(
            model_name='publishedpart',
            name='publish',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='pulljobs.bulkpublish'),
        ),
        migrations.AddField(
            model_name='rejectedrow',
            name='publish',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rejects', to='pulljobs.bulkpublish'),
        ),
        migrations.AddField(
            model_name='replayedjob',
            name='publish',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='replayed', to='pulljobs.bulkpublish'),
        ),
        migrations.AddConstraint(
            model_name='bulkpublish',
            constraint=models.UniqueConstraint(fields=('publish_id',), name='pulljobs_bulk_publish_id'),
        ),
        migrations.AddConstraint(
            model_name='bulkpublish',
            constraint=models.UniqueConstraint(fields=('query_id', 'batch_id'), name='pulljobs_bulk_sink'),
        ),
    ]
