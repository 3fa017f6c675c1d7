"""Generators of the parts of the docs that repeat the code.

A page names a part by a fenced block, whose text is shown where the page is read unbuilt:

    ```{generated} settings
    One row for each field of `pulljobs.conf.Settings`.
    ```

docs/conf.py has Sphinx replace the block while it reads the page, so that no copy is committed.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from generators import code, commands, http, modules, reference, statements
from pulljobs import errors
from pulljobs.client import errors as client_errors
from pulljobs.metrics.families import families_counted, families_read

BLOCK: Final = re.compile(r"^```\{generated\} (\w+)\n.*?^```$", re.DOTALL | re.MULTILINE)

PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "alerts": reference.render_alerts,
    "client_errors": partial(code.render_errors, client_errors),
    "commands": commands.render_commands,
    "errors": partial(code.render_errors, errors),
    "error_tree": code.render_error_tree,
    "events": code.render_events,
    "http": http.render_api,
    "invariants": reference.render_invariants,
    "metrics_counted": lambda: reference.render_metrics(families_counted()),
    "metrics_read": lambda: reference.render_metrics(families_read()),
    "modules": modules.render_modules,
    "settings": reference.render_settings,
    "statements": statements.render_statements,
    "states": reference.render_states,
    **{
        f"python_{name}": partial(code.render_module, module, names)
        for name, (module, names) in code.PUBLIC_API.items()
    },
}


def fill_page(text: str) -> str:
    """Replace each `{generated}` block of a page by the part that it names."""
    return BLOCK.sub(lambda block: PARTS[block[1]]().strip("\n"), text)
