"""Sections of the dashboard that only some projects need: of limits, and of other apps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from pulljobs import hooks
from pulljobs.admin.dashboard.attention import Attention
from pulljobs.admin.dashboard.reading import Part
from pulljobs.admin.links import Links
from pulljobs.storage.reading import Reading

LIMITS: Final = "pulljobs.admin.dashboard.limited:read_section"


@dataclass(frozen=True)
class Section:
    """Section of the dashboard that only some projects need. Its template gets it as `section`."""

    name: str
    """Anchor of the section. The id of its heading is `pj-NAME-title`."""
    template: str
    content: Any
    """Data for the template."""
    findings: Sequence[Attention] = ()


def read_sections(reading: Reading, at: datetime, links: Links) -> Iterator[Section]:
    """Yield the sections that have something to show: limits, then those of other apps.

    A section that could not be read is left out. `at` is the database's time.
    """
    nothing: Section | None = None
    for name in (LIMITS, *hooks.dashboard_sections):
        section = reading.part(Part.SECTIONS, partial(hooks.load(name), at, links), nothing)
        if section is not None:
            yield section
