"""Write an archive of what Spark's executors need for tasks of pulljobs, with --include handlers.

Executors that have Spark and the same version of Python unpack it when an application starts, and
need no installation. It has the packages of this environment, so it is for machines of this kind.
"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from pulljobs.management.subcommands import CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, default=Path("pulljobs-spark.tar.gz"), metavar="FILE",
        help="archive to write: .tar.gz, .tgz or .tar (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--include", action="append", default=[], metavar="NAME",
        help="module of your handlers, or a distribution that they need; may be repeated",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import packaging

    packaged = packaging.package(options["file"], options["include"])
    flags = [f"--conf {name}={value}" for name, value in packaged.properties.items()]
    lines = [
        f"{packaged.file}: {packaged.bytes:,} bytes for {packaging.describe_python()}, with "
        f"{', '.join(packaged.names)}",
        f"Use it with {' '.join(flags)}",
    ]
    content = {
        "file": str(packaged.file),
        "bytes": packaged.bytes,
        "names": packaged.names,
        "properties": packaged.properties,
    }
    return CommandResult(content, lines)
