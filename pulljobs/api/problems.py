"""Refusals of part B alone, beside those of both parts in `exceptions`."""

from typing import Final

from pulljobs.api.exceptions import SOON, Refusal

A_WHILE: Final = 5
"""Seconds after which a pull that would wait in vain may come again."""


def bad_body(problem: str) -> Refusal:
    return Refusal(400, f"{problem}: nothing was changed.", "bad_body")


def body_too_large(limit: int) -> Refusal:
    return Refusal(413, f"The body is above {limit} bytes: send less at a time.", "body_too_large")


def not_json() -> Refusal:
    return Refusal(415, "Send JSON: Content-Type application/json.")


def above_limit(field: str, limit: float) -> Refusal:
    return Refusal(409, f"{field} is above {limit:g}: ask for less.", f"exceeded_max_{field}")


def not_allowed(method: str) -> Refusal:
    sentence = f"{method} is not for this path: the Allow header names what is."
    return Refusal(405, sentence, "method_not_allowed")


def too_many_waiting(limit: int) -> Refusal:
    return Refusal(
        429,
        f"{limit} pulls wait for this consumer already: come again later.",
        "max_waiting",
        retry_after=A_WHILE,
    )


def too_many_threads(limit: int) -> Refusal:
    return Refusal(
        429,
        f"{limit} pulls hold a thread of this server already: pull with NoWait, or serve by ASGI.",
        "max_lingering_threads",
        retry_after=SOON,
    )


def consumer_deleted() -> Refusal:
    return Refusal(410, "The consumer was deleted: stop pulling.", "consumer_deleted")


def not_ready(trouble: str) -> Refusal:
    return Refusal(503, f"{trouble}.", "not_ready", retry_after=SOON)


def too_many_lines(limit: int) -> Refusal:
    return Refusal(413, f"There are more than {limit} messages: send less at a time.", "max_batch")
