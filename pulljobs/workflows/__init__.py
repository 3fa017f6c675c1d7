"""Batches and workflows, both made of ordinary jobs.

    from pulljobs.workflows import Run, workflow

    @workflow(channel="orders", consumer="fulfilment")
    def fulfil(run: Run) -> str:
        receipt = run.step("charge", charge, run.input["order"])
        run.sleep("cool-off", timedelta(days=1))
        return receipt

`pulljobs.batches` is the public module of batches.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulljobs.workflows.async_runs import AsyncRun
    from pulljobs.workflows.children import ChildJob
    from pulljobs.workflows.definitions import workflow
    from pulljobs.workflows.redriving import redrive
    from pulljobs.workflows.runs import Run
    from pulljobs.workflows.signal_tokens import create_signal_token
    from pulljobs.workflows.signals import asignal, signal

_MODULES = {
    "AsyncRun": "async_runs",
    "ChildJob": "children",
    "Run": "runs",
    "asignal": "signals",
    "create_signal_token": "signal_tokens",
    "redrive": "redriving",
    "signal": "signals",
    "workflow": "definitions",
}

__all__ = [
    "AsyncRun",
    "ChildJob",
    "Run",
    "asignal",
    "create_signal_token",
    "redrive",
    "signal",
    "workflow",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, because Django imports the app before its models."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
