"""Log lines of the client. They have no payload or token, unless the text of an error does."""

import logging
from collections.abc import Mapping

logger = logging.getLogger("pulljobs.client")


def describe(error: BaseException) -> str:
    """Return the class and the text of an error, or only the class if its text can't be made."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except BaseException:
        return name


def lost_broker(base_url: str, trouble: Exception) -> None:
    logger.warning("Lost %s: %s", base_url, trouble)


def still_away(base_url: str, trouble: Exception) -> None:
    logger.warning("%s is away: %s", base_url, trouble)


def without_limits(base_url: str) -> None:
    logger.info("%s does not publish its limits: the defaults apply.", base_url)


def not_pullable(base_url: str) -> None:
    logger.info("%s gives no jobs to this consumer: held jobs are settled.", base_url)


def pulling_from(base_url: str) -> None:
    logger.info("Pulling from %s.", base_url)


def forgotten(base_url: str) -> None:
    logger.info("%s is forgotten, because no lookup has brought it back.", base_url)


def lookup_failed(url: str, trouble: Exception) -> None:
    logger.warning("Lookup at %s failed: %s", url, trouble)


def address_left_out(url: str, trouble: Exception) -> None:
    logger.warning("%s returned an address that is not used: %s", url, trouble)


def not_by_tls(url: str, address: str) -> None:
    logger.warning(
        "%s returned %r, which is not used: tokens would go there in clear. Set "
        "PULLJOBS['ADDRESS'] of the broker to its https URL, or SECURE_PROXY_SSL_HEADER.",
        url,
        address,
    )


def failed(job: str, trouble: str) -> None:
    logger.warning("Job %s failed: %s", job, trouble)


def cut_off(job: str) -> None:
    logger.warning(
        "The lease of job %s ended while its handler was running: the handler is cancelled. Use "
        "auto_renew, or a longer lease, if handlers take that long.",
        job,
    )


def not_ended(handlers: int) -> None:
    logger.warning(
        "%d handlers did not end in the graceful time: their jobs are released, and their results "
        "are discarded.",
        handlers,
    )


def not_killed(process: int) -> None:
    logger.error("The command with pid %d did not end when it was killed.", process)


def thread_interrupted(trouble: str) -> None:
    logger.error("A thread of handlers was interrupted (%s) and goes on.", trouble)


def giving_up_failed(job: str, trouble: str) -> None:
    logger.error("on_giving_up failed for job %s: %s", job, trouble)


def stop_failed(trouble: str) -> None:
    logger.error("on_stop failed: %s", trouble)


def leases_lost(jobs: int) -> None:
    logger.warning("Lost the leases of jobs, whose outcomes had no effect: %d.", jobs)


def delay_failed(job: str, trouble: str) -> None:
    logger.error("requeue_delay failed for job %s: %s", job, trouble)


def strategy_failed(name: str, trouble: str) -> None:
    logger.error("%s failed: %s", name, trouble)


def refused(job: str, why: object = "it cannot be written") -> None:
    logger.error("The broker refuses the outcome of job %s: %s", job, why)


def circuit(state: str, level: int, seconds: float) -> None:
    if seconds > 0:
        logger.warning("Handlers fail: nothing is pulled for %.1f s (level %d).", seconds, level)
    else:
        logger.info("The circuit is %s: pulling again.", state)


def stopping(held: int) -> None:
    logger.info("Stopping with %d jobs held.", held)


def left_behind(jobs: int) -> None:
    logger.error("%d jobs could not be settled in time: they return when their lease ends.", jobs)


def not_given_back(trouble: object) -> None:
    logger.error(
        "The jobs of an interrupted fetch cannot be released and return when their lease ends: %s",
        trouble,
    )


def stopped(counts: Mapping[str, int]) -> None:
    every = [f"{count} {name}" for name, count in counts.items()] or ["nothing received"]
    logger.info("Stopped: %s.", ", ".join(every))
