import datetime
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("pulljobs", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Schedule",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                ("channel_name", models.CharField(max_length=255)),
                ("cron", models.CharField(blank=True, default="", max_length=255)),
                ("every", models.DurationField(blank=True, null=True)),
                ("timezone", models.CharField(default="UTC", max_length=64)),
                ("starts_at", models.DateTimeField(blank=True, null=True)),
                ("ends_at", models.DateTimeField(blank=True, null=True)),
                ("jitter", models.DurationField(default=datetime.timedelta)),
                ("payload", models.BinaryField()),
                ("content_type", models.CharField(max_length=255)),
                ("headers", models.JSONField(default=dict)),
                ("key", models.CharField(max_length=255, null=True)),
                ("priority", models.SmallIntegerField(default=0)),
                ("cost", models.IntegerField(default=1)),
                (
                    "missed",
                    models.CharField(
                        choices=[
                            ("skip", "skip them"),
                            ("latest", "fire the newest"),
                            ("all", "fire the newest, up to a bound"),
                        ],
                        default="latest",
                        max_length=6,
                    ),
                ),
                ("missed_bound", models.PositiveIntegerField(default=100)),
                ("misfire_grace", models.DurationField(blank=True, null=True)),
                (
                    "overlap",
                    models.CharField(
                        choices=[("allow", "fire"), ("skip", "skip the slot")],
                        default="allow",
                        max_length=5,
                    ),
                ),
                ("is_declared", models.BooleanField(default=False)),
                ("paused_at", models.DateTimeField(null=True)),
                ("paused_until", models.DateTimeField(null=True)),
                (
                    "earlier_pauses",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.DateTimeField(), null=True, size=None
                    ),
                ),
                ("next_slot", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField(null=True)),
                ("rule_since", models.DateTimeField()),
                ("last_slot", models.DateTimeField(null=True)),
                ("last_reason", models.CharField(blank=True, default="", max_length=8)),
                ("last_late_seconds", models.FloatField(null=True)),
                ("last_message_id", models.BigIntegerField(null=True)),
                ("failures", models.IntegerField(default=0)),
                ("error", models.TextField(blank=True, default="")),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "changed_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
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
                "db_table": "pulljobs_schedule",
                "permissions": [
                    ("pause_schedule", "Can pause schedules and have them go on"),
                    ("fire_schedule", "Can fire schedules now and backfill them"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Slot",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "schedule_id",
                        "slot_at",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("slot_at", models.DateTimeField()),
                (
                    "recorded_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("late_seconds", models.FloatField()),
                ("message_id", models.BigIntegerField(null=True)),
                (
                    "reason",
                    models.CharField(
                        choices=[
                            ("due", "its time came"),
                            ("now", "fired by a user"),
                            ("backfill", "fired later by a backfill"),
                            ("missed", "it passed while nothing ran"),
                            ("late", "it was later than the grace"),
                            ("paused", "the schedule was paused"),
                            ("overlap", "a job of the previous message was live"),
                            ("refused", "publishing was refused"),
                            ("changed", "the rule changed before it fired"),
                        ],
                        max_length=8,
                    ),
                ),
                ("error", models.TextField(null=True)),
                (
                    "schedule",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="slots",
                        to="pulljobs_schedules.schedule",
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_slot",
                "default_permissions": ("view",),
            },
        ),
        migrations.AddIndex(
            model_name="schedule",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)),
                fields=["due_at"],
                name="pulljobs_schedule_due",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.UniqueConstraint(fields=("name",), name="pulljobs_schedule_name"),
        ),
        migrations.AddIndex(
            model_name="slot",
            index=models.Index(fields=["slot_at"], name="pulljobs_slot_age"),
        ),
        migrations.AddConstraint(
            model_name="slot",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("message_id__isnull", False), ("reason__in", ("due", "now", "backfill"))
                    ),
                    models.Q(
                        ("message_id__isnull", True),
                        models.Q(("reason__in", ("due", "now", "backfill")), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="pulljobs_slot_reason",
            ),
        ),
    ]
