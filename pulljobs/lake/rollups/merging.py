"""Merges of hours into days, and of days into months: sums here, sketches by a `Counter`."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from pulljobs.lake.rollups.counting import Counter
from pulljobs.lake.rollups.counts import Counts, Key, Rows, Sketches

Groups = dict[Key, list[Counts]]


def merged(counter: Counter, wholes: Sequence[Mapping[Key, Sequence[Counts]]]) -> list[Rows]:
    """Return the mappings with each list of counts, such as the hours of a day, replaced by a sum.

    The sketches of all mappings are merged in one call, because each query of Spark is expensive.
    """
    made: list[Rows] = []
    members: list[list[Sketches]] = []
    for whole in wholes:
        made.append({key: _sum(parts) for key, parts in whole.items()})
        members += [[part.sketches for part in parts] for parts in whole.values()]
    places = [counts for rows in made for counts in rows.values()]
    for number, sketches in counter.merge(members).items():
        places[number].sketches = sketches
    return made


def grouped(parts: Mapping[Key, Counts], begin: Callable[[datetime], datetime]) -> Groups:
    """Group counts by consumer and by the start of the longer period that they belong to.

    `begin` returns that start for a time. The counts of a group are in the order of time, which
    decides which sample of equal errors is kept.
    """
    groups: Groups = defaultdict(list)
    for key in sorted(parts):
        groups[Key(key.consumer_id, begin(key.starts_at))].append(parts[key])
    return groups


def _sum(parts: Sequence[Counts]) -> Counts:
    counts = Counts()
    for part in parts:
        counts.add(part)
    return counts
