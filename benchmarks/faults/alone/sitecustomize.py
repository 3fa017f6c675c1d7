"""On the path of an older release: what it lacks is not there, though ours is editable."""

import sys

sys.meta_path[:] = [
    one for one in sys.meta_path if not getattr(one, "__module__", "").startswith("__editable__")
]
