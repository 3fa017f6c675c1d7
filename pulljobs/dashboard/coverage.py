"""What the charts are made of, in words: figures that are not of everything say so."""

from collections.abc import Iterator

from django.utils.translation import gettext as _

from pulljobs.dashboard import figures
from pulljobs.dashboard.history import History
from pulljobs.dashboard.ranges import Range
from pulljobs.storage import recent


def told(history: History, chosen: Range) -> list[str]:
    return list(
        _of_archive(history, chosen) if chosen.period is None else _of_rollups(history, chosen)
    )


def _of_archive(history: History, chosen: Range) -> Iterator[str]:
    seconds = chosen.step.seconds // recent.SPANS
    if not history.is_estimate:
        yield _("From the archive: every settlement of the hour is counted.")
    else:
        yield _(
            "From the archive, of which so many rows are read and no more: %(cap)s of every "
            "%(seconds)s seconds. Where there were more, counts are estimated and marked ≈."
        ) % {"cap": recent.CAP, "seconds": seconds}
    yield _(
        "Percentiles are those of the first %(timed)s settlements, of all consumers together, in "
        "every %(seconds)s seconds."
    ) % {"timed": recent.TIMED, "seconds": seconds}


def _of_rollups(history: History, chosen: Range) -> Iterator[str]:
    if history.known_until is None:
        yield _("There are no rollups of this time. The command pulljobs lake rollup writes them.")
        return
    at = figures.moment(history.known_until)
    yield _("From the rollups of the lake, which know of settlements until %s.") % at
    if history.is_worst:
        yield (
            _(
                "Percentiles of several consumers can't be merged: the highest of each %s is "
                "shown. Choose a consumer to see its own."
            )
            % chosen.step_title
        )
