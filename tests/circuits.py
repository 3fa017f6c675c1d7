"""Circuits as workers report them with a heartbeat."""

from typing import Any

from pulljobs import ids

CAUSE = f"5 different jobs failed and none succeeded since, the last was {ids.encode(7)} (OSError)"


def open_circuit(**changed: Any) -> dict[str, Any]:
    """Return the report of an open circuit whose cause is CAUSE."""
    report = {"state": "open", "level": 2, "seconds": 3, "failing": 5, "job": "7"}
    return report | {"error": "OSError"} | changed


def open_circuit_by_task(*tasks: str) -> dict[str, Any]:
    """Return the report of a consumer with an open circuit for each of these tasks."""
    return open_circuit(tasks={task: open_circuit() for task in tasks})
