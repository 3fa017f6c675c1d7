"""Built by `tox -e docs`, and by a test: `python -m sphinx -W -b html docs docs/_build/html`."""

import tomllib
from pathlib import Path

project = "pulljobs"
author = "the pulljobs authors"
with Path(__file__).parent.with_name("pyproject.toml").open("rb") as file:
    release = tomllib.load(file)["project"]["version"]

extensions = ["myst_parser"]
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = "pulljobs"
html_static_path = ["_static"]
html_logo = html_favicon = "_static/logo.svg"
html_css_files = ["wide.css"]
html_theme_options = {"top_of_page_buttons": [], "navigation_with_keys": True}
html_copy_source = False
html_show_sphinx = False
