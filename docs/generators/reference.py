"""Tables of data that the code declares: states, settings, invariants, metrics, alerts."""

import inspect
import re
from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Final

import yaml

from generators.markdown import render_table, to_cell
from pulljobs import conf, metrics
from pulljobs.metrics.families import Family
from pulljobs.states import TRANSITIONS, State, Transition
from pulljobs.storage.invariants import INVARIANTS, PASSING

ALERTS: Final = Path(metrics.__file__).with_name("alerts.yml")


def render_states() -> str:
    """Render the state machine: a row for each event."""
    rows = [
        (str(event), " or ".join(sorted(change.sources)), _render_target(change), change.actor)
        for event, change in TRANSITIONS.items()
    ]
    return render_table(["event", "from", "to", "by"], rows)


def _render_target(change: Transition) -> str:
    target: State | str = change.target or "gone; its history stays in the archive"
    if not change.exhausted:
        return str(target)
    return f"{target}; {change.exhausted} when its retries are used up"


def render_settings() -> str:
    """Render the settings: type, default and the docstring under each field."""
    source = inspect.getsource(conf.Settings)
    defaults = conf.Settings()
    rows = []
    for field in fields(conf.Settings):
        about = re.search(rf'    {field.name}: .*?\n(?:    """(.*?)""")?', source, re.DOTALL)
        default = _render_default(getattr(defaults, field.name))
        meaning = to_cell(about[1] or "") if about else ""
        rows.append((f"`{field.name}`", f"`{_render_type(field.type)}`", default, meaning))
    return render_table(["key", "type", "default", "meaning"], rows)


def _render_type(annotation: object) -> str:
    """Render a type as a project writes it: a list for a Sequence, a dict for a Mapping."""
    is_class = isinstance(annotation, type)
    text = annotation.__name__ if is_class else str(annotation).replace("datetime.", "")
    for name, plain in {"Sequence": "list", "Mapping": "dict"}.items():
        text = text.replace(f"collections.abc.{name}", plain)
    return to_cell(text)


def _render_default(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    if isinstance(value, (tuple, list)) and value:
        return ", ".join(f"`{str(entry).rpartition('.')[2]}`" for entry in value)
    return f"`{value}`" if value not in ("", (), None) else "none"


def render_invariants() -> str:
    """Render what `verify` looks for."""
    rows = [
        (f"`{name}`", f"{meaning}{' Looked at twice.' if name in PASSING else ''}")
        for name, meaning in INVARIANTS.items()
    ]
    return render_table(["invariant", "meaning"], rows)


def render_metrics(families: Sequence[Family]) -> str:
    """Render metric families."""
    rows = [
        (
            f"`{family.name}`",
            str(family.type),
            ", ".join(f"`{label}`" for label in family.labels),
            to_cell(family.meaning),
        )
        for family in families
    ]
    return render_table(["name", "type", "labels", "meaning"], rows)


def render_alerts() -> str:
    """Render the alerting rules of alerts.yml."""
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    rows = [
        (
            f"`{rule['alert']}`",
            rule["labels"]["severity"],
            rule.get("for", "at once"),
            f"`{' '.join(rule['expr'].split())}`",
        )
        for group in groups
        for rule in group["rules"]
    ]
    return render_table(["alert", "severity", "after", "as long as"], rows)
