"""Clock of a database whose days pass when the benchmark lets them, for all sessions at once.

Our statements name their clock functions without a schema. Functions with these names, in a schema
that is searched before pg_catalog, add the days that have passed. Partitions, retention, leases and
delays all follow them. Within a day they run as fast as the server's clock.
"""

from typing import Final

from django.db import connection

from benchmarks.database import query

VOLATILITY: Final = {
    "clock_timestamp": "VOLATILE",
    "statement_timestamp": "STABLE",
    "transaction_timestamp": "STABLE",
    "now": "STABLE",
}
CLOCK: Final = """
CREATE FUNCTION motion.{name}() RETURNS timestamptz LANGUAGE sql {volatility}
RETURN pg_catalog.{name}() + pg_sequence_last_value('motion.days') * interval '24 hours'
"""
DEFAULTS: Final = """
SELECT format('ALTER TABLE %s ALTER %I SET DEFAULT %s', adrelid::regclass, attname, expression)
FROM pg_attrdef
JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
JOIN pg_class AS c ON c.oid = adrelid
CROSS JOIN LATERAL pg_get_expr(adbin, adrelid) AS expression
WHERE expression LIKE '%clock_timestamp()%' AND NOT relispartition
"""
"""Query for statements that set defaults again: a default keeps the function of its creation."""


def create_clock() -> None:
    """Create the clock. Sessions that are open already do not use it."""
    defaults = [str(text) for (text,) in query(DEFAULTS)]
    query("CREATE SCHEMA motion")
    # A sequence in place of a table: it is read outside of the snapshot, at the cost of a function.
    query("CREATE SEQUENCE motion.days MINVALUE 0")
    query("SELECT setval('motion.days', 0)")
    for name, volatility in VOLATILITY.items():
        query(CLOCK.format(name=name, volatility=volatility))
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    query(f"ALTER DATABASE {database} SET search_path = motion, pg_catalog, public")
    connection.close()
    for text in defaults:
        query(text)


def pass_a_day() -> None:
    """Let a day pass. No job may be in flight, because its lease would expire."""
    query("SELECT setval('motion.days', pg_sequence_last_value('motion.days') + 1)")
