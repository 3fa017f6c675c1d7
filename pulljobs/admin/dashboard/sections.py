"""Sections of the page that some projects need, those of `hooks.dashboard_sections` as well."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from pulljobs import hooks
from pulljobs.admin.dashboard.attention import Attention
from pulljobs.admin.dashboard.links import Links
from pulljobs.admin.dashboard.reading import Part
from pulljobs.storage.reading import Reading

LIMITS: Final = "pulljobs.admin.dashboard.limited:read_section"


@dataclass(frozen=True)
class Section:
    """Section that is left out if it has nothing to show. Its template gets it as `section`."""

    name: str
    """Anchor of the section. The id of its heading is `pj-NAME-title`."""
    template: str
    content: Any
    findings: Sequence[Attention] = ()


def read_sections(reading: Reading, at: datetime, links: Links) -> Iterator[Section]:
    """Yield the sections that have something to show."""
    nothing: Section | None = None
    for name in (LIMITS, *hooks.dashboard_sections):
        section = reading.part(Part.SECTIONS, partial(hooks.load(name), at, links), nothing)
        if section is not None:
            yield section
