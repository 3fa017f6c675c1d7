import datetime
import django.contrib.postgres.fields
import django.db.models.deletion
import pulljobs.models.fields
import pulljobs.models.registry
import uuid
from django.db import migrations, models

from pulljobs.models.partitioned import CreatePartitionedModel

# Hot rows are updated in place: room on each page, vacuum early, and never shrink to an empty file,
# for a plan made against one would scan the table.
JOB_STORAGE = """
ALTER TABLE pulljobs_job SET (
    fillfactor = 45,
    vacuum_truncate = off,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);
ALTER TABLE pulljobs_lease SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
"""
SEQUENCE = "CREATE SEQUENCE pulljobs_id MAXVALUE 4194303 CYCLE CACHE 32"


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.RunSQL(SEQUENCE, "DROP SEQUENCE pulljobs_id"),
        migrations.CreateModel(
            name="Channel",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(help_text="The id that URLs and code use.", max_length=255),
                ),
                ("title", models.CharField(blank=True, max_length=255)),
                ("token_digest", models.CharField(editable=False, max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                (
                    "dedupe_window",
                    models.DurationField(
                        blank=True, help_text="How long a client message id stays taken.", null=True
                    ),
                ),
                ("paused_until", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="pulljobs_channel_name")
                ],
            },
        ),
        migrations.CreateModel(
            name="Producer",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(help_text="The id that URLs and code use.", max_length=255),
                ),
                ("title", models.CharField(blank=True, max_length=255)),
                ("token_digest", models.CharField(editable=False, max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="pulljobs_producer_name")
                ],
            },
        ),
        migrations.CreateModel(
            name="Consumer",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(help_text="The id that URLs and code use.", max_length=255),
                ),
                ("title", models.CharField(blank=True, max_length=255)),
                ("token_digest", models.CharField(editable=False, max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                (
                    "type",
                    models.CharField(
                        choices=[("pull", "pull"), ("push", "push")], default="pull", max_length=4
                    ),
                ),
                ("callback_url", models.URLField(blank=True, max_length=2000)),
                (
                    "lease",
                    models.DurationField(
                        default=datetime.timedelta(seconds=30),
                        help_text="How long a claim holds without a renewal.",
                    ),
                ),
                (
                    "protocol_lease",
                    models.DurationField(
                        blank=True, help_text="The same for jobs taken by a job POST.", null=True
                    ),
                ),
                (
                    "retry_strategy",
                    models.CharField(
                        default="5,30,60",
                        help_text="none, constant:10, linear:1+2, exponential:1 or seconds such as 5,30,60.",
                        max_length=255,
                        validators=[pulljobs.models.registry.validate_strategy],
                    ),
                ),
                (
                    "retry_delays",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.FloatField(), default=list, editable=False, size=None
                    ),
                ),
                ("retry_cap", models.FloatField(default=31536000.0, editable=False)),
                (
                    "retry_jitter",
                    models.FloatField(
                        default=0.2,
                        help_text="Share of the delay that is left to chance, inside its cap.",
                    ),
                ),
                ("max_retries", models.PositiveSmallIntegerField(default=5)),
                (
                    "max_total_delay",
                    models.DurationField(
                        blank=True,
                        help_text="No retry is planned later than this after the first run.",
                        null=True,
                    ),
                ),
                ("max_deliveries", models.PositiveSmallIntegerField(default=20)),
                ("paused_until", models.DateTimeField(blank=True, null=True)),
                ("deleted_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="consumers",
                        to="pulljobs.channel",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("channel", "name"), name="pulljobs_consumer_name"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("lease__gt", datetime.timedelta(0))),
                        name="pulljobs_consumer_lease",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("retry_jitter__gte", 0), ("retry_jitter__lte", 1)),
                        name="pulljobs_consumer_jitter",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("max_deliveries__gte", 1)),
                        name="pulljobs_consumer_deliveries",
                    ),
                ],
            },
        ),
        CreatePartitionedModel(
            name="Message",
            fields=[
                (
                    "id",
                    models.BigIntegerField(
                        db_default=pulljobs.models.fields.TimeOrderedId(),
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("published_at", models.DateTimeField()),
                ("priority", models.SmallIntegerField(default=0)),
                ("key", models.CharField(max_length=255, null=True)),
                ("client_message_id", models.CharField(max_length=255, null=True)),
                ("content_type", models.CharField(max_length=255)),
                ("headers", models.JSONField(default=dict)),
                ("payload", models.BinaryField()),
                (
                    "channel",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="pulljobs.channel",
                    ),
                ),
                (
                    "producer",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="pulljobs.producer",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Publication",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "channel_id",
                        "client_message_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("channel_id", models.BigIntegerField()),
                ("client_message_id", models.CharField(max_length=255)),
                ("message_id", models.BigIntegerField()),
                ("published_at", models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                (
                    "id",
                    models.BigIntegerField(
                        db_default=pulljobs.models.fields.TimeOrderedId(),
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("available_at", models.DateTimeField(null=True)),
                ("first_claimed_at", models.DateTimeField(null=True)),
                ("incremental_timeout", models.DurationField(null=True)),
                ("retry_count", models.IntegerField(default=0)),
                ("deliveries", models.IntegerField(default=0)),
                ("priority", models.SmallIntegerField(default=0)),
                ("lease", models.UUIDField(null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("QUEUED", "QUEUED"),
                            ("INFLIGHT", "INFLIGHT"),
                            ("DELIVERED", "DELIVERED"),
                            ("DEAD", "DEAD"),
                        ],
                        max_length=9,
                    ),
                ),
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
                        null=True,
                    ),
                ),
                ("key", models.CharField(max_length=255, null=True)),
                ("error", models.TextField(null=True)),
                (
                    "consumer",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="pulljobs.consumer",
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="pulljobs.message",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["consumer", "-priority", "available_at", "id"],
                        name="pulljobs_job_claim",
                    ),
                    models.Index(
                        condition=models.Q(("reason__isnull", False)),
                        fields=["consumer", "id"],
                        name="pulljobs_job_dead",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("message", "consumer"), name="pulljobs_job_fan_out"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["DEAD", "INFLIGHT", "QUEUED"])),
                        name="pulljobs_job_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "INFLIGHT"), ("lease__isnull", False)),
                            models.Q(
                                models.Q(("state", "INFLIGHT"), _negated=True),
                                ("lease__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="pulljobs_job_leased",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("state", "DEAD"),
                                ("available_at__isnull", True),
                                ("reason__isnull", False),
                            ),
                            models.Q(
                                models.Q(("state", "DEAD"), _negated=True), ("reason__isnull", True)
                            ),
                            _connector="OR",
                        ),
                        name="pulljobs_job_reason",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("deliveries__gte", 0), ("retry_count__gte", 0)),
                        name="pulljobs_job_counts",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Lease",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("token", models.UUIDField(db_index=True, default=uuid.uuid4)),
                ("node_id", models.UUIDField(null=True)),
                (
                    "door",
                    models.CharField(
                        choices=[("worker", "Worker"), ("post", "Post")], max_length=8
                    ),
                ),
                ("claimed_at", models.DateTimeField()),
                ("leased_until", models.DateTimeField(db_index=True)),
                ("hard_end", models.DateTimeField()),
                (
                    "job_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
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
        ),
        CreatePartitionedModel(
            name="ArchivedJob",
            fields=[
                (
                    "id",
                    models.BigIntegerField(
                        db_default=pulljobs.models.fields.TimeOrderedId(),
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("job_id", models.BigIntegerField(db_index=True)),
                ("created_at", models.DateTimeField()),
                ("claimed_at", models.DateTimeField(null=True)),
                ("settled_at", models.DateTimeField()),
                (
                    "settled_xid",
                    pulljobs.models.fields.Xid8Field(
                        db_default=pulljobs.models.fields.CurrentTransaction(), db_index=True
                    ),
                ),
                ("retry_count", models.IntegerField()),
                ("deliveries", models.IntegerField()),
                ("node_id", models.UUIDField(null=True)),
                ("lease_token", models.UUIDField(null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("QUEUED", "QUEUED"),
                            ("INFLIGHT", "INFLIGHT"),
                            ("DELIVERED", "DELIVERED"),
                            ("DEAD", "DEAD"),
                        ],
                        max_length=9,
                    ),
                ),
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
                        null=True,
                    ),
                ),
                ("error", models.TextField(null=True)),
                ("result", models.JSONField(null=True)),
                (
                    "consumer",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="pulljobs.consumer",
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="pulljobs.message",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_archived_job",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["DEAD", "DELIVERED"])),
                        name="pulljobs_archived_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "DEAD"), ("reason__isnull", False)),
                            models.Q(
                                models.Q(("state", "DEAD"), _negated=True), ("reason__isnull", True)
                            ),
                            _connector="OR",
                        ),
                        name="pulljobs_archived_reason",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Node",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("name", models.CharField(help_text="host:pid", max_length=255)),
                ("started_at", models.DateTimeField()),
                ("heartbeat_at", models.DateTimeField()),
                ("stopped_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="PullWaiter",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "consumer_id",
                        "node_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("consumer_id", models.BigIntegerField()),
                ("node_id", models.UUIDField()),
                ("waiting_until", models.DateTimeField()),
            ],
            options={"db_table": "pulljobs_pull_waiter"},
        ),
        migrations.RunSQL(JOB_STORAGE, migrations.RunSQL.noop),
    ]
