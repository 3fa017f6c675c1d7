"""Statements of batches and workflows, which `engine.sql` finds once this package is imported."""

from pulljobs.engine.sql import add_package

add_package(__name__)
