"""Migrations only add: processes of the previous release continue and wait for nothing."""

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

RELEASED = 1
"""Number of the newest migration in older.tar.xz, which later ones may only add to."""
LABEL = "pulljobs"
ADDING = (operations.CreateModel, operations.AlterModelOptions, AddIndexConcurrently)
QUIET = re.compile(
    r"ALTER TABLE \w+ SET \([\w =,]+\)|(CREATE|DROP) INDEX CONCURRENTLY (IF EXISTS )?\w+[\w (,)]*"
)
"""Statements that block neither readers nor writers and leave stored rows unchanged."""


def test_migrations_only_add() -> None:
    loader = MigrationLoader(None)
    names = sorted(name for label, name in loader.disk_migrations if label == LABEL)
    state, refused = ProjectState(), {}
    for name in names:
        migration = loader.disk_migrations[LABEL, name]
        number = int(name.partition("_")[0])
        if number > RELEASED:
            refused[name] = list(refusals(migration, state))
        state = migration.mutate_state(state)
    assert not {name: reasons for name, reasons in refused.items() if reasons}


def refusals(migration: Migration, state: ProjectState) -> Iterator[str]:
    """Yield descriptions of operations that would break or block a process of the older release."""
    made = {
        operation.name_lower
        for operation in migration.operations
        if isinstance(operation, operations.CreateModel)
    }
    before = state.clone()
    for operation in migration.operations:
        after = before.clone()
        operation.state_forwards(LABEL, after)
        is_new = getattr(operation, "model_name_lower", "") in made
        if not is_new and not _only_adds(operation, before, after):
            yield operation.describe()
        before = after


def _only_adds(operation: Operation, before: ProjectState, after: ProjectState) -> bool:
    if isinstance(operation, operations.SeparateDatabaseAndState):
        done = operation.database_operations
        return all(_only_adds(step, before, after) for step in done)
    if isinstance(operation, operations.AddField):
        return _may_be_left_out(operation.field) and not _indexes(operation.field)
    if isinstance(operation, operations.AlterField):
        place = operation.model_name_lower, operation.name
        old, new = _field(before, *place), _field(after, *place)
        return _is_wider(old, new) and _indexes(old) == _indexes(new)
    if isinstance(operation, operations.RunSQL):
        statements = [operation.sql] if isinstance(operation.sql, str) else operation.sql
        return all(QUIET.fullmatch(str(statement)) for statement in statements)
    return isinstance(operation, ADDING)


def _field(state: ProjectState, model: str, name: str) -> Any:
    return state.apps.get_model(LABEL, model)._meta.get_field(name)


def _may_be_left_out(field: Any) -> bool:
    return field.null or field.has_db_default() or not field.db_type(connections[USING])


def _indexes(field: Any) -> set[str]:
    """Return the options of a field that make an index, whose creation or removal locks."""
    return {name for name in ("db_index", "unique") if getattr(field, name)}


def _is_wider(old: Any, new: Any) -> bool:
    """Return True if the new field accepts every value of the old one, including NULL."""
    types = [field.db_type(connections[USING]).partition("(")[0] for field in (old, new)]
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
        operations.AlterField(
            "job", "retry_count", models.IntegerField(db_default=0, db_index=True)
        ),
        operations.AlterField("job", "deliveries", models.IntegerField(unique=True)),
        operations.AddField("job", "colour", models.CharField(null=True, unique=True)),
        operations.AddIndex("job", models.Index(fields=["reason"], name="slow")),
        operations.RunSQL("DROP TABLE pulljobs_job"),
        operations.SeparateDatabaseAndState([operations.DeleteModel("lease")]),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_a_migration_that_takes_something_away_is_refused(operation: Operation) -> None:
    loader = MigrationLoader(None)
    sample = type("Sample", (Migration,), {"operations": [operation]})
    migration = sample("0999_sample", LABEL)
    assert list(refusals(migration, loader.project_state()))
