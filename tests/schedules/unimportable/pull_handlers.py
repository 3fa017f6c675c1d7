"""Handlers of an app whose import fails."""

raise RuntimeError("A setting of the handlers is missing.")
