"""Batches as JSON, for the HTTP API and for commands."""

from typing import Any

from pulljobs import ids
from pulljobs.workflows.batches.reading import BatchView, DeadMember


def text_id(view: BatchView) -> str:
    """Return the id of a batch in its public form."""
    return ids.encode(view.id)


def summarize(view: BatchView) -> dict[str, Any]:
    """Return a batch with its counts as a dict for JSON. Times that are not reached are None."""
    return {
        "id": text_id(view),
        "name": view.name,
        "state": view.state,
        "round": view.round,
        "progress": view.progress,
        "members": view.members,
        "live": view.live,
        "delivered": view.delivered,
        "dead": view.dead,
        "redriven": view.redriven,
        "parent": None if view.parent_id is None else ids.encode(view.parent_id),
        "created_at": view.created_at,
        "closed_at": view.closed_at,
        "cancelled_at": view.cancelled_at,
        "completed_at": view.completed_at,
        "expected_at": view.expected_at,
        "error": view.error,
    }


def describe_dead(member: DeadMember) -> dict[str, Any]:
    """Return a dead member with its error as a dict for JSON."""
    return {**member._asdict(), "job_id": ids.encode(member.job_id)}
