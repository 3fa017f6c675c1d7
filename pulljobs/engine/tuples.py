"""Named tuples that are made once a job."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

T = TypeVar("T", bound=tuple[Any, ...])


def maker(kind: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """As its `_make`, which takes every field, in half the time."""
    return cast("Callable[[tuple[Any, ...]], T]", partial(tuple.__new__, kind))
