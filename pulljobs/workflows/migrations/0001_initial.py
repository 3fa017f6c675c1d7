import django.contrib.postgres.fields
import django.db.models.functions.datetime
import pulljobs.models.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [("pulljobs", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="BatchPart",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "batch_id",
                        "id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("batch_id", models.BigIntegerField()),
                ("id", models.BigIntegerField(db_default=pulljobs.models.fields.TimeOrderedId())),
                (
                    "job_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
            ],
            options={
                "db_table": "pulljobs_batch_part",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Batch",
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
                ("name", models.CharField(max_length=200)),
                ("parent_id", models.BigIntegerField(null=True)),
                ("run_id", models.BigIntegerField(null=True)),
                ("callbacks", models.JSONField(default=list)),
                ("members", models.BigIntegerField(default=0)),
                ("delivered", models.BigIntegerField(default=0)),
                ("dead", models.BigIntegerField(default=0)),
                ("redriven", models.BigIntegerField(default=0)),
                ("redriven_before", models.BigIntegerField(default=0)),
                ("round", models.IntegerField(default=1)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("closed_at", models.DateTimeField(null=True)),
                ("cancelled_at", models.DateTimeField(null=True)),
                ("completed_at", models.DateTimeField(null=True)),
                ("error", models.TextField(null=True)),
            ],
            options={
                "verbose_name": "batch",
                "verbose_name_plural": "batches",
                "db_table": "pulljobs_batch",
                "permissions": [
                    ("cancel_batch", "Can cancel batches"),
                    ("redrive_batch", "Can redrive the dead members of batches"),
                ],
                "default_permissions": ("add", "change", "view"),
                "indexes": [
                    models.Index(
                        condition=models.Q(("parent_id__isnull", False)),
                        fields=["parent_id", "id"],
                        name="pulljobs_batch_parent",
                    ),
                    models.Index(
                        condition=models.Q(("run_id__isnull", False)),
                        fields=["run_id"],
                        name="pulljobs_batch_run",
                    ),
                    models.Index(fields=["name", "id"], name="pulljobs_batch_name"),
                    models.Index(
                        condition=models.Q(("completed_at__isnull", True)),
                        fields=["id"],
                        name="pulljobs_batch_open",
                    ),
                ],
            },
        ),
    ]
