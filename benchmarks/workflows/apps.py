"""App of the processes that `workflow-faults` starts."""

import os
from pathlib import Path

from django.apps import AppConfig


class BenchmarkedWorkflowsConfig(AppConfig):
    """App whose start makes the process inject faults, and break pulljobs on purpose if asked."""

    name = "benchmarks.workflows"
    label = "benchmarked_workflows"

    def ready(self) -> None:
        """Install breaks and faults before the first statement of a run."""
        from benchmarks.workflows import breaks, injector

        for name in filter(None, os.environ.get("PROOF_BREAK", "").split(",")):
            breaks.BREAKS[name]()
        if os.environ.get("PROOF_FOLDER") and os.environ.get("PROOF_SEED"):
            injector.install(Path(os.environ["PROOF_FOLDER"]), int(os.environ["PROOF_SEED"]))
