"""Statements of the lake; `engine.sql` finds them once this package is imported."""

from pulljobs.engine.sql import add_package

add_package(__name__)
