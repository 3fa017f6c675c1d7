"""Emptying of tables after a test that committed, at a hundredth of the cost of Django's `flush`.

`flush` truncates every table, used or not, and writes all content types and permissions again.
"""

from typing import Any, Final

import psycopg
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.second import as_owner

# The lock is that of TRUNCATE, so that it waits for what other sessions still write. Large tables
# are truncated, or the next test would read past their dead rows; they come first, before triggers
# of deleted rows fire.
EMPTY: Final = """
DO $$
DECLARE
    written record;
BEGIN
    FOR written IN
        SELECT oid::regclass AS name, pg_relation_size(oid) > 65536 AS large
        FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0
            AND relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission')
        ORDER BY large DESC
    LOOP
        IF written.large THEN
            EXECUTE 'TRUNCATE ' || written.name || ' CASCADE';
        ELSE
            EXECUTE 'LOCK TABLE ' || written.name;
            EXECUTE 'DELETE FROM ' || written.name;
        END IF;
    END LOOP;
END $$
"""


ATTEMPTS: Final = 5
"""Tries in all, after deadlocks with a thread or process of the test that still reads."""


def empty_tables(*_case: Any) -> None:
    for connection in connections.all():
        if connection.settings_dict["TEST"]["MIRROR"]:
            continue  # the same tables again
        for attempt in range(1, ATTEMPTS + 1):
            try:
                _empty(connection)
                break
            except OperationalError as error:
                is_deadlock = isinstance(error.__cause__, psycopg.errors.DeadlockDetected)
                if attempt == ATTEMPTS or not is_deadlock:
                    raise


def _empty(connection: BaseDatabaseWrapper) -> None:
    with as_owner(connection), connection.cursor() as cursor:
        cursor.execute(EMPTY)
