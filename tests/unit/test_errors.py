"""Errors that pass between processes, as when a handler uses a process pool."""

import copy
import pickle
from datetime import timedelta

import pytest

from pulljobs import errors
from pulljobs.client.errors import Unreachable

RAISED = [
    errors.Retry(after=timedelta(seconds=5), reason="busy", backoff=False),
    errors.Snooze(timedelta(seconds=5), "later"),
    errors.Discard("unknown order"),
    errors.AlreadySettled(),
    errors.UnknownChannel("orders"),
    errors.DuplicateMessage("order-1", 5),
    errors.KeyFull("berlin", "invoicing", 5),
    errors.InvalidSchedule("cron", "There is no such day."),
    errors.WaitTimedOut("paid"),
    errors.ChildFailed("abc", None, "boom"),
    errors.LeaseLost(5),
    Unreachable("no answer", status=503),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickle_and_copy(error: errors.PulljobsError) -> None:
    for restored in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(restored) is type(error)
        assert (str(restored), restored.args) == (str(error), error.args)
        assert vars(restored) == vars(error)
