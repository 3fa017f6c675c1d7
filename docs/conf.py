"""Configuration of Sphinx: `python -m sphinx -W -b html docs docs/_build/html`."""

import sys
import tomllib
from pathlib import Path

import django
from django.conf import settings
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.postgres",
        "pulljobs",
        "pulljobs.lake",
    ],
)
django.setup()

from generators import BLOCK, fill_page  # noqa: E402  # reads models and commands of the app

project = "pulljobs"
author = "the pulljobs authors"
release = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]["version"]

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


def setup(app: Sphinx) -> None:
    app.connect("env-get-outdated", find_generated_pages)
    app.connect("source-read", fill_source)


def find_generated_pages(app: Sphinx, env: BuildEnvironment, *changes: set[str]) -> list[str]:
    """List the pages with generated parts: the code may have changed although they have not."""
    return [page for page in env.found_docs if BLOCK.search(env.doc2path(page).read_text("utf-8"))]


def fill_source(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = fill_page(source[0])
