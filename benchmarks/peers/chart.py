"""SVG of dots on logarithmic axes: a row for each queue, in the order of the first rates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.peers.summary import MILLI, Content, Spread, spread

NAMES: Final = 150
WIDTH: Final = 310
GAP: Final = 60
ROW: Final = 34
TOP: Final = 84
BOTTOM: Final = 30
OFFSET: Final = 8
STYLE: Final = """
  svg { color-scheme: light dark; font: 12px system-ui, sans-serif; }
  .paper { fill: #ffffff; } text { fill: #24292f; } .faint { fill: #57606a; }
  .grid { stroke: #d0d7de; } .row { stroke: #eaeef2; }
  .a { fill: #0550ae; stroke: #0550ae; } .b { fill: #bc4c00; stroke: #bc4c00; }
  .c { fill: #6e7781; stroke: #6e7781; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117; } text { fill: #e6edf3; } .faint { fill: #9198a1; }
    .grid { stroke: #30363d; } .row { stroke: #21262d; }
    .a { fill: #79c0ff; stroke: #79c0ff; } .b { fill: #ffa657; stroke: #ffa657; }
    .c { fill: #8b949e; stroke: #8b949e; }
  }
"""


@dataclass(frozen=True)
class Series:
    """Dots of one colour for medians, each with a line from the minimum to the maximum."""

    label: str
    colour: str
    points: dict[str, Spread]


@dataclass(frozen=True)
class Panel:
    """Chart of several series with one axis."""

    title: str
    series: Sequence[Series]

    @property
    def decades(self) -> tuple[int, int]:
        """Exponents of the powers of ten at the ends of the axis."""
        values = [
            value for series in self.series for point in series.points.values() for value in point
        ]
        if not values:
            return 0, 1
        low, high = floor(log10(min(values))), ceil(log10(max(values)))
        return low, max(high, low + 1)


def draw_svg(content: Content) -> str:
    """Draw rates on the left and latencies on the right, with the fastest queue on top."""
    panels = [_rates(content), _latencies(content)]
    first = panels[0].series[0].points
    peers = sorted(content["peers"], key=lambda peer: -first[peer].median if peer in first else 0)
    height = TOP + ROW * len(peers) + BOTTOM
    width = NAMES + len(panels) * (WIDTH + GAP)
    body = [*_names(peers, width)]
    for number, panel in enumerate(panels):
        body += _panel(panel, peers, NAMES + number * (WIDTH + GAP))
    title = "Jobs a second and latency of pulljobs and other queues"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n"
        f'<rect class="paper" width="{width}" height="{height}"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _rates(content: Content) -> Panel:
    measures = {"1 process": "noop x 1", "4 processes": "noop x 4", "1, snapshot held": "held"}
    return Panel(
        "Jobs a second, handler does nothing",
        [
            Series(label, colour, _points(content, measure, "rate", 1.0))
            for (label, measure), colour in zip(measures.items(), "abc", strict=True)
        ],
    )


def _latencies(content: Content) -> Panel:
    measures = {"p50 at 500/s": ("p50", "a"), "p99 at 500/s": ("p99", "b")}
    return Panel(
        "Publish to start, milliseconds",
        [
            Series(label, colour, _points(content, "latency at 500", figure, MILLI))
            for label, (figure, colour) in measures.items()
        ],
    )


def _points(content: Content, measure: str, figure: str, scale: float) -> dict[str, Spread]:
    spreads = {peer: spread(content, peer, measure, figure) for peer in content["peers"]}
    return {
        peer: Spread(*(part * scale for part in point)) for peer, point in spreads.items() if point
    }


def _names(peers: Sequence[str], width: int) -> Iterator[str]:
    for row, peer in enumerate(peers):
        y = _y(row)
        yield f'<line class="row" x1="0" x2="{width}" y1="{y + ROW / 2}" y2="{y + ROW / 2}"/>'
        yield f'<text x="{NAMES - 14}" y="{y + 4}" text-anchor="end">{escape(peer)}</text>'


def _panel(panel: Panel, peers: Sequence[str], left: int) -> Iterator[str]:
    yield f'<text x="{left}" y="22" font-weight="600">{escape(panel.title)}</text>'
    for number, series in enumerate(panel.series):
        x = left + number * 105
        yield f'<circle class="{series.colour}" cx="{x + 4}" cy="42" r="4"/>'
        yield f'<text class="faint" x="{x + 13}" y="46">{escape(series.label)}</text>'
    yield from _grid(panel, len(peers), left)
    for number, series in enumerate(panel.series):
        shift = (number - (len(panel.series) - 1) / 2) * OFFSET
        yield from _dots(panel, series, peers, left, shift)


def _grid(panel: Panel, rows: int, left: int) -> Iterator[str]:
    low, high = panel.decades
    for decade in range(low, high + 1):
        x = _x(panel, 10.0**decade, left)
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP - 12}" y2="{_y(rows) - ROW / 2}"/>'
        label = f"{10.0**decade:,.0f}" if decade >= 0 else f"{10.0**decade:g}"
        yield f'<text class="faint" x="{x}" y="{TOP - 16}" text-anchor="middle">{label}</text>'


def _dots(
    panel: Panel, series: Series, peers: Sequence[str], left: int, shift: float
) -> Iterator[str]:
    for row, peer in enumerate(peers):
        if (point := series.points.get(peer)) is None:
            continue
        least, middle, most = (_x(panel, value, left) for value in point)
        y, colour = _y(row) + shift, series.colour
        tip = escape(f"{peer}, {series.label}: {point.median:,.4g}")
        yield (
            f'<g class="{colour}"><title>{tip}</title>'
            f'<line x1="{least}" x2="{most}" y1="{y}" y2="{y}" stroke-width="2"/>'
            f'<circle cx="{middle}" cy="{y}" r="4"/></g>'
        )


def _x(panel: Panel, value: float, left: int) -> float:
    low, high = panel.decades
    return round(left + (log10(value) - low) / (high - low) * WIDTH, 1)


def _y(row: float) -> float:
    return TOP + ROW * (row + 0.5)
