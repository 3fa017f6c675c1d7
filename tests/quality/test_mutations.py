"""The lists of mutations fit the code."""

from functools import cache

from example_project.state import BASE_DIR
from tests import mutations
from tests.mutations import Mutation


def test_every_mutation_can_be_applied_and_its_test_exists() -> None:
    every = [mutation for path in mutations.lists() for mutation in mutations.read_list(path)]
    assert len(every) > 100
    unfit = [mutation.text for mutation in every if not (fits(mutation) and has_test(mutation))]
    assert unfit == []


def fits(mutation: Mutation) -> bool:
    return not mutation.old or read_file(mutation.file).count(mutation.old) == 1


def has_test(mutation: Mutation) -> bool:
    path, _colons, name = mutation.test.partition("::")
    function = name.partition("[")[0].rpartition("::")[2]
    return not name or f"def {function}(" in read_file(path)


@cache
def read_file(path: str) -> str:
    return (BASE_DIR / path).read_text("utf-8")
