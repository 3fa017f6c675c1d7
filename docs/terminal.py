"""Take a picture of a command in a terminal.

    python docs/terminal.py OUT.png COLUMNS ROWS SECONDS COMMAND ...

The command runs in a pseudo-terminal for SECONDS, pyte keeps its screen, and a headless Chromium
draws it. The screen may show the name of the current directory.
"""

import fcntl
import html
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator

import pyte
from playwright.sync_api import sync_playwright

COLOURS = {
    "default": "#d7dce5", "black": "#1b1f27", "red": "#ff6b6b", "green": "#7ddf8f",
    "brown": "#f2c063", "blue": "#6fa8ff", "magenta": "#d59bff", "cyan": "#63d3e6",
    "white": "#d7dce5", "brightblack": "#7f8898",
}  # fmt: skip
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: transparent; }}
#window {{ display: inline-block; margin: 14px; border-radius: 10px; overflow: hidden;
  background: #14171d; box-shadow: 0 4px 14px #0006; }}
#bar {{ display: flex; gap: 7px; padding: 10px 12px; background: #20252e; align-items: center;
  font: 12px sans-serif; color: #9aa3b2; }}
#bar i {{ width: 11px; height: 11px; border-radius: 50%; background: #454d5c; }}
#bar b {{ flex: 1; text-align: center; font-weight: normal; margin-right: 50px; }}
pre {{ margin: 0; padding: 12px 16px 14px; font: 14px/1.32 "DejaVu Sans Mono", monospace;
  color: #d7dce5; }}
</style><div id="window"><div id="bar"><i></i><i></i><i></i><b>{title}</b></div>
<pre>{text}</pre></div>"""


def main() -> None:
    out, columns, rows, seconds, *command = sys.argv[1:]
    screen = _run(int(columns), int(rows), float(seconds), command)
    text = "\n".join("".join(_render_cells(screen, row)) for row in range(screen.lines))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"))
        page = browser.new_page(viewport={"width": 2000, "height": 1400}, device_scale_factor=1.5)
        page.set_content(PAGE.format(title=html.escape(" ".join(command)), text=text.rstrip()))
        box = page.locator("#window").bounding_box() or {}
        clip = {"x": 0, "y": 0, "width": box["width"] + 28, "height": box["height"] + 28}
        page.screenshot(path=out, clip=clip, omit_background=True)
        browser.close()


def _run(columns: int, rows: int, seconds: float, command: list[str]) -> pyte.Screen:
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    pid, master = pty.fork()
    if not pid:
        os.environ |= {"TERM": "xterm-256color"}
        os.execvp(command[0], command)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            stream.feed(os.read(master, 65_536))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return screen


def _render_cells(screen: pyte.Screen, row: int) -> Iterator[str]:
    for column in range(screen.columns):
        cell = screen.buffer[row][column]
        style = f"color: {COLOURS.get(cell.fg, '#' + cell.fg)}"
        if cell.bg != "default":
            style += f"; background: {COLOURS.get(cell.bg, '#' + cell.bg)}"
        if cell.bold:
            style += "; font-weight: bold"
        yield f'<span style="{style}">{html.escape(cell.data)}</span>'


if __name__ == "__main__":
    main()
