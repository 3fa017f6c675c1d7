"""The lists of mutations still fit the code, and the tables beside them are theirs."""

import pytest

from example_project.state import BASE_DIR
from tests import mutations
from tests.mutations import Mutation

EVERY = [one for path in mutations.lists() for one in mutations.read(path)]


@pytest.mark.parametrize("one", EVERY, ids=lambda one: f"{one.case} {one.test}")
def test_mutation_can_be_applied_and_its_test_exists(one: Mutation) -> None:
    if one.old:
        assert (BASE_DIR / one.file).read_text("utf-8").count(one.old) == 1
    path, _colons, name = one.test.partition("::")
    assert (
        not name
        or f"def {name.partition('[')[0].rpartition('::')[2]}(" in (BASE_DIR / path).read_text()
    )


def test_tables_are_those_of_the_lists() -> None:
    """Run `python -m tests.mutations --tables` where this fails."""
    for path in mutations.lists():
        assert path.with_name("MUTATIONS.md").read_text("utf-8") == mutations.table(path)
