"""Django app of batches and workflows: what it adds to the core."""

from typing import Final

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from pulljobs import hooks

RUN_ROUTES: Final = ("run", "run-signal", "runs", "signal")
"""Routes of the HTTP API of runs."""
BATCH_ROUTES: Final = (
    "batch", "batch-cancel", "batch-close", "batch-members", "batch-redrive", "batches",
)  # fmt: skip
"""Routes of the HTTP API of batches."""


class WorkflowsConfig(AppConfig):
    name = "pulljobs.workflows"
    label = "pulljobs_workflows"
    verbose_name = _("pull jobs: batches and workflows")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from pulljobs.workflows import sql  # noqa: F401  registers statements

        hooks.app_labels.add(self.label)
        _extend_by_batches()
        _extend_by_runs()


def _extend_by_batches() -> None:
    hooks.add(hooks.batch_listeners, "pulljobs.workflows.batches.looking:listen")
    hooks.worker_loops["batches"] = "pulljobs.workflows.batches.loop:BatchLoop"
    hooks.add(hooks.worker_endings, "pulljobs.workflows.batches.looking:look_at_noted")
    hooks.subcommands["batches"] = "pulljobs.workflows.batches.verbs"
    hooks.counters["batches"] = "pulljobs.workflows.batches.metrics"
    hooks.gauges["batches"] = "pulljobs.workflows.batches.gauges"
    hooks.add(hooks.doctor_checks, "pulljobs.workflows.batches.doctor:check_batches")
    hooks.verifiers["batches"] = "pulljobs.workflows.batches.verifying:verify_part"
    hooks.add(hooks.forgetters, "pulljobs.workflows.batches.history:forget_batches")
    hooks.api_routes["batches"] = "pulljobs.workflows.batches.api.urls"
    hooks.add(hooks.api_operations, "pulljobs.workflows.batches.api.operations:OPERATIONS")
    hooks.api_scopes.update(BATCH_ROUTES)
    hooks.add(hooks.drain_steps, "pulljobs.workflows.batches.looking:sweep_all")
    hooks.app_tables["pulljobs_batch"] = "SELECT, INSERT, UPDATE, DELETE"
    hooks.app_tables["pulljobs_batch_part"] = "SELECT, INSERT, DELETE"


def _extend_by_runs() -> None:
    hooks.test_tools["run_workflow"] = "pulljobs.workflows.testing:run_workflow"
    hooks.test_tools["crash_after"] = "pulljobs.workflows.testing:crash_after"
    hooks.add(hooks.drain_steps, "pulljobs.workflows.signals:sweep_all")
    hooks.add(hooks.drain_jumps, "pulljobs.workflows.jumping:jump")
    hooks.subcommands["workflows"] = "pulljobs.workflows.verbs"
    hooks.add(hooks.explainers, "pulljobs.workflows.explaining:explain_run")
    hooks.api_routes["workflows"] = "pulljobs.workflows.api.run_urls"
    hooks.add(hooks.api_operations, "pulljobs.workflows.api.run_operations:OPERATIONS")
    hooks.api_scopes.update(RUN_ROUTES)
    hooks.counters["workflows"] = "pulljobs.workflows.metrics"
    hooks.gauges["workflows"] = "pulljobs.workflows.gauges"
    hooks.node_reports["workflows"] = "pulljobs.workflows.versions:report_versions"
    hooks.add(hooks.doctor_checks, "pulljobs.workflows.doctor:check_runs")
    hooks.add(hooks.job_links, "pulljobs.workflows.admin.job_links:find_links")
    hooks.verifiers["runs of workflows"] = "pulljobs.workflows.verifying:verify_part"
    hooks.add(hooks.forgetters, "pulljobs.workflows.history:forget_runs")
    hooks.add(hooks.forgetters, "pulljobs.workflows.history:forget_signals")
    hooks.add(hooks.forgetters, "pulljobs.workflows.signal_tokens:forget_tokens")
    hooks.add(hooks.kill_listeners, "pulljobs.workflows.children:kill_children")
    hooks.add(hooks.redrive_listeners, "pulljobs.workflows.children:redriving_killed")
    hooks.worker_loops["runs"] = "pulljobs.workflows.loop:RunLoop"
    for table in ("pulljobs_run", "pulljobs_step", "pulljobs_signal", "pulljobs_signal_token"):
        hooks.app_tables[table] = "SELECT, INSERT, UPDATE, DELETE"
