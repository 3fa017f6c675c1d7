"""Who watches this process: the recorders that settings ask for."""

from pulljobs import metrics
from pulljobs.conf import settings
from pulljobs.engine import tracing
from pulljobs.errors import ConfigurationError


def begin() -> None:
    """At the start of every process. What is wrong with the settings, the checks tell."""
    try:
        wanted = settings()
    except ConfigurationError:
        return
    if wanted.METRICS and metrics.is_installed():
        from pulljobs.metrics import exposition

        exposition.start()
    tracing.switch(wanted.TRACING and tracing.is_installed())
