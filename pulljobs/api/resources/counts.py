from typing import Any, Final

CAP: Final = 10_000


def count(found: int, key: str = "Count") -> dict[str, Any]:
    """A count that nobody went on with above the cap."""
    return {key: CAP, "Capped": True} if found > CAP else {key: found}


def words(found: int) -> str:
    return f"more than {CAP}" if found > CAP else str(found)
