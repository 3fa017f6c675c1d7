"""Filesystem of the lake, which reads and writes URLs by the object store of delta-rs.

The Delta log and the files then take the same credentials from the environment, and executors need
no package of Java.
"""

import os

from pyarrow import fs

from pulljobs.lake import locations


def open_location(location: str) -> fs.FileSystem:
    """Open the filesystem whose root is this directory or URL."""
    if not locations.is_url(location):
        return fs.SubTreeFileSystem(location, fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    options = locations.choose_storage_options(location, os.environ)
    return fs.PyFileSystem(DeltaStorageHandler(location, options))
