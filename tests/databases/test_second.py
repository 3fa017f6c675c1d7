"""Tests pass with the tables of pulljobs in a second database, as a role that does not own them.

Here run a third of the tests of some folders, and all that need two databases.
`PULLJOBS_TEST_SECOND=1 python -m pytest` runs all tests that way.
"""

import os
import re

import pytest

from tests import second
from tests.compat.servers import WHOLE, suite

SOME = (
    "tests/databases/test_effects.py",
    "tests/databases/test_place.py",
    "tests/publishing/test_publish.py",
    "tests/publishing/test_wake.py",
    "tests/storage/test_matrix.py",
    "tests/storage/test_claim.py",
    "tests/testing",
    "tests/docs/test_guides.py",
    "tests/api/test_messages.py",
    "tests/admin/test_operations.py",
    "tests/auditing/test_acts.py",
    "tests/worker/test_settling.py",
)
EVERY = 1 if WHOLE else 3


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(second.IS_ON, reason="PULLJOBS_TEST_SECOND=1 runs all tests that way")
def test_the_tests_pass_in_a_second_database_as_a_role_with_least_privilege() -> None:
    output = suite(
        *SOME,
        PULLJOBS_TEST_SECOND="1",
        PULLJOBS_TEST_EVERY=str(EVERY),
        TEST_DATABASE=f"test_second_{os.getpid()}",
    )
    passed = re.search(r"(\d+) passed", output)
    assert passed, output
    assert int(passed[1]) > 200 // EVERY, output
