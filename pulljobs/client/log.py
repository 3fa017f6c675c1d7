"""What the client logs, worded here and nowhere else; never a payload or a token."""

import logging
from collections.abc import Mapping

logger = logging.getLogger("pulljobs.client")


def lost_broker(base_url: str, trouble: Exception) -> None:
    logger.warning("Lost %s: %s", base_url, trouble)


def still_away(base_url: str, trouble: Exception) -> None:
    logger.warning("%s is away: %s", base_url, trouble)


def without_limits(base_url: str) -> None:
    logger.info("%s does not tell its limits: the usual ones are taken.", base_url)


def not_pullable(base_url: str) -> None:
    logger.info("%s gives no jobs to this consumer: what it holds is ended.", base_url)


def found(base_url: str) -> None:
    logger.info("Pulling from %s.", base_url)


def lookup_failed(url: str, trouble: Exception) -> None:
    logger.warning("Nothing was looked up at %s: %s", url, trouble)


def address_left_out(url: str, trouble: Exception) -> None:
    logger.warning("An address that %s tells is left out: %s", url, trouble)


def not_by_tls(url: str, address: str) -> None:
    logger.warning(
        "%s tells %r, which is left out: tokens would go there in clear. Set PULLJOBS['ADDRESS'] "
        "of the broker to its https URL, or SECURE_PROXY_SSL_HEADER.",
        url,
        address,
    )


def failed(job: str, error: BaseException) -> None:
    logger.warning("Job %s failed: %s: %s", job, type(error).__name__, error)


def giving_up_failed(job: str, error: BaseException) -> None:
    logger.error("on_giving_up failed for job %s: %s: %s", job, type(error).__name__, error)


def stop_failed(error: BaseException) -> None:
    logger.error("on_stop failed: %s: %s", type(error).__name__, error)


def leases_lost(jobs: int) -> None:
    logger.warning("Lost the lease of %d jobs; what was said of them had no effect.", jobs)


def delay_failed(job: str, error: BaseException) -> None:
    logger.error("requeue_delay failed for job %s: %s: %s", job, type(error).__name__, error)


def strategy_failed(name: str, error: BaseException) -> None:
    logger.error("%s failed: %s: %s", name, type(error).__name__, error)


def refused(job: str, why: object = "it can't be written") -> None:
    logger.error("The broker refuses the outcome of job %s: %s", job, why)


def circuit(state: str, level: int, seconds: float) -> None:
    if seconds > 0:
        logger.warning("Handlers fail: nothing is pulled for %.1f s (level %d).", seconds, level)
    else:
        logger.info("The circuit is %s: pulling again.", state)


def stopping(held: int) -> None:
    logger.info("Stopping with %d jobs held.", held)


def left_behind(jobs: int) -> None:
    logger.error(
        "%d jobs could not be ended in time: they come back when their lease is over.", jobs
    )


def stopped(counts: Mapping[str, int]) -> None:
    logger.info("Stopped: %s.", ", ".join(f"{count} {word}" for word, count in counts.items()))
