"""What `manage.py pulljobs prune` can delete: every module here is a kind of its name."""

from argparse import ArgumentParser


def add_common(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="tell what would go, and stop")
    parser.add_argument("--yes", action="store_true", help="don't ask before")
