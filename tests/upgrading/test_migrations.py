"""A migration only adds: whoever runs the release before it goes on, and waits for nothing."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import connections, models
from django.db.migrations import Migration, operations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from tests.factories import USING

OLDER = 2
"""What the release in older.tar.xz has."""
FIRST_RELEASE = 12
"""Before it there were no tables that anybody filled, which an index would have to lock."""
LABEL = "pulljobs"
ADDING = (operations.CreateModel, operations.AlterModelOptions, AddIndexConcurrently)
LOCKING = (
    operations.AddIndex,
    operations.RemoveIndex,
    operations.AddConstraint,
    operations.RemoveConstraint,
)
"""Who writes to the table waits for these. No statement asks for one by its name."""
STORAGE = re.compile(r"ALTER TABLE \w+ SET \([\w =,]+\)")
"""Nobody who reads or writes waits for it, and only what is written later is stored otherwise."""


def test_migrations_only_add() -> None:
    loader = MigrationLoader(None)
    names = sorted(name for label, name in loader.disk_migrations if label == LABEL)
    state, refused = ProjectState(), {}
    for name in names:
        migration = loader.disk_migrations[LABEL, name]
        number = int(name.partition("_")[0])
        if number > OLDER:
            refused[name] = list(refusals(migration, state, is_released=number > FIRST_RELEASE))
        state = migration.mutate_state(state)
    assert not {name: said for name, said in refused.items() if said}


def refusals(migration: Migration, state: ProjectState, *, is_released: bool) -> Iterator[str]:
    """What an older process, or one that writes meanwhile, would run into."""
    made = {
        one.name_lower for one in migration.operations if isinstance(one, operations.CreateModel)
    }
    before = state.clone()
    for operation in migration.operations:
        after = before.clone()
        operation.state_forwards(LABEL, after)
        is_new = getattr(operation, "model_name_lower", "") in made
        if not is_new and not _only_adds(operation, before, after, is_released):
            yield operation.describe()
        before = after


def _only_adds(
    operation: Operation, before: ProjectState, after: ProjectState, is_released: bool
) -> bool:
    if isinstance(operation, operations.AddField):
        field = operation.field
        return field.null or field.has_db_default() or not field.db_type(connections[USING])
    if isinstance(operation, operations.AlterField):
        place = operation.model_name_lower, operation.name
        return _is_wider(_field(before, *place), _field(after, *place))
    if isinstance(operation, LOCKING):
        return not is_released
    if isinstance(operation, operations.RunSQL):
        return STORAGE.fullmatch(str(operation.sql)) is not None
    return isinstance(operation, ADDING)


def _field(state: ProjectState, model: str, name: str) -> Any:
    return state.apps.get_model(LABEL, model)._meta.get_field(name)


def _is_wider(old: Any, new: Any) -> bool:
    """It holds whatever the old one held, and lets left out what that let."""
    types = [one.db_type(connections[USING]).partition("(")[0] for one in (old, new)]
    longer = (new.max_length or 0) >= (old.max_length or 0)
    return types[0] == types[1] and longer and new.null >= old.null


@pytest.mark.parametrize(
    "operation",
    [
        operations.RemoveField("job", "suspect"),
        operations.RenameField("job", "suspect", "doubted"),
        operations.DeleteModel("lease"),
        operations.AddField("job", "colour", models.CharField(max_length=9, default="red")),
        operations.AlterField("channel", "name", models.CharField(max_length=20)),
        operations.AddIndex("job", models.Index(fields=["reason"], name="slow")),
        operations.RunSQL("DROP TABLE pulljobs_job"),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_a_migration_that_takes_something_away_is_refused(operation: Operation) -> None:
    loader = MigrationLoader(None)
    sample = type("Sample", (Migration,), {"operations": [operation]})
    migration = sample("0999_sample", LABEL)
    assert list(refusals(migration, loader.project_state(), is_released=True))
