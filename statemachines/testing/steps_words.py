"""Words of a steps text: values written as Python expressions, of the names that it may use and nothing else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from statemachines.kernel import ConfigurationError

OPERATIONS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift, ast.BitOr: operator.or_,
}  # fmt: skip
OPEN, CLOSE = "([{", ")]}"


def words_of(module: str) -> dict[str, Any]:
    """The public names of a module, other modules left out."""
    found = vars(import_module(module)).items()
    return {name: value for name, value in found if not name.startswith("_") and not isinstance(value, ModuleType)}


def split_outside(text: str, mark: str) -> list[str]:
    """`text` cut at each `mark` that stands outside of brackets and quotes, without what is blank around the parts."""
    return [one.strip() for one in _cut(text, mark)]


def _cut(text: str, mark: str) -> Iterator[str]:
    depth, quote, began = 0, "", 0
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif not depth and text.startswith(mark, at):
            yield text[began:at]
            began = at + len(mark)
        else:
            depth += (sign in OPEN) - (sign in CLOSE)
    yield text[began:]


class StepsError(ConfigurationError):
    """A steps text that cannot be played."""


class StepsWords(dict[str, Any]):
    """Name -> value; `look_up` gives the value of any other name."""

    def __init__(self, look_up: Callable[[str], Any]) -> None:
        super().__init__()
        self._look_up = look_up

    def evaluate(self, text: str) -> Any:
        """The value of an expression: names, constants, attributes, calls, tuples, lists, dictionaries, arithmetic.

        Raises `StepsError` for any other form.
        """
        try:
            return self._value(ast.parse(text, mode="eval").body)
        except SyntaxError as error:
            raise StepsError("steps", text, f"is no expression: {error.msg}") from None

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self[name] if name in self else self._look_up(name)
            case ast.Attribute(owner, name) if not name.startswith("_"):
                return getattr(self._value(owner), name)
            case ast.Subscript(owner, at):
                return self._value(owner)[self._value(at)]
            case ast.Call(function, given, named) if all(one.arg for one in named):
                return self._value(function)(
                    *self._values(given), **{str(one.arg): self._value(one.value) for one in named}
                )
            case ast.Tuple(some) | ast.List(some):
                return [*self._values(some)] if isinstance(node, ast.List) else (*self._values(some),)
            case ast.Dict(keys, values):
                return {self._value(key): self._value(value) for key, value in zip(keys, values, strict=True) if key}
            case ast.UnaryOp(ast.USub(), value):
                return -self._value(value)
            case ast.BinOp(left, operation, right) if type(operation) in OPERATIONS:
                return OPERATIONS[type(operation)](self._value(left), self._value(right))
        raise StepsError("steps", ast.unparse(node), "is no value that a steps text may have")

    def _values(self, nodes: list[ast.expr]) -> Iterator[Any]:
        for one in nodes:
            if isinstance(one, ast.Starred):
                yield from self._value(one.value)
            else:
                yield self._value(one)
