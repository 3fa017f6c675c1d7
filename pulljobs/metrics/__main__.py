"""Command `python -m pulljobs.metrics`: prints grafana.json or the alert rules, alerts.yml."""

import argparse
import sys
from importlib.resources import files
from typing import Final

FILES: Final = {"grafana": "grafana.json", "alerts": "alerts.yml"}


def main() -> None:
    """Print the file that the command line names: `grafana` or `alerts`."""
    parser = argparse.ArgumentParser(prog="python -m pulljobs.metrics", description=__doc__)
    parser.add_argument("file", choices=FILES)
    chosen = files("pulljobs.metrics") / FILES[parser.parse_args().file]
    sys.stdout.write(chosen.read_text("utf-8"))


if __name__ == "__main__":
    main()
