import django.db.models.deletion
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
                ('driver', models.CharField(db_default='', max_length=255)),
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
            name='PublishedPart',
            fields=[
                ('pk', models.CompositePrimaryKey('publish_id', 'partition', blank=True, editable=False, primary_key=True, serialize=False)),
                ('publish', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='pulljobs.bulkpublish')),
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
            model_name='bulkpublish',
            name='channel',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pulljobs.channel'),
        ),
        migrations.AddField(
            model_name='bulkpublish',
            name='only_consumer',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pulljobs.consumer'),
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
