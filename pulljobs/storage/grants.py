"""Privileges of database roles that do not own the tables, and the SQL that grants them.

Partitions of days need no grants of their own: they are read and written through their parents.
Grants on partitions, as by `GRANT ... ON ALL TABLES`, are revoked: they would reach around the
parents'.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, LiteralString

from django.db import connections
from psycopg import sql

from pulljobs import hooks
from pulljobs.errors import ConfigurationError
from pulljobs.storage.partitions import PARTITIONED
from pulljobs.storage.schema import explain_missing
from pulljobs.storage.statements import query

Privileges = LiteralString
READ: Final = "SELECT"
ADD: Final = "SELECT, INSERT"
AMEND: Final = "SELECT, INSERT, UPDATE"
ALL: Final = "SELECT, INSERT, UPDATE, DELETE"
IDS: Final = "pulljobs_id"


class Profile(StrEnum):
    """Purpose of a database role: to run pulljobs, only to publish, or only to read."""

    APP = "app"
    PUBLISH = "publish"
    READ = "read"


MEANING: Final = {
    Profile.APP: "workers, the HTTP API, the admin, publishing, and every command but the owner's",
    Profile.PUBLISH: "publish(), and nothing else: no payload is read, no job taken or ended",
    Profile.READ: "doctor, explain, verify, metrics and the pages, without changing anything",
}
_APP: Final[Mapping[str, Privileges]] = {
    "pulljobs_channel": ALL,
    "pulljobs_producer": ALL,
    "pulljobs_consumer": ALL,
    "pulljobs_message": ADD,
    "pulljobs_publication": ALL,
    "pulljobs_scheduled_message": ALL,
    "pulljobs_job": ALL,
    "pulljobs_lease": ALL,
    "pulljobs_attempt": "SELECT, INSERT, DELETE",
    "pulljobs_archived_job": ADD,
    "pulljobs_exclusive_key": ALL,
    "pulljobs_bounded_key": ALL,
    "pulljobs_flow_bucket": ALL,
    "pulljobs_batch_sum": ALL,
    "pulljobs_limit_group": ALL,
    "pulljobs_progress": ALL,
    "pulljobs_flow_key": ALL,
    "pulljobs_node": ALL,
    "pulljobs_pull_waiter": ALL,
    "pulljobs_http_client": ALL,
    "pulljobs_audit_entry": AMEND,
    "pulljobs_audited_batch": ADD,
    "pulljobs_settlement_count": ALL,
    "pulljobs_count_progress": AMEND,
}
_READ: Final[Mapping[str, Privileges]] = {
    **dict.fromkeys([*_APP, "django_migrations"], READ),
    **{f"{table}_default": READ for table in PARTITIONED},
}
_PUBLISH: Final[Mapping[str, Privileges]] = {
    "pulljobs_channel": "SELECT (id, name, dedupe_window)",
    "pulljobs_consumer": (
        "SELECT (id, channel_id, name, deleted_at, exclusive_keys, takes_turns,"
        " max_queued_per_key, key_overflow, key_limit_counts)"
    ),
    "pulljobs_message": "SELECT (id, channel_id), INSERT",
    "pulljobs_publication": AMEND,
    "pulljobs_job": "SELECT (id, consumer_id, message_id, key, state, reason), INSERT",
    "pulljobs_bounded_key": AMEND,
    "pulljobs_pull_waiter": READ,
}
FIRST: Final[tuple[LiteralString, ...]] = (
    "BEGIN",
    "GRANT CONNECT ON DATABASE {database} TO {role}",
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "REVOKE CREATE ON SCHEMA {schema} FROM {role}",
    "REVOKE ALL ON {tables} FROM {role}",
    "REVOKE ALL ON SEQUENCE {ids} FROM {role}",
)
_NAMES: Final = """
SELECT current_database() AS database, nspname AS schema, c.relname AS name, c.relkind AS kind
FROM pg_class AS c
JOIN pg_namespace ON pg_namespace.oid = c.relnamespace
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('pulljobs_job'))
    AND (c.relname = ANY(%(names)s) OR EXISTS (
        SELECT FROM pg_inherits, pg_class AS parent, pg_roles, aclexplode(c.relacl)
        WHERE inhrelid = c.oid AND inhparent = parent.oid AND parent.relname = ANY(%(names)s)
            AND pg_roles.oid = grantee AND rolname = %(role)s
    ))
ORDER BY c.relname
"""
_LACKING: Final = """
SELECT tables.name, privilege
FROM unnest(%s::text[], %s::text[]) AS tables (name, privileges),
    unnest(string_to_array(privileges, ', ')) AS privilege
WHERE to_regclass(tables.name) IS NOT NULL
    AND NOT has_table_privilege(to_regclass(tables.name), privilege)
UNION ALL
SELECT relname, 'USAGE'
FROM pg_class
WHERE oid = to_regclass(%s) AND NOT has_sequence_privilege(oid, 'USAGE')
ORDER BY name, privilege
"""


def profiles() -> dict[str, str]:
    """Return the description of each profile by its name: the core's, then those of other apps."""
    known = {str(name): meaning for name, meaning in MEANING.items()}
    return known | {name: role.meaning for name, role in hooks.roles.items()}


def privileges(profile: str) -> dict[str, Privileges]:
    """Return the privileges of a profile by table, as in "SELECT, INSERT"."""
    others = {table for role in hooks.roles.values() for table in role.tables}
    read = {**_READ, **dict.fromkeys([*others, *hooks.app_tables], READ)}
    if profile == Profile.PUBLISH:
        return dict(_PUBLISH)
    if profile == Profile.READ:
        return read
    added = hooks.roles[profile].tables if profile in hooks.roles else {}
    return {**read, **_APP, **hooks.app_tables, **added}


def statements(using: str, role: str, profile: str) -> list[str]:
    """Return SQL statements that grant a role the privileges of a profile and revoke all others.

    Raise ConfigurationError if the tables do not exist.
    """
    rows = query(using, _NAMES, {"names": [*privileges(Profile.APP), IDS], "role": role})
    if not rows:
        problem = f"There are no tables of pulljobs in {using!r}"
        raise ConfigurationError(f"{explain_missing(using, problem)}.")
    schema = rows[0].schema
    there = {row.name for row in rows if row.kind != "S"}
    names = {
        "role": sql.Identifier(role),
        "database": sql.Identifier(rows[0].database),
        "schema": sql.Identifier(schema),
        "ids": sql.Identifier(schema, IDS),
        "tables": _listed(schema, there),
    }
    granted = {
        allowed: _listed(schema, there.intersection(tables))
        for allowed, tables in _alike(privileges(profile)).items()
    }
    connections[using].ensure_connection()
    raw = connections[using].connection
    return [part.as_string(raw) for part in _composed(profile, names, granted)]


def lacking(using: str) -> dict[str, list[str]]:
    """Return the privileges of `Profile.APP` that the role lacks, by table or sequence."""
    wanted = privileges(Profile.APP)
    missing: dict[str, list[str]] = defaultdict(list)
    for row in query(using, _LACKING, [list(wanted), list(wanted.values()), IDS]):
        missing[row.name].append(row.privilege)
    return missing


def _composed(
    profile: str,
    names: Mapping[str, sql.Composable],
    granted: Mapping[Privileges, sql.Composable],
) -> Iterator[sql.Composable]:
    """Yield the statements of a transaction that gives a role the privileges of a profile.

    Other privileges of the role are revoked first. `names` has the identifiers by placeholder, and
    `granted` the list of tables for each GRANT by its privileges.
    """
    for text in FIRST:
        yield sql.SQL(text).format(**names)
    for allowed, tables in granted.items():
        to = {**names, "privileges": sql.SQL(allowed), "tables": tables}
        yield sql.SQL("GRANT {privileges} ON {tables} TO {role}").format(**to)
    if profile != Profile.READ:
        yield sql.SQL("GRANT USAGE ON SEQUENCE {ids} TO {role}").format(**names)
    if profile in hooks.roles and hooks.roles[profile].creates_tables:
        yield sql.SQL("GRANT CREATE ON SCHEMA {schema} TO {role}").format(**names)
    yield sql.SQL("COMMIT")


def _alike(wanted: Mapping[str, Privileges]) -> dict[Privileges, list[str]]:
    """Return the tables by their privileges, so that one GRANT serves all tables with the same."""
    alike: dict[Privileges, list[str]] = defaultdict(list)
    for table, allowed in wanted.items():
        alike[allowed].append(table)
    return alike


def _listed(schema: str, tables: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(sql.Identifier(schema, table) for table in sorted(tables))
