"""Days that pass when the benchmark says so, for all sessions of its database at once.

Our statements name their clocks without a schema. Functions of the same names, in a schema that is
searched before PostgreSQL's own, add the days that have passed: partitions, retention, leases and
delays all go by them, and within a day they run as fast as the server's.
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
"""A default means the function that had the name when it was written: it is written again."""


def make() -> None:
    """Sessions that were open before do not have it."""
    defaults = [str(text) for (text,) in query(DEFAULTS)]
    query("CREATE SCHEMA motion")
    # No table: a sequence is read as it is, whatever the snapshot, and at the cost of a function.
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
    """Nothing may be in flight: its lease would be over."""
    query("SELECT setval('motion.days', pg_sequence_last_value('motion.days') + 1)")
