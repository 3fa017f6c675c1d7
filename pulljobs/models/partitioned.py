"""Migration operation that creates a table partitioned by its id."""

from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import CreateModel
from django.db.migrations.state import ProjectState


class CreatePartitionedModel(CreateModel):
    """CreateModel with PARTITION BY RANGE (id) and a default partition.

    Rows for which no partition exists yet get into the default partition, so that no insert fails.
    """

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        editor: Any = schema_editor
        plain = editor.sql_create_table
        editor.sql_create_table = f"{plain} PARTITION BY RANGE (id)"
        try:
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        finally:
            editor.sql_create_table = plain
        model = to_state.apps.get_model(app_label, self.name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            table = model._meta.db_table
            editor.execute(f"CREATE TABLE {table}_default PARTITION OF {table} DEFAULT")
