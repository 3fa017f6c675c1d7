"""S3 server for tests of the lake, on this machine, and places of lakes in its bucket."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import Request, urlopen
from uuid import uuid4

from pyarrow import fs

from pyspark_pulljobs.filesystems import open_location
from tests.sessions import wait_until

BUCKET: Final = "lakes"
START_SECONDS: Final = 180


def choose_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def environment_of(port: int) -> dict[str, str]:
    """Return the variables with which clients of S3 use the server at this port."""
    return {
        "AWS_ACCESS_KEY_ID": "lake",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }


@contextmanager
def serve(port: int) -> Iterator[None]:
    """Run the S3 server with an empty bucket at this port, within the block."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_listening(port), START_SECONDS)
        request("PUT", f"/{BUCKET}", port)
        yield
    finally:
        process.kill()
        process.wait()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def request(method: str, path: str, port: int, body: bytes | None = None) -> bytes:
    headers = {"Content-Type": "text/plain"}  # else the server takes it as a form
    asked = Request(f"http://127.0.0.1:{port}{path}", body, headers, method=method)
    with urlopen(asked) as answer:
        content: bytes = answer.read()
    return content


@dataclass(frozen=True)
class Key:
    """Object of the bucket below a place, with methods like those of `Path`."""

    place: "StorePlace"
    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.place}/{self.path}"

    def read_bytes(self) -> bytes:
        with self.place.filesystem.open_input_stream(self.path) as stream:
            content: bytes = stream.read()
        return content

    def write_bytes(self, content: bytes) -> None:
        port = urlsplit(os.environ["AWS_ENDPOINT_URL"]).port
        assert port
        request("PUT", f"/{BUCKET}/{self.place.folder}/{self.path}", port, content)


class StorePlace:
    """Place of a lake in the bucket. `str` gives its URL as the ledger has it."""

    def __init__(self, scheme: str) -> None:
        self.folder = uuid4().hex
        self.setting = f"{scheme}://{BUCKET}/{self.folder}"

    def __str__(self) -> str:
        return f"s3://{BUCKET}/{self.folder}"

    def __truediv__(self, path: str) -> Key:
        return Key(self, path)

    def download(self, url: str, directory: Path) -> str:
        """Copy an object into a directory, under the same name, and return the path of the file."""
        target = directory / url.rpartition("/")[2]
        target.write_bytes((self / url.removeprefix(f"{self}/")).read_bytes())
        return str(target)

    @property
    def filesystem(self) -> fs.FileSystem:
        return open_location(str(self))

    def glob(self, pattern: str) -> list[Key]:
        entries = self.filesystem.get_file_info(fs.FileSelector("", recursive=True))
        names = [entry.path for entry in entries if entry.type == fs.FileType.File]
        return [self / name for name in names if fnmatch(name, pattern)]
