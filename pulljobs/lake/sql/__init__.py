"""Statements of the lake, which `engine.sql` knows by name once this package is imported."""

from pulljobs.engine.sql import add_package

add_package(__name__)
