"""Code of the guides, run: each block is the module that its first line names."""

import re
import sys
from types import ModuleType

from example_project.state import BASE_DIR

BLOCK = re.compile(r"^```python\n# (\S+)\.py\n(.*?)^```", re.MULTILINE | re.DOTALL)


def modules_of(guide: str) -> dict[str, ModuleType]:
    """Every block as an imported module, in order; undo with `forget`."""
    text = (BASE_DIR / "docs" / "guides" / guide).read_text()
    made = {}
    for path, code in BLOCK.findall(text):
        name = path.replace("/", ".")
        _make_packages(name)
        made[name] = sys.modules[name] = ModuleType(name)
        exec(compile(code, f"{guide}: {path}.py", "exec"), made[name].__dict__)
    assert text.count("```python\n") == len(made), "a block has no file name in its first line"
    return made


def forget(package: str) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]


def _make_packages(name: str) -> None:
    parent = name.rpartition(".")[0]
    if parent and parent not in sys.modules:
        _make_packages(parent)
        sys.modules[parent] = ModuleType(parent)
        sys.modules[parent].__path__ = []
