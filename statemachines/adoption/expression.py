"""Expressions: what `--holds` and `--within` say about a model; parsed, and never run as code.

    parse_expression("paid >= 0 and state in ('new', 'paid')", "--holds").evaluate(names)

There are comparisons, `in`, arithmetic, `and`, `or`, `not`, `len`, literals, and attributes (`order.total`
too); `state` is the state as text.

Model properties: what must hold in every value of a subject, and which values are looked at at all.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

from statemachines.adoption.live_machine import AdoptedSubject, state_of
from statemachines.kernel import ConfigurationError

LENGTH_MAX: Final = 2_000
NUMBER_MAX: Final = 10**12
"""Beyond this `**`, `*` and `<<` are refused: they would take memory and time."""

COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}

ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

SIGNS: Final[Mapping[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}

ALLOWED: Final = "comparisons, in, + - * / // %, and, or, not, len(...), names of attributes, and literals"

EXAMPLE: Final = "write something like: paid >= 0"

Names = Callable[[str], Any]
"""Name -> value; raises `KeyError`."""


class Expression:
    """A parsed expression; `text` as it was given, `names` that it begins with."""

    def __init__(self, text: str, tree: ast.expr) -> None:
        self.text = text
        self._tree = tree
        self.names = tuple(
            dict.fromkeys(one.id for one in ast.walk(tree) if isinstance(one, ast.Name) if one.id != "len")
        )

    def evaluate(self, names: Names) -> bool:
        """Whether it holds; raises what a comparison of such values raises."""
        return bool(_value(self._tree, names))


def parse_expression(text: str, key: str) -> Expression:
    """Raises `ConfigurationError` that names `key`, and what in the text is no part of an expression."""
    if len(text) > LENGTH_MAX:
        raise ConfigurationError(key, f"{text[:40]}...", f"has more than {LENGTH_MAX} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        why = getattr(error, "msg", None) or str(error)
        rule = f"is no expression ({why}); {EXAMPLE}"
        raise ConfigurationError(key, text, rule) from error
    for node in ast.walk(tree):
        _check(node, text, key)
    _check_truth(tree, text, key)
    found = Expression(text, tree)
    if not found.names:
        raise ConfigurationError(key, text, f"names no attribute, so it says the same everywhere; {EXAMPLE}")
    return found


_KNOWN: Final = (
    *(ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Name, ast.Attribute, ast.Constant, ast.Call),
    *(ast.Tuple, ast.List, ast.Set, ast.expr_context, ast.boolop),
)


def _check(node: ast.AST, text: str, key: str) -> None:
    known: tuple[type[ast.AST], ...] = (*_KNOWN, *COMPARISONS, *ARITHMETIC, *SIGNS)
    wrong = "" if isinstance(node, known) else type(node).__name__.lower()
    if isinstance(node, ast.Call):
        is_len = isinstance(node.func, ast.Name) and node.func.id == "len"
        if not is_len or len(node.args) != 1 or node.keywords:
            wrong = f"a call of {ast.unparse(node.func)}"
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    if name.startswith("__"):
        wrong = name
    if wrong:
        raise ConfigurationError(key, text, f"may not have {wrong}; there are: {ALLOWED}")


def _check_truth(node: ast.expr, text: str, key: str) -> None:
    """Where something holds or not, as beside `or`, stands nothing that holds always."""
    match node:
        case ast.BoolOp(values=values):
            for one in values:
                _check_truth(one, text, key)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _check_truth(operand, text, key)
        case ast.Constant() | ast.Tuple() | ast.List() | ast.Set() | ast.Name(id="state"):
            rule = f"has {ast.unparse(node)} where something holds or not, and that is the same everywhere; {EXAMPLE}"
            raise ConfigurationError(key, text, rule)


def _value(node: ast.expr, names: Names) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names(name)
        case ast.Attribute(value=owner, attr=name):
            return getattr(_value(owner, names), name)
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return tuple(_value(item, names) for item in items)
        case ast.Call(args=[argument]):
            return len(_value(argument, names))
        case ast.UnaryOp(op=sign, operand=operand):
            return SIGNS[type(sign)](_value(operand, names))
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(one, names) for one in values)
        case ast.BoolOp(values=values):
            return any(_value(one, names) for one in values)
        case ast.BinOp(left=left, op=sign_, right=right):
            return _calculated(type(sign_), _value(left, names), _value(right, names))
        case ast.Compare(left=left, ops=comparisons, comparators=others):
            return _compared(_value(left, names), comparisons, others, names)
    raise AssertionError(ast.dump(node))  # `_check` lets nothing else pass


def _calculated(sign: type[ast.operator], left: Any, right: Any) -> Any:
    if sign is ast.Mult and isinstance(left, int) and isinstance(right, int) and abs(left * right) > NUMBER_MAX:
        raise OverflowError(f"{left} * {right} is beyond {NUMBER_MAX}")
    if sign is ast.Mult and not (isinstance(left, int | float) and isinstance(right, int | float)):
        raise TypeError(f"cannot multiply {type(left).__name__} by {type(right).__name__}")
    return ARITHMETIC[sign](left, right)


def _compared(left: Any, comparisons: list[ast.cmpop], others: list[ast.expr], names: Names) -> bool:
    for comparison, other in zip(comparisons, others, strict=True):
        right = _value(other, names)
        one, two = _as_text(left, right), _as_text(right, left)
        if not COMPARISONS[type(comparison)](one, two):
            return False
        left = right
    return True


def _as_text(value: Any, beside: Any) -> Any:
    """The name of an enum member that is compared with a text, or with some."""
    some = beside if isinstance(beside, tuple) else (beside,)
    return value.name if isinstance(value, Enum) and any(isinstance(one, str) for one in some) else value


Promise = str | Callable[[Any], Any]
"""An expression, or a function of a model: it returns whether it holds, or asserts it."""


class ModelProperty:
    """One promise about each model of a subject; `name` as it is printed."""

    def __init__(self, name: str, key: str, holds: Promise) -> None:
        self.name = name
        self.key = key
        self._expression: Expression | None = parse_expression(holds, key) if isinstance(holds, str) else None
        self._function = None if isinstance(holds, str) else holds

    def check_names(self, subject: AdoptedSubject) -> None:
        """Raises `ConfigurationError` where the expression names an attribute that no model has."""
        if self._expression is None:
            return
        numbered = _numbered(subject)
        for name in self._expression.names:
            if name == "state" or name in numbered or any(hasattr(one, name) for one in subject.models):
                continue
            there = sorted(
                {
                    attribute
                    for model in subject.models
                    for attribute, value in vars(model).items()
                    if subject.is_own(model, attribute, value)
                }
            )
            close = get_close_matches(name, there, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            kinds = " or ".join(sorted({type(one).__name__ for one in subject.models}))
            rule = f"{kinds} has no attribute {name!r}; {hint}there are: {', '.join(there)}"
            raise ConfigurationError(self.key, self._expression.text, rule)

    def find_fixed(self, labels: set[str], changed: set[str]) -> list[str]:
        """The attributes that the expression is about, if no step changes any; `labels`: of all parts of a value."""
        names = self._expression.names if self._expression is not None else ()
        there = [{label for label in labels if name in label.split(".")} for name in names]
        return list(names) if all(there) and not set().union(*there) & changed else []

    def find_broken(self, subject: AdoptedSubject) -> int | None:
        """The place of the first model for which it does not hold (-1: it is about all); None: it holds for all.

        Raises `ConfigurationError` where it cannot be told.
        """
        numbered = _numbered(subject)
        is_about_all = self._expression is not None and set(self._expression.names) <= set(numbered)
        for place, model in enumerate(subject.models[:1] if is_about_all else subject.models):
            try:
                held = self._holds(subject, model)
            except Exception as error:
                where = f" in state {_name_state(subject, model)}" if hasattr(model, "state") else ""
                rule = f"cannot be told{where}: {type(error).__name__}: {error}"
                raise ConfigurationError(self.key, self.name, rule) from error
            if not held:
                return -1 if is_about_all else place
        return None

    def _holds(self, subject: AdoptedSubject, model: Any) -> bool:
        if self._function is not None:
            try:
                held = self._function(model)
            except AssertionError:
                return False
            return held is None or bool(held)
        assert self._expression is not None
        numbered = _numbered(subject)

        def look_up(name: str) -> Any:
            if name in numbered:
                return numbered[name]
            return _name_state(subject, model) if name == "state" else getattr(model, name)

        return self._expression.evaluate(look_up)


def _name_state(subject: AdoptedSubject, model: Any) -> Any:
    """The state as text; where no machine keeps it in `state`, the attribute of that name."""
    for machine in subject.machines:
        if machine.model_attribute == "state" and any(model is one for one in machine.models):
            return state_of(machine, model)
    return getattr(model, "state")  # noqa: B009


def _numbered(subject: AdoptedSubject) -> dict[str, Any]:
    """Several models by name, for an expression about more than one of them."""
    return dict(zip(subject.names, subject.models, strict=False)) if len(subject.models) > 1 else {}


def read_properties(holds: Mapping[str, Promise], key: str) -> tuple[ModelProperty, ...]:
    """Properties by name."""
    return tuple(ModelProperty(name, key, one) for name, one in holds.items())
