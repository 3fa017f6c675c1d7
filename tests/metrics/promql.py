"""What an expression reads, and which labels its results have."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

OF_TARGETS: Final = frozenset({"job", "instance"})
"""What Prometheus adds to all it scrapes."""
Labels = Mapping[str, frozenset[str]]
"""By the names of series."""


def children(expr: Any) -> list[Any]:
    match expr:
        case BinaryExpr():
            return [expr.lhs, expr.rhs]
        case Call():
            return list(expr.args)
        case MatrixSelector():
            return [expr.vector_selector]
        case AggregateExpr():
            return [expr.expr, *([expr.param] if expr.param else [])]
        case ParenExpr() | SubqueryExpr() | UnaryExpr():
            return [expr.expr]
    return []


def every(expr: Any) -> Iterator[Any]:
    yield expr
    for child in children(expr):
        yield from every(child)


def selectors(expr: Any) -> list[VectorSelector]:
    return [one for one in every(expr) if isinstance(one, VectorSelector)]


def labels_of(expr: Any, exported: Labels) -> frozenset[str]:
    """Of the results; AssertionError where an aggregation asks for what is not there."""
    match expr:
        case VectorSelector():
            return exported[str(expr.name)] | OF_TARGETS
        case AggregateExpr():
            asked = frozenset(expr.modifier.labels if expr.modifier else ())
            missing = asked - labels_of(expr.expr, exported)
            assert not missing, f"{expr} has no {sorted(missing)}"
            return asked
        case BinaryExpr():
            sides = [one for one in (expr.lhs, expr.rhs) if not isinstance(one, NumberLiteral)]
            first, *second = [labels_of(one, exported) for one in sides]
            modifier = expr.modifier
            matched = modifier.matching.labels if modifier and modifier.matching and second else []
            assert set(matched) <= first.intersection(*second), f"{expr}"
            return first
        case Call() if expr.func.name == "histogram_quantile":
            return labels_of(expr.args[1], exported) - {"le"}
    found = [labels_of(child, exported) for child in children(expr)]
    return frozenset().union(*found)
