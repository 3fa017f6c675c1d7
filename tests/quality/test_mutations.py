"""The lists of mutations fit the code."""

import pytest

from example_project.state import BASE_DIR
from tests import mutations
from tests.mutations import Mutation

EVERY = [mutation for path in mutations.lists() for mutation in mutations.read_list(path)]


@pytest.mark.parametrize("mutation", EVERY, ids=lambda mutation: f"{mutation.case} {mutation.test}")
def test_mutation_can_be_applied_and_its_test_exists(mutation: Mutation) -> None:
    if mutation.old:
        assert (BASE_DIR / mutation.file).read_text("utf-8").count(mutation.old) == 1
    path, _colons, name = mutation.test.partition("::")
    assert (
        not name
        or f"def {name.partition('[')[0].rpartition('::')[2]}(" in (BASE_DIR / path).read_text()
    )
