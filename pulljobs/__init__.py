"""Run jobs out of the database a Django project already has."""

__version__ = "0.1.0"
