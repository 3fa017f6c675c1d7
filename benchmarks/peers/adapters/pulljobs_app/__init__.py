"""Django app with the handler that pulljobs is measured with."""
