"""Conditions on document columns, such as year > 2015 and category in ("cs.LG", "stat.ML"), and values to group by.

Expressions have Python syntax and are parsed by Python, but never executed: only the forms below are supported, each
computed by pyarrow.

    values      a column, column("any name"), a number, a "text", year(x), quarter(x), month(x), decade(x), lower(x)
    conditions  ==, !=, <, <=, >, >=, also chained; x in (a, b, ...); "part" in text; x is None; and, or, not

A comparison with a missing value is neither true nor false, and its document is left out.
"""

from __future__ import annotations

import ast
import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import Any, NamedTuple

import numpy as np

from blocks.arrow_tables import pyarrow_module
from blocks.errors import RequestError

_LONGEST = 4000  # letters
_DEEPEST = 100  # levels of an expression
_SHOWN = 200  # letters of it in messages
_EXAMPLE = 'Write for example year > 2015 and category == "cs.LG"; column("any name") is a column of any name.'
_TIMES = ("date", "time")
_NUMBERS = ("integer", "number")
_PARTS = {"year": "year", "quarter": "quarter", "month": "month", "decade": "year"}
_COMPARISONS: dict[type, str] = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}


class ExpressionValue(NamedTuple):
    """A value for each document, or a constant.

    kind: type of the value.
    compute: function of a dictionary of arrays by column name.
    constant: the value, if it is constant.
    """

    kind: str
    compute: Callable[[Mapping[str, Any]], Any]
    constant: Any = None


class DocumentExpression:
    """A parsed condition or value. Attributes: `text`; `columns`, names of the columns it uses; `kind`, type of its
    values.

    option: name of the option, for messages.
    kinds: types of the columns.
    Raises RequestError for unsupported forms, unknown columns, and values that cannot be compared.
    """

    def __init__(self, text: str, option: str, kinds: Mapping[str, str], *, is_condition: bool) -> None:
        self.text, self._option, self._kinds = text, option, kinds
        self._used: dict[str, None] = {}
        body = ast.Name(text) if text in kinds and not is_condition else self._parsed()
        self._value = self._condition(body) if is_condition else self._value_of(body)
        if not self._used:
            raise self._error("the expression uses no column", f"The columns are {self._columns()}.")
        self.columns, self.kind = list(self._used), self._value.kind

    def compute(self, arrays: Mapping[str, Any]) -> Any:
        """Return a pyarrow array with a value for each document, null where missing."""
        return self._value.compute(arrays)

    def mask(self, arrays: Mapping[str, Any]) -> np.ndarray:
        """Return the mask of documents for which the condition is true, bool (n,)."""
        return self.compute(arrays).fill_null(False).to_numpy(zero_copy_only=False)

    def _parsed(self) -> ast.expr:
        try:
            if len(self.text) > _LONGEST:
                raise ValueError(f"the expression has more than {_LONGEST} characters")
            parsed = ast.parse(self.text.strip(), mode="eval").body
            if _levels(parsed) > _DEEPEST:
                raise ValueError(f"the expression is nested more than {_DEEPEST} levels deep")
            return parsed
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            what = error.msg if isinstance(error, SyntaxError) else str(error)
            raise self._error(what or "the expression is nested too deeply", _EXAMPLE) from None

    def _error(self, why: str, remedy: str) -> RequestError:
        text = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}…"
        return RequestError(f"{self._option} {text!r}: {why}", remedy)

    def _columns(self) -> str:
        return ", ".join(f"{name} ({kind})" for name, kind in self._kinds.items())

    def _condition(self, node: ast.expr) -> ExpressionValue:
        pc = pyarrow_module().compute
        match node:
            case ast.BoolOp(op=op, values=values):
                parts = [self._condition(value).compute for value in values]
                joined = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
                return ExpressionValue("boolean", lambda arrays: _folded(joined, [part(arrays) for part in parts]))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._condition(operand).compute
                return ExpressionValue("boolean", lambda arrays: pc.invert(inner(arrays)))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                nodes = [left, *rights]
                pairs = [self._comparison(op, nodes[i], nodes[i + 1]) for i, op in enumerate(ops)]
                return ExpressionValue(
                    "boolean", lambda arrays: _folded(pc.and_kleene, [pair(arrays) for pair in pairs])
                )
        found = self._value_of(node)
        if found.kind != "boolean" or found.constant is not None:
            raise self._error(
                f"{ast.unparse(node)} is not a condition", "Compare it with a value, for example with == or >."
            )
        return found

    def _comparison(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> Callable[[Mapping[str, Any]], Any]:
        pc = pyarrow_module().compute
        if isinstance(op, ast.In | ast.NotIn):
            inside = self._membership(left, right)
            return inside if isinstance(op, ast.In) else lambda arrays: pc.invert(inside(arrays))
        if isinstance(op, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise self._error("`is` can only be used with None", "Write == to compare values.")
            value, test = self._value_of(left), pc.is_null if isinstance(op, ast.Is) else pc.is_valid
            return lambda arrays: test(value.compute(arrays))
        first, second = self._comparable(
            self._value_of(left), self._value_of(right), f"{ast.unparse(left)} and {ast.unparse(right)}"
        )
        compare = getattr(pc, _COMPARISONS[type(op)])
        return lambda arrays: compare(first.compute(arrays), second.compute(arrays))

    def _membership(self, left: ast.expr, right: ast.expr) -> Callable[[Mapping[str, Any]], Any]:
        arrow = pyarrow_module()
        value = self._value_of(left)
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            told = ast.unparse(left)
            pairs = [
                self._comparable(value, self._value_of(each), f"{told} and {ast.unparse(each)}") for each in right.elts
            ]
            if not pairs or any(second.constant is None for _, second in pairs):
                raise self._error(f"{ast.unparse(right)} is not a list of values", 'Write for example in ("a", "b").')
            return lambda arrays: _folded(
                arrow.compute.or_kleene,
                [arrow.compute.equal(first.compute(arrays), second.compute(arrays)) for first, second in pairs],
            )
        text = self._value_of(right)
        if not isinstance(value.constant, str) or text.kind != "text":
            raise self._error(f"{ast.unparse(right)} is not a list of values", 'Write for example in ("a", "b").')
        return lambda arrays: arrow.compute.match_substring(text.compute(arrays), value.constant)

    def _value_of(self, node: ast.expr) -> ExpressionValue:
        match node:
            case ast.Name(id=name):
                return self._column(name)
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return _constant(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return _constant(-value)
            case ast.Call(func=ast.Name(id="column"), args=[ast.Constant(value=str() as name)], keywords=[]):
                return self._column(name)
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in (*_PARTS, "lower"):
                return self._call(name, self._value_of(argument), ast.unparse(argument))
        raise self._error(
            f"{ast.unparse(node)} cannot be used here",
            f"Use columns, values and year(x), quarter(x), month(x), decade(x), lower(x). Columns: {self._columns()}",
        )

    def _column(self, name: str) -> ExpressionValue:
        if name not in self._kinds:  # Python's parser composes accents and letters of names
            name = next((each for each in self._kinds if unicodedata.normalize("NFKC", each) == name), name)
        if name not in self._kinds:
            raise self._error(f"there is no column {name!r}", f"The columns are {self._columns()}.")
        self._used[name] = None
        return ExpressionValue(self._kinds[name], lambda arrays: arrays[name])

    def _call(self, name: str, of: ExpressionValue, told: str) -> ExpressionValue:
        pc = pyarrow_module().compute
        if name == "lower":
            if of.kind != "text":
                raise self._error(f"{told} has the type {of.kind}, not text", "Use lower(x) with a text column.")
            return ExpressionValue("text", lambda arrays: pc.utf8_lower(of.compute(arrays)))
        if of.kind not in _TIMES:
            raise self._error(
                f"{told} has the type {of.kind}, not date",
                "A column of dates has values such as 2015-01-31 in all documents.",
            )
        part = getattr(pc, _PARTS[name])
        if name == "decade":
            return ExpressionValue("integer", lambda arrays: pc.multiply(pc.divide(part(of.compute(arrays)), 10), 10))
        return ExpressionValue("integer", lambda arrays: part(of.compute(arrays)))

    def _comparable(
        self, left: ExpressionValue, right: ExpressionValue, told: str
    ) -> tuple[ExpressionValue, ExpressionValue]:
        """Convert two values to a common type, or to numbers; a string that is compared with a date becomes a date."""
        if left.kind in _TIMES and right.kind == "text":
            return left, self._as_date(right, left.kind)
        if right.kind in _TIMES and left.kind == "text":
            return self._as_date(left, right.kind), right
        if left.kind == right.kind:
            return left, right
        if {left.kind, right.kind} == {*_NUMBERS}:
            return _as_number(left), _as_number(right)
        if {left.kind, right.kind} == {*_TIMES}:
            return _as_time(left), _as_time(right)
        raise self._error(
            f"{told} have different types, {left.kind} and {right.kind}", "Compare values of the same type."
        )

    def _as_date(self, value: ExpressionValue, kind: str) -> ExpressionValue:
        arrow = pyarrow_module()
        try:
            if not isinstance(value.constant, str):
                raise ValueError
            found: Any = (
                date.fromisoformat(value.constant) if kind == "date" else datetime.fromisoformat(value.constant)
            )
        except ValueError:
            raise self._error(f"{value.constant!r} is not a date", "Write dates as 2015-01-31.") from None
        scalar = arrow.scalar(found, arrow.date32() if kind == "date" else arrow.timestamp("us"))
        return ExpressionValue(kind, lambda _: scalar, found)


def _as_time(value: ExpressionValue) -> ExpressionValue:
    arrow = pyarrow_module()
    return ExpressionValue("time", lambda arrays: arrow.compute.cast(value.compute(arrays), arrow.timestamp("us")))


def _as_number(value: ExpressionValue) -> ExpressionValue:
    """Convert a value to float64; integers beyond 2^53 are rounded."""
    if value.constant is not None:
        return _constant(float(value.constant))
    arrow = pyarrow_module()
    return ExpressionValue(
        "number", lambda arrays: arrow.compute.cast(value.compute(arrays), arrow.float64(), safe=False)
    )


def _levels(node: ast.AST) -> int:
    """Return the nesting depth of a parsed expression."""
    level, levels = [node], 0
    while level:
        level, levels = [child for each in level for child in ast.iter_child_nodes(each)], levels + 1
    return levels


def _constant(value: Any) -> ExpressionValue:
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        value = float(value) if abs(value) < 1 << 1000 else math.inf if value > 0 else -math.inf
    kinds = {bool: "boolean", int: "integer", float: "number", str: "text"}
    return ExpressionValue(kinds[type(value)], lambda _: value, value)


def _folded(join: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    whole = parts[0]
    for part in parts[1:]:
        whole = join(whole, part)
    return whole


def selected(
    table: Any, where: DocumentExpression | None, columns: list[str], last: int
) -> Iterator[tuple[int, np.ndarray, dict[str, Any]]]:
    """Yield batches of a `DocumentTable`: index of the first document, mask of the selected documents, bool (n,), and
    arrays of columns.

    last: number of documents to read.
    """
    needed = list(dict.fromkeys([*(where.columns if where else ()), *columns]))
    for first, arrays in table.batches(needed, last):
        size = len(next(iter(arrays.values())))
        yield first, where.mask(arrays) if where else np.ones(size, bool), arrays
