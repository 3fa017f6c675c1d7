import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("pulljobs", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="RollupRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("location", models.CharField(max_length=2000)),
                ("archive_run", models.BigIntegerField()),
                ("messages_run", models.BigIntegerField()),
                ("known_until", models.DateTimeField()),
                ("started_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField()),
                ("settlements", models.BigIntegerField()),
                ("hours", models.PositiveIntegerField()),
            ],
            options={
                "db_table": "pulljobs_rollup_run",
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="BulkPublish",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("publish_id", models.CharField(max_length=255)),
                ("query_id", models.UUIDField(null=True)),
                ("batch_id", models.BigIntegerField(null=True)),
                (
                    "mode",
                    models.CharField(
                        choices=[("atomic", "Atomic"), ("chunked", "Chunked")], max_length=7
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "Open"), ("aborted", "Aborted"), ("done", "Done")],
                        db_default="open",
                        max_length=7,
                    ),
                ),
                ("guarded", models.BooleanField(db_default=False)),
                ("driver", models.CharField(db_default="", max_length=255)),
                ("rows", models.BigIntegerField(db_default=0)),
                ("messages", models.BigIntegerField(db_default=0)),
                ("jobs", models.BigIntegerField(db_default=0)),
                ("duplicates", models.BigIntegerField(db_default=0)),
                ("key_full", models.BigIntegerField(db_default=0)),
                ("rejected", models.BigIntegerField(db_default=0)),
                ("opened_at", models.DateTimeField()),
                ("touched_at", models.DateTimeField()),
                ("settled_at", models.DateTimeField(null=True)),
                (
                    "channel",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="pulljobs.channel",
                    ),
                ),
                (
                    "only_consumer",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="pulljobs.consumer",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_bulk_publish",
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="LakeDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("location", models.CharField(max_length=2000)),
                ("table", models.CharField(max_length=63)),
                ("day", models.DateField()),
                ("high_xid", models.BigIntegerField()),
                ("rows", models.BigIntegerField()),
                ("checksum", models.DecimalField(decimal_places=0, max_digits=38)),
                ("verified_at", models.DateTimeField()),
                ("dropped_at", models.DateTimeField(null=True)),
                ("restored_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "pulljobs_lake_day",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("location", "table", "day"), name="pulljobs_lake_day_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="LakeRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[("export", "Export"), ("rebase", "Rebase")], max_length=6
                    ),
                ),
                (
                    "state",
                    models.CharField(choices=[("open", "Open"), ("done", "Done")], max_length=4),
                ),
                ("location", models.CharField(max_length=2000)),
                ("system_identifier", models.BigIntegerField()),
                ("low_xid", models.BigIntegerField()),
                ("high_xid", models.BigIntegerField()),
                ("options", models.JSONField(default=dict)),
                ("opened_at", models.DateTimeField()),
                ("done_at", models.DateTimeField(null=True)),
                ("rows", models.JSONField(default=dict)),
                ("bytes", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "pulljobs_lake_run",
                "indexes": [
                    models.Index(fields=["location", "-id"], name="pulljobs_lake_run_last")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "open")),
                        fields=("location",),
                        name="pulljobs_lake_run_open",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("low_xid__lte", models.F("high_xid"))),
                        name="pulljobs_lake_run_window",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PublishedPart",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "publish_id",
                        "partition",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("partition", models.IntegerField()),
                ("checksum", models.BigIntegerField()),
                ("rows", models.BigIntegerField()),
                ("messages", models.BigIntegerField()),
                ("jobs", models.BigIntegerField()),
                ("duplicates", models.BigIntegerField()),
                ("key_full", models.BigIntegerField()),
                ("rejected", models.BigIntegerField()),
                ("published_at", models.DateTimeField()),
                (
                    "publish",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="parts",
                        to="pulljobs_lake.bulkpublish",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_published_part",
            },
        ),
        migrations.CreateModel(
            name="RejectedRow",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("reason", models.CharField(max_length=50)),
                ("error", models.TextField()),
                ("row", models.TextField()),
                ("payload", models.BinaryField(null=True)),
                ("rejected_at", models.DateTimeField()),
                (
                    "publish",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rejects",
                        to="pulljobs_lake.bulkpublish",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_rejected_row",
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="ReplayedJob",
            fields=[
                ("message_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("original_job_id", models.BigIntegerField(db_index=True)),
                ("consumer_id", models.BigIntegerField()),
                (
                    "publish",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="replayed",
                        to="pulljobs_lake.bulkpublish",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_replayed_job",
            },
        ),
        migrations.CreateModel(
            name="Rollup",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "period",
                    models.CharField(
                        choices=[("hour", "Hour"), ("day", "Day"), ("month", "Month")], max_length=5
                    ),
                ),
                ("starts_at", models.DateTimeField()),
                ("published", models.BigIntegerField(default=0)),
                ("delivered", models.BigIntegerField(default=0)),
                ("dead", models.BigIntegerField(default=0)),
                ("dead_by_reason", models.JSONField(default=dict)),
                ("retries", models.BigIntegerField(default=0)),
                ("redeliveries", models.BigIntegerField(default=0)),
                ("duplicates", models.BigIntegerField(default=0)),
                ("settled_again", models.BigIntegerField(default=0)),
                ("run_seconds", models.FloatField(default=0.0)),
                ("first_settled_at", models.DateTimeField(null=True)),
                ("last_settled_at", models.DateTimeField(null=True)),
                ("slowest_job", models.BigIntegerField(null=True)),
                ("slowest_seconds", models.FloatField(null=True)),
                ("wait_p50", models.FloatField(null=True)),
                ("wait_p95", models.FloatField(null=True)),
                ("wait_p99", models.FloatField(null=True)),
                ("run_p50", models.FloatField(null=True)),
                ("run_p95", models.FloatField(null=True)),
                ("run_p99", models.FloatField(null=True)),
                ("total_p50", models.FloatField(null=True)),
                ("total_p95", models.FloatField(null=True)),
                ("total_p99", models.FloatField(null=True)),
                ("wait_sketch", models.BinaryField(null=True)),
                ("run_sketch", models.BinaryField(null=True)),
                ("total_sketch", models.BinaryField(null=True)),
                ("keys_sketch", models.BinaryField(null=True)),
                (
                    "channel",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="pulljobs.channel",
                    ),
                ),
                (
                    "consumer",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="pulljobs.consumer",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_rollup",
            },
        ),
        migrations.CreateModel(
            name="NodeCost",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("node_id", models.UUIDField(null=True)),
                ("jobs", models.BigIntegerField()),
                ("dead", models.BigIntegerField()),
                ("run_seconds", models.FloatField()),
                (
                    "rollup",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="nodes",
                        to="pulljobs_lake.rollup",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_node_cost",
                "ordering": ("-run_seconds",),
            },
        ),
        migrations.CreateModel(
            name="HotKey",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("rank", models.PositiveSmallIntegerField()),
                ("key", models.CharField(max_length=255)),
                ("jobs", models.BigIntegerField()),
                (
                    "rollup",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="hot_keys",
                        to="pulljobs_lake.rollup",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_hot_key",
                "ordering": ("rank",),
            },
        ),
        migrations.CreateModel(
            name="ErrorFingerprint",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("fingerprint", models.CharField(db_index=True, max_length=32)),
                (
                    "reason",
                    models.CharField(
                        choices=[
                            ("rejected", "rejected"),
                            ("retries_exhausted", "retries_exhausted"),
                            ("max_deliveries", "max_deliveries"),
                            ("timed_out", "timed_out"),
                            ("killed", "killed"),
                            ("purged", "purged"),
                            ("key_overflow", "key_overflow"),
                        ],
                        max_length=20,
                    ),
                ),
                ("jobs", models.BigIntegerField()),
                ("sample", models.TextField()),
                ("sample_job", models.BigIntegerField()),
                (
                    "rollup",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="errors",
                        to="pulljobs_lake.rollup",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_error_fingerprint",
                "ordering": ("-jobs", "fingerprint"),
            },
        ),
        migrations.CreateModel(
            name="Stream",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=255)),
                ("owner", models.UUIDField(null=True)),
                ("owned_until", models.DateTimeField(null=True)),
                ("acked", models.BigIntegerField(db_default=0, default=0)),
                ("failed", models.BigIntegerField(db_default=0, default=0)),
                ("lost", models.BigIntegerField(db_default=0, default=0)),
                (
                    "consumer",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="pulljobs.consumer",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_stream",
            },
        ),
        migrations.CreateModel(
            name="StreamBatch",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.BigIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "Open"), ("released", "Released"), ("acked", "Acked")],
                        max_length=8,
                    ),
                ),
                ("lease_token", models.UUIDField()),
                (
                    "job_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                ("jobs", models.IntegerField()),
                ("acked", models.IntegerField(db_default=0, default=0)),
                ("failed", models.IntegerField(db_default=0, default=0)),
                ("lost", models.IntegerField(db_default=0, default=0)),
                ("claimed_at", models.DateTimeField()),
                ("acked_at", models.DateTimeField(null=True)),
                (
                    "stream",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="batches",
                        to="pulljobs_lake.stream",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_stream_batch",
            },
        ),
        migrations.AddConstraint(
            model_name="bulkpublish",
            constraint=models.UniqueConstraint(
                fields=("publish_id",), name="pulljobs_bulk_publish_id"
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkpublish",
            constraint=models.UniqueConstraint(
                fields=("query_id", "batch_id"), name="pulljobs_bulk_sink"
            ),
        ),
        migrations.AddIndex(
            model_name="rollup",
            index=models.Index(
                fields=["consumer", "period", "starts_at"], name="pulljobs_rollup_consumer"
            ),
        ),
        migrations.AddConstraint(
            model_name="rollup",
            constraint=models.UniqueConstraint(
                fields=("period", "starts_at", "consumer"), name="pulljobs_rollup_period"
            ),
        ),
        migrations.AddConstraint(
            model_name="stream",
            constraint=models.UniqueConstraint(fields=("name",), name="pulljobs_stream_name"),
        ),
        migrations.AddConstraint(
            model_name="streambatch",
            constraint=models.UniqueConstraint(
                fields=("stream", "seq"), name="pulljobs_stream_batch_seq"
            ),
        ),
        migrations.AddConstraint(
            model_name="streambatch",
            constraint=models.UniqueConstraint(
                fields=("lease_token",), name="pulljobs_stream_batch_token"
            ),
        ),
    ]
