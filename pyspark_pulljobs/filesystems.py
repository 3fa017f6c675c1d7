"""Arrow filesystem of the lake, which reaches URLs through the object store of the Delta library.

Files then need the same credentials from the environment as the Delta log, and executors need no
package of Java.
"""

import os

from pyarrow import fs

from pulljobs.lake import locations


def open_location(location: str) -> fs.FileSystem:
    """Return the filesystem whose root is this directory or URL."""
    if not locations.is_url(location):
        return fs.SubTreeFileSystem(location, fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    options = locations.choose_storage_options(location, os.environ)
    return fs.PyFileSystem(DeltaStorageHandler(location, options))
