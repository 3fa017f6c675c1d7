"""Entry points of `manage.py pulljobs` and `manage.py runpullworker`."""
