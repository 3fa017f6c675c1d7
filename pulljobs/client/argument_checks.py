"""Checks of the arguments of the client's classes, which raise ConfigurationError if they fail."""

import base64
import binascii

from pulljobs.engine.validation import encodable
from pulljobs.errors import ConfigurationError


def check_name(what: str, name: object) -> None:
    """Check that `name` may be the name of a channel, a consumer or a producer (`what`)."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"The name of the {what} must be text, not {name!r}.")
    if "/" in name or name in (".", "..") or not encodable(name):
        raise ConfigurationError(
            f"No {what} has the name {name!r}: a name has no slash, NUL or half surrogate pair, "
            "and is not '.' or '..'."
        )


def check_token(owner: str, token: object) -> None:
    """Check that a token can be sent as a header. That of httpx would quote it."""
    if not isinstance(token, str):
        raise ConfigurationError(
            f"The token of the {owner} must be text, not {type(token).__name__}: look whether the "
            "variable that it is read from is set."
        )
    if not (token.isascii() and token.isprintable() and token == token.strip()):
        raise ConfigurationError(
            f"The token of the {owner} is not printable ASCII without blanks around it: "
            "strip it, for example of a newline at its end."
        )


def check_secret(secret: object) -> None:
    """Check that the `gateway_secret` is text in base64. The error does not quote it."""
    try:
        is_secret = isinstance(secret, str) and bool(base64.b64decode(secret, validate=True))
    except (binascii.Error, ValueError):
        is_secret = False
    if not is_secret:
        raise ConfigurationError(
            "gateway_secret must be text in base64, as in GATEWAY_SECRETS of the server."
        )


def check_function(name: str, function: object) -> None:
    """Check that the argument of this name can be called."""
    if not callable(function):
        raise ConfigurationError(f"{name} must be a function, not {function!r}.")


def check_hooks(**hooks: object) -> None:
    """Check that each of these arguments is None or can be called."""
    for name, hook in hooks.items():
        if hook is not None:
            check_function(name, hook)


def check_counts(least: int, **counts: object) -> None:
    """Check that each of these arguments is a whole number of at least `least`."""
    for name, count in counts.items():
        if type(count) is not int or count < least:
            raise ConfigurationError(
                f"{name} must be a whole number from {least} on, not {count!r}."
            )


def check_seconds(name: str, seconds: object, *, may_be_zero: bool = True) -> None:
    """Check that an argument is a number of seconds, not negative, not NaN and no bool."""
    number = seconds if isinstance(seconds, int | float) and not isinstance(seconds, bool) else -1
    if not (number > 0 or (may_be_zero and number == 0)):
        least = "from 0 on" if may_be_zero else "above 0"
        raise ConfigurationError(f"{name} must be a number of seconds {least}, not {seconds!r}.")
