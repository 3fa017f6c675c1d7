"""No statement that reads the lag of the lake scans a table that grows."""

from typing import Any, Final

import pytest

from tests.sessions import Session
from tests.storage.planning import plan
from tests.storage.test_plans import FILL_ARCHIVE, filled, planner

__all__ = ["filled", "planner"]
pytestmark = [pytest.mark.django_db, pytest.mark.owner]
FILLS: Final = (FILL_ARCHIVE,)
"""Fillings of the only table that the statements read: to fill all tables takes far longer."""
PARAMS: Final[dict[str, dict[str, Any]]] = {
    "lake_lag": {"high_xid": 5},
    "lake_known": {"high_xid": 10**12, "high_id": 2**62},
}


@pytest.mark.parametrize("name", PARAMS)
def test_no_table_is_scanned(planner: Session, name: str) -> None:
    nodes = plan(planner, name, PARAMS)
    assert [node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"] == []
