"""Django app with the workflow that pulljobs is measured with."""
