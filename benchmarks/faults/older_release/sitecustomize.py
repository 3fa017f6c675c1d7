"""Start-up of an older release: modules that it lacks are not taken from this checkout."""

import sys

sys.meta_path[:] = [
    finder
    for finder in sys.meta_path
    if not getattr(finder, "__module__", "").startswith("__editable__")
]
