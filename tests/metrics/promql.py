"""Series that a PromQL expression reads, and labels of its results."""

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
"""Labels that Prometheus adds to everything it scrapes."""
Labels = Mapping[str, frozenset[str]]
"""Labels of each series, by its name."""


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
    return [part for part in every(expr) if isinstance(part, VectorSelector)]


def labels_of(expr: Any, exported: Labels) -> frozenset[str]:
    """Return the labels of an expression's results. Fail if it uses a label that is missing."""
    match expr:
        case VectorSelector():
            return exported[str(expr.name)] | OF_TARGETS
        case AggregateExpr():
            asked = frozenset(expr.modifier.labels if expr.modifier else ())
            missing = asked - labels_of(expr.expr, exported)
            assert not missing, f"{expr} has no {sorted(missing)}"
            return asked
        case BinaryExpr():
            sides = [side for side in (expr.lhs, expr.rhs) if not isinstance(side, NumberLiteral)]
            first, *second = [labels_of(side, exported) for side in sides]
            modifier = expr.modifier
            matched = modifier.matching.labels if modifier and modifier.matching and second else []
            assert set(matched) <= first.intersection(*second), f"{expr}"
            return first
        case Call() if expr.func.name == "histogram_quantile":
            return labels_of(expr.args[1], exported) - {"le"}
    labels = [labels_of(child, exported) for child in children(expr)]
    return frozenset().union(*labels)
