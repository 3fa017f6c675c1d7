import datetime
import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
import pulljobs.models.fields
import pulljobs.models.consumers
import pulljobs.models.flow
import pulljobs.models.token_holders
import uuid
from django.db import migrations, models


from pulljobs.models.partitioned import CreatePartitionedModel

SEQUENCE = "CREATE SEQUENCE pulljobs_id MAXVALUE 4194303 CYCLE CACHE 32"

# Hot rows are updated in place: room on each page, early vacuums without pauses, and tables that
# never shrink to an empty file, because a plan made against an empty table would scan it later.
# The ids of a claim of a thousand jobs fit into a page: nothing below that is compressed or moved.
STORAGE = """
ALTER TABLE pulljobs_job SET (
    fillfactor = 45,
    vacuum_truncate = off,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);
ALTER TABLE pulljobs_lease SET (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    toast_tuple_target = 8160
);
ALTER TABLE pulljobs_exclusive_key SET (
    fillfactor = 45,
    vacuum_truncate = off,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE pulljobs_flow_bucket SET (
    fillfactor = 45,
    vacuum_truncate = off,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE pulljobs_flow_key SET (
    fillfactor = 45,
    vacuum_truncate = off,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE pulljobs_batch_sum SET (
    vacuum_truncate = off,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.RunSQL(SEQUENCE, "DROP SEQUENCE pulljobs_id"),
        migrations.CreateModel(
            name="Dashboard",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
            ],
            options={
                "verbose_name": "dashboard",
                "verbose_name_plural": "dashboard",
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="CountProgress",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("snapshot", models.TextField(null=True)),
                ("counted_at", models.DateTimeField()),
                ("open_from", models.DateTimeField()),
                ("counted_from", models.DateTimeField()),
                ("newest_dead", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "pulljobs_count_progress",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="SettlementCount",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "period",
                        "consumer_id",
                        "starts_at",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "period",
                    models.CharField(
                        choices=[("minute", "Minute"), ("hour", "Hour"), ("day", "Day")],
                        max_length=6,
                    ),
                ),
                ("consumer_id", models.BigIntegerField()),
                ("starts_at", models.DateTimeField()),
                ("delivered", models.BigIntegerField()),
                ("dead", models.BigIntegerField()),
                ("retries", models.BigIntegerField()),
                (
                    "wait_buckets",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.SmallIntegerField(), size=None
                    ),
                ),
                (
                    "wait_jobs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                (
                    "run_buckets",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.SmallIntegerField(), size=None
                    ),
                ),
                (
                    "run_jobs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_settlement_count",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="BoundedKey",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "consumer_id",
                        "key",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("consumer_id", models.BigIntegerField()),
                ("key", models.CharField(max_length=255)),
            ],
            options={
                "db_table": "pulljobs_bounded_key",
            },
        ),
        migrations.CreateModel(
            name="ExclusiveKey",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "consumer_id",
                        "key",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("consumer_id", models.BigIntegerField()),
                ("key", models.CharField(max_length=255)),
                ("holder", models.BigIntegerField(null=True)),
            ],
            options={
                "db_table": "pulljobs_exclusive_key",
            },
        ),
        migrations.CreateModel(
            name="BatchSum",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "batch_id", "id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("batch_id", models.BigIntegerField()),
                (
                    "id",
                    models.BigIntegerField(db_default=pulljobs.models.fields.TimeOrderedId()),
                ),
                ("members", models.IntegerField(db_default=0, default=0)),
                ("delivered", models.IntegerField(db_default=0, default=0)),
                ("dead", models.IntegerField(db_default=0, default=0)),
                ("redriven", models.IntegerField(db_default=0, default=0)),
            ],
            options={
                "db_table": "pulljobs_batch_sum",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="JobProgress",
            fields=[
                ("job_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("done", models.FloatField()),
                ("total", models.FloatField(null=True)),
                ("note", models.CharField(blank=True, default="", max_length=200)),
                ("reported_at", models.DateTimeField()),
            ],
            options={
                "db_table": "pulljobs_progress",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="FlowBucket",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "consumer_id",
                        "group_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("consumer_id", models.BigIntegerField(default=0)),
                ("group_id", models.BigIntegerField(default=0)),
                ("tokens", models.FloatField()),
                ("filled_at", models.DateTimeField()),
                ("per_second", models.FloatField()),
                ("burst", models.FloatField()),
                ("window_seconds", models.FloatField(null=True)),
                ("charged_since", models.DateTimeField()),
            ],
            options={
                "db_table": "pulljobs_flow_bucket",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="LimitGroup",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "max_in_flight",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Jobs in flight at once, over all workers and clients; empty: any number.",
                        null=True,
                    ),
                ),
                (
                    "rate",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Jobs that are claimed in a time, such as 100/m (s, m, h, d); empty: any.",
                        max_length=24,
                        validators=[pulljobs.models.flow.validate_rate],
                    ),
                ),
                (
                    "rate_burst",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Jobs that may be claimed at once after a pause; empty: those of a second.",
                        null=True,
                    ),
                ),
                (
                    "rate_window",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="The rate counts in each second, minute, hour or day (UTC) of the clock.",
                    ),
                ),
                ("rate_per_second", models.FloatField(editable=False, null=True)),
                ("window_seconds", models.FloatField(editable=False, null=True)),
                (
                    "name",
                    models.CharField(
                        max_length=255,
                        unique=True,
                        validators=[pulljobs.models.token_holders.validate_name],
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", pulljobs.models.fields.ChangedAtField(editable=False)),
            ],
            options={
                "db_table": "pulljobs_limit_group",
            },
        ),
        migrations.CreateModel(
            name="FlowKey",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "consumer_id",
                        "key",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("consumer_id", models.BigIntegerField()),
                ("turn_at", models.DateTimeField(null=True)),
                ("filled_at", models.DateTimeField(null=True)),
                ("charged_since", models.DateTimeField(null=True)),
                ("throttled_until", models.DateTimeField(null=True)),
                ("mark_at", models.DateTimeField(null=True)),
                ("mark_id", models.BigIntegerField(db_default=0)),
                ("tokens", models.FloatField(null=True)),
                (
                    "writer",
                    pulljobs.models.fields.TransactionIdField(
                        db_default=pulljobs.models.fields.CurrentTransaction()
                    ),
                ),
                ("weight", models.IntegerField(db_default=1)),
                ("owed", models.IntegerField(db_default=0)),
                ("turn_rank", models.SmallIntegerField(db_default=0)),
                ("mark_priority", models.SmallIntegerField(db_default=0)),
                ("is_full", models.BooleanField(db_default=False)),
                ("key", models.CharField(max_length=255)),
                (
                    "holders",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), db_default=[], size=None
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_flow_key",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Node",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("name", models.CharField(help_text="host:pid", max_length=255)),
                (
                    "kind",
                    models.CharField(
                        choices=[("worker", "Worker"), ("api", "Api"), ("spark", "Spark")],
                        db_default="worker",
                        max_length=6,
                    ),
                ),
                ("address", models.CharField(blank=True, db_default="", max_length=2000)),
                (
                    "report",
                    models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict),
                ),
                ("started_at", models.DateTimeField()),
                ("heartbeat_at", models.DateTimeField()),
                ("stopped_at", models.DateTimeField(null=True)),
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
                ("waiting", models.PositiveIntegerField(db_default=1, default=1)),
                ("waiting_until", models.DateTimeField()),
            ],
            options={
                "db_table": "pulljobs_pull_waiter",
            },
        ),
        migrations.CreateModel(
            name="Attempt",
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
                ("job_id", models.BigIntegerField()),
                ("lease_token", models.UUIDField()),
                ("node_id", models.UUIDField(null=True)),
                (
                    "via",
                    models.CharField(
                        choices=[
                            ("worker", "Worker"),
                            ("post", "Post"),
                            ("pull", "Pull"),
                            ("push", "Push"),
                            ("spark", "Spark"),
                        ],
                        max_length=8,
                    ),
                ),
                ("claimed_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField()),
                ("run_seconds", models.FloatField(null=True)),
                ("leased_until", models.DateTimeField()),
                ("renewals", models.IntegerField()),
                ("event", models.CharField(max_length=10)),
                ("error", models.TextField(null=True)),
            ],
            options={
                "default_permissions": (),
                "indexes": [models.Index(fields=["job_id", "id"], name="pulljobs_attempt_job")],
            },
        ),
        migrations.CreateModel(
            name="AuditEntry",
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
                ("by", models.CharField(max_length=255)),
                (
                    "act",
                    models.CharField(
                        choices=[
                            ("redrive", "Redrive"),
                            ("release", "Requeue"),
                            ("kill", "Kill"),
                            ("reschedule", "Reschedule"),
                            ("delete", "Delete"),
                            ("pause", "Pause"),
                            ("resume", "Resume"),
                            ("rotate token", "Rotate"),
                            ("create", "Create"),
                            ("update", "Update"),
                            ("fire", "Fire"),
                            ("backfill", "Backfill"),
                            ("signal", "Signal"),
                        ],
                        max_length=12,
                    ),
                ),
                (
                    "asked_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("subject", models.TextField()),
                (
                    "selection",
                    models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict),
                ),
                ("at", models.DateTimeField(null=True)),
                ("expected", models.IntegerField(null=True)),
                ("is_more", models.BooleanField(db_default=False, default=False)),
                ("cursor", models.BigIntegerField(db_default=0, default=0)),
                ("last", models.BigIntegerField(db_default=0, default=0)),
                ("done", models.IntegerField(db_default=0, default=0)),
                ("refused", models.IntegerField(db_default=0, default=0)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "stopped_by",
                    models.CharField(blank=True, db_default="", default="", max_length=255),
                ),
            ],
            options={
                "verbose_name_plural": "audit trail",
                "db_table": "pulljobs_audit_entry",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("finished_at__isnull", True)),
                        fields=["id"],
                        name="pulljobs_audit_unfinished",
                    )
                ],
            },
        ),
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
                (
                    "token_sealed",
                    models.TextField(blank=True, db_default="", default="", editable=False),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", pulljobs.models.fields.ChangedAtField(editable=False)),
                (
                    "dedupe_window",
                    models.DurationField(
                        blank=True, help_text="How long a client message id stays taken.", null=True
                    ),
                ),
                ("paused_until", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "permissions": [
                    ("pause_channel", "Can pause channels and have them go on"),
                    ("rotate_channel", "Can give channels a new token"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="pulljobs_channel_name")
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
                (
                    "token_sealed",
                    models.TextField(blank=True, db_default="", default="", editable=False),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", pulljobs.models.fields.ChangedAtField(editable=False)),
                (
                    "type",
                    models.CharField(
                        choices=[("pull", "pull"), ("push", "push")], default="pull", max_length=4
                    ),
                ),
                ("callback_url", models.URLField(blank=True, max_length=2000)),
                (
                    "signing_secrets_sealed",
                    models.TextField(blank=True, db_default="", default="", editable=False),
                ),
                (
                    "lease_duration",
                    models.DurationField(
                        default=datetime.timedelta(seconds=30),
                        help_text="How long a claim holds without a renewal.",
                    ),
                ),
                (
                    "protocol_lease_duration",
                    models.DurationField(
                        blank=True,
                        help_text="How long a job POST holds a job; empty: PULLJOBS['PROTOCOL_LEASE'].",
                        null=True,
                    ),
                ),
                (
                    "retry_strategy",
                    models.CharField(
                        default="5,30,60",
                        help_text="none, constant:10, linear:1+2, exponential:1 or seconds such as 5,30,60.",
                        max_length=255,
                        validators=[pulljobs.models.consumers.validate_strategy],
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
                        default=0.2, help_text="Share of the delay that is random, within its cap."
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
                (
                    "exclusive_keys",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Jobs of one key run one at a time, first in, first out.",
                    ),
                ),
                (
                    "hold_key_on_retry",
                    models.BooleanField(
                        db_default=True,
                        default=True,
                        help_text="A job that waits for its retry, or is snoozed, keeps its key.",
                    ),
                ),
                (
                    "max_queued_per_key",
                    models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="How many jobs of one key there may be; 0: any number.",
                    ),
                ),
                (
                    "key_overflow",
                    models.CharField(
                        choices=[
                            ("reject", "refuse the message"),
                            ("drop_oldest", "kill the oldest queued job"),
                            ("replace", "take the place of the queued job"),
                        ],
                        db_default="reject",
                        default="reject",
                        max_length=11,
                    ),
                ),
                (
                    "key_limit_counts",
                    models.CharField(
                        choices=[
                            ("queued", "queued jobs"),
                            ("live", "queued jobs and those in flight"),
                        ],
                        db_default="queued",
                        default="queued",
                        max_length=6,
                    ),
                ),
                (
                    "max_in_flight",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Jobs in flight at once, over all workers and clients; empty: any number.",
                        null=True,
                    ),
                ),
                (
                    "rate",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Jobs that are claimed in a time, such as 100/m (s, m, h, d); empty: any.",
                        max_length=24,
                        validators=[pulljobs.models.flow.validate_rate],
                    ),
                ),
                (
                    "rate_burst",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Jobs that may be claimed at once after a pause; empty: those of a second.",
                        null=True,
                    ),
                ),
                (
                    "rate_window",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="The rate counts in each second, minute, hour or day (UTC) of the clock.",
                    ),
                ),
                ("rate_per_second", models.FloatField(editable=False, null=True)),
                ("window_seconds", models.FloatField(editable=False, null=True)),
                (
                    "limit_group",
                    models.ForeignKey(
                        blank=True,
                        help_text="Group whose limits its consumers share.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="consumers",
                        to="pulljobs.limitgroup",
                    ),
                ),
                (
                    "max_in_flight_per_key",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Jobs of one key in flight at once, in no order; empty: any number.",
                        null=True,
                    ),
                ),
                (
                    "rate_per_key",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="The rate holds for each key by itself.",
                    ),
                ),
                ("key_rate_per_second", models.FloatField(editable=False, null=True)),
                (
                    "fair_by_key",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Keys with waiting jobs take turns; a priority counts inside a key.",
                    ),
                ),
                (
                    "takes_turns",
                    models.GeneratedField(
                        db_persist=True,
                        expression=models.Case(
                            models.When(
                                models.Q(
                                    ("fair_by_key", True),
                                    ("rate_per_key", True),
                                    ("max_in_flight_per_key__isnull", False),
                                    _connector="OR",
                                ),
                                then=models.Value(True),
                            ),
                            default=models.Value(False),
                        ),
                        output_field=models.BooleanField(),
                    ),
                ),
                (
                    "max_waiting",
                    models.PositiveIntegerField(
                        db_default=512,
                        default=512,
                        help_text="Pulls over HTTP that may wait at once.",
                    ),
                ),
                ("paused_until", models.DateTimeField(blank=True, null=True)),
                (
                    "throttled_until",
                    pulljobs.models.fields.StatementTime(editable=False, null=True),
                ),
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
                "permissions": [
                    ("pause_consumer", "Can pause consumers and have them go on"),
                    ("rotate_consumer", "Can give consumers a new token"),
                ],
            },
        ),
        migrations.CreateModel(
            name="HttpClient",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=64)),
                ("host", models.CharField(max_length=255)),
                ("address", models.CharField(max_length=64)),
                ("agent", models.CharField(max_length=200)),
                ("first_seen_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
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
                "verbose_name": "HTTP client",
                "db_table": "pulljobs_http_client",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("consumer", "name"), name="pulljobs_http_client_name"
                    )
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
                ("lease_token", models.UUIDField(db_index=True, default=uuid.uuid4)),
                ("node_id", models.UUIDField(null=True)),
                (
                    "via",
                    models.CharField(
                        choices=[
                            ("worker", "Worker"),
                            ("post", "Post"),
                            ("pull", "Pull"),
                            ("push", "Push"),
                            ("spark", "Spark"),
                        ],
                        max_length=8,
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
                    "running_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), null=True, size=None
                    ),
                ),
                ("request_id", models.CharField(max_length=255, null=True)),
                ("renewals", models.IntegerField(db_default=0, default=0)),
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
                    "published_xid",
                    models.BigIntegerField(
                        db_default=pulljobs.models.fields.TransactionNumber(), editable=False
                    ),
                ),
                (
                    "channel",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="pulljobs.channel",
                    ),
                ),
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
                ("batch_id", models.BigIntegerField(null=True)),
                ("available_at", models.DateTimeField(null=True)),
                ("first_claimed_at", models.DateTimeField(null=True)),
                ("incremental_timeout", models.DurationField(null=True)),
                ("retry_count", models.IntegerField(default=0)),
                ("deliveries", models.IntegerField(default=0)),
                ("priority", models.SmallIntegerField(default=0)),
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
                            ("retries_exhausted", "retries exhausted"),
                            ("max_deliveries", "max deliveries"),
                            ("timed_out", "timed out"),
                            ("killed", "killed"),
                            ("purged", "purged"),
                            ("key_overflow", "key overflow"),
                        ],
                        max_length=20,
                        null=True,
                    ),
                ),
                ("key", models.CharField(max_length=255, null=True)),
                ("turn_key", models.CharField(max_length=255, null=True)),
                ("error", models.TextField(null=True)),
                ("cost", models.IntegerField(null=True)),
                ("suspect", models.BooleanField(db_default=False, default=False)),
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
                "permissions": [
                    ("redrive_job", "Can queue dead jobs again"),
                    ("requeue_job", "Can take running jobs from their workers"),
                    ("kill_job", "Can kill queued and running jobs"),
                    ("reschedule_job", "Can change when jobs are due"),
                ],
            },
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
                ("started_at", models.DateTimeField(null=True)),
                ("settled_at", models.DateTimeField()),
                ("run_seconds", models.FloatField(null=True)),
                (
                    "settled_xid",
                    models.BigIntegerField(
                        db_default=pulljobs.models.fields.TransactionNumber(), editable=False
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
                            ("retries_exhausted", "retries exhausted"),
                            ("max_deliveries", "max deliveries"),
                            ("timed_out", "timed out"),
                            ("killed", "killed"),
                            ("purged", "purged"),
                            ("key_overflow", "key overflow"),
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
                (
                    "token_sealed",
                    models.TextField(blank=True, db_default="", default="", editable=False),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", pulljobs.models.fields.ChangedAtField(editable=False)),
            ],
            options={
                "permissions": [("rotate_producer", "Can give producers a new token")],
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="pulljobs_producer_name")
                ],
            },
        ),
        migrations.AddField(
            model_name="message",
            name="producer",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                to="pulljobs.producer",
            ),
        ),
        migrations.CreateModel(
            name="ScheduledMessage",
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
                ("client_message_id", models.CharField(max_length=255)),
                ("priority", models.SmallIntegerField(default=0)),
                ("cost", models.IntegerField(null=True)),
                ("key", models.CharField(max_length=255, null=True)),
                ("content_type", models.CharField(max_length=255)),
                ("headers", models.JSONField(default=dict)),
                ("payload", models.BinaryField()),
                ("dispatch_at", models.DateTimeField()),
                ("dispatched_at", models.DateTimeField(null=True)),
                (
                    "channel",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="pulljobs.channel",
                    ),
                ),
                (
                    "producer",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="pulljobs.producer",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_scheduled_message",
            },
        ),
        migrations.CreateModel(
            name="AuditedBatch",
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
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "done",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                (
                    "refused",
                    models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict),
                ),
                (
                    "entry",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="batches",
                        to="pulljobs.auditentry",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_audited_batch",
                "default_permissions": (),
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(
                        fastupdate=False, fields=["done"], name="pulljobs_audited_job"
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="consumer",
            index=models.Index(
                condition=models.Q(
                    ("exclusive_keys", True),
                    ("max_in_flight__isnull", False),
                    ("limit_group__isnull", False),
                    ("max_in_flight_per_key__isnull", False),
                    ("rate_per_key", True),
                    _connector="OR",
                ),
                fields=["id"],
                name="pulljobs_consumer_guarded",
            ),
        ),
        migrations.AddConstraint(
            model_name="consumer",
            constraint=models.UniqueConstraint(
                fields=("channel", "name"), name="pulljobs_consumer_name"
            ),
        ),
        migrations.AddConstraint(
            model_name="consumer",
            constraint=models.CheckConstraint(
                condition=models.Q(("lease_duration__gt", datetime.timedelta(0))),
                name="pulljobs_consumer_lease",
            ),
        ),
        migrations.AddConstraint(
            model_name="consumer",
            constraint=models.CheckConstraint(
                condition=models.Q(("retry_jitter__gte", 0), ("retry_jitter__lte", 1)),
                name="pulljobs_consumer_jitter",
            ),
        ),
        migrations.AddConstraint(
            model_name="consumer",
            constraint=models.CheckConstraint(
                condition=models.Q(("max_deliveries__gte", 1)), name="pulljobs_consumer_deliveries"
            ),
        ),
        migrations.AddConstraint(
            model_name="lease",
            constraint=models.UniqueConstraint(
                condition=models.Q(("request_id__isnull", False)),
                fields=("consumer", "request_id"),
                name="pulljobs_lease_request",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("consumer__isnull", False)),
                fields=["consumer", "-priority", "available_at", "id"],
                name="pulljobs_job_claim",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("reason__isnull", False)),
                fields=["consumer", "id"],
                name="pulljobs_job_dead",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("key__isnull", False), ("reason__isnull", True)),
                fields=["consumer", "key", "id"],
                name="pulljobs_job_key",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("reason__isnull", True), ("turn_key__isnull", False)),
                fields=["consumer", "turn_key", "-priority", "available_at", "id"],
                name="pulljobs_job_turn",
            ),
        ),
        migrations.AddIndex(
            model_name="flowkey",
            index=models.Index(
                condition=models.Q(("turn_at__isnull", False)),
                fields=["consumer_id", "-turn_rank", "turn_at", "key"],
                name="pulljobs_flow_key_turn",
            ),
        ),
        migrations.AddIndex(
            model_name="flowkey",
            index=models.Index(
                condition=models.Q(("is_full", True)),
                fields=["consumer_id", "key"],
                name="pulljobs_flow_key_full",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("batch_id__isnull", False), ("reason__isnull", False)),
                fields=["batch_id", "id"],
                name="pulljobs_job_batch",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                fields=("message", "consumer"), name="pulljobs_job_fan_out"
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("deliveries__gte", 0),
                    ("retry_count__gte", 0),
                    (
                        "state",
                        models.Case(
                            models.When(
                                reason=None,
                                then=models.Case(
                                    models.When(lease_token=None, then=models.Value("QUEUED")),
                                    default=models.Value("INFLIGHT"),
                                ),
                            ),
                            models.When(
                                available_at=None, lease_token=None, then=models.Value("DEAD")
                            ),
                            default=models.Value("impossible"),
                        ),
                    ),
                ),
                name="pulljobs_job_state",
            ),
        ),
        migrations.AddIndex(
            model_name="archivedjob",
            index=django.contrib.postgres.indexes.BrinIndex(
                autosummarize=True,
                fields=["settled_xid"],
                name="pulljobs_archived_xid",
                pages_per_range=32,
            ),
        ),
        migrations.AddConstraint(
            model_name="archivedjob",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("reason", None), ("state", "DELIVERED")),
                    models.Q(("reason__isnull", False), ("state", "DEAD")),
                    _connector="OR",
                ),
                name="pulljobs_archived_state",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["channel", "id"], name="pulljobs_message_channel"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=django.contrib.postgres.indexes.BrinIndex(
                autosummarize=True,
                fields=["published_xid"],
                name="pulljobs_message_xid",
                pages_per_range=32,
            ),
        ),
        migrations.AddIndex(
            model_name="scheduledmessage",
            index=models.Index(fields=["channel", "id"], name="pulljobs_scheduled_channel"),
        ),
        migrations.AddIndex(
            model_name="scheduledmessage",
            index=models.Index(
                condition=models.Q(("dispatched_at__isnull", True)),
                fields=["dispatch_at"],
                name="pulljobs_scheduled_due",
            ),
        ),
        migrations.AddConstraint(
            model_name="scheduledmessage",
            constraint=models.UniqueConstraint(
                fields=("channel", "client_message_id"), name="pulljobs_scheduled_id"
            ),
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]
