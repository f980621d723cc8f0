"""Code sites: where a function can be wrong in a small way, and what would stand there instead.

Found in the syntax tree of a module: a comparison turned, an integer off by one, a field of a `replace` left out, an
effect left out, an argument of an effect (of what it carries, or of a helper that gives effects) changed for another of
its type.  What a name stands for is asked of the module itself, so no spelling is guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum
from types import FunctionType
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec.structs import replace as replace_struct

from statemachines.kernel import Ask, CancelTimer, Event, Request, Send, SetTimer, Stop, Tell
from statemachines_spec.mutants.mutant import field_types

EFFECTS = (Send, Ask, Tell, SetTimer, CancelTimer, Stop)
COMPARISON, INTEGER, FIELD, EFFECT, ARGUMENT = (
    "comparison turned",
    "integer off by one",
    "field left out",
    "effect left out",
    "argument changed",
)
KINDS = (COMPARISON, INTEGER, FIELD, EFFECT, ARGUMENT)

TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class CodeChange(msgspec.Struct, frozen=True):
    """In `parent.field` (at `index`, where that is a list) stands `new` (None: nothing)."""

    kind: str
    label: str
    what: str
    parent: Any
    field: str
    index: int | None
    new: Any

    def make(self) -> Any:
        """Put it there; what stood there."""
        if self.index is None:
            before = getattr(self.parent, self.field)
            setattr(self.parent, self.field, self.new)
            return before
        before = list(getattr(self.parent, self.field))
        after = list(before)
        after[self.index : self.index + 1] = [] if self.new is None else [self.new]
        setattr(self.parent, self.field, after)
        return before

    def undo(self, before: Any) -> None:
        """Put back what `make` gave."""
        setattr(self.parent, self.field, before)


class Sites:
    """The sites of one function: `node` is where it stands in the tree of its module."""

    def __init__(self, function: FunctionType, node: ast.AST) -> None:
        self.function = function
        self.node = node
        self.names = function.__globals__
        try:
            hints = get_type_hints(function)
        except (NameError, TypeError):
            hints = {}
        self.hints = {name: _bound(kind) for name, kind in hints.items()}
        self.parameters = [name for name in self.hints if name != "return"]

    def find(self) -> Iterator[tuple[ast.AST, CodeChange]]:
        """Every change, with the node that it is about, in the order of the text."""
        for parent in ast.walk(self.node):
            match parent:
                case ast.Compare():
                    yield from ((parent, one) for one in self._comparisons(parent))
                case ast.Call():
                    yield from ((parent, one) for one in self._fields(parent))
                    yield from ((parent, one) for one in self._arguments(parent))
                case ast.Tuple() | ast.List():
                    yield from ((parent, one) for one in self._effects(parent))
                case ast.Return(value=ast.Tuple(elts=[_, second, *_]) as given):
                    yield from ((parent, one) for one in self._returned(given, second))
            yield from self._integers(parent)
            yield from self._statements(parent)

    # -- the kinds ----------------------------------------------------------------------------------------------

    def _comparisons(self, node: ast.Compare) -> Iterator[CodeChange]:
        for index, op in enumerate(node.ops):
            new = TURNED[type(op)]
            names = type(op).__name__.lower(), new.__name__.lower()
            what = f"{ast.unparse(node)}: {names[0]} is {names[1]}"
            yield CodeChange(COMPARISON, f"{names[0]}-is-{names[1]}", what, node, "ops", index, new())

    def _integers(self, parent: ast.AST) -> Iterator[tuple[ast.AST, CodeChange]]:
        for field, index, node in _children(parent):
            if isinstance(node, ast.Constant) and type(node.value) is int and not isinstance(parent, ast.match_case):
                for value in (node.value + 1, node.value - 1) if node.value else (1,):
                    new = ast.copy_location(ast.Constant(value), node)
                    what = f"{_text(parent)}: {node.value} is {value}"
                    yield node, CodeChange(INTEGER, f"{node.value}-is-{value}", what, parent, field, index, new)

    def _fields(self, node: ast.Call) -> Iterator[CodeChange]:
        if self._value(node.func) is not replace_struct:
            return
        for index, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                what = f"{ast.unparse(node)}: without {keyword.arg}"
                yield CodeChange(FIELD, f"without-{keyword.arg}", what, node, "keywords", index, None)

    def _effects(self, node: ast.Tuple | ast.List) -> Iterator[CodeChange]:
        for index, one in enumerate(node.elts):
            if self._is_effect(one):
                yield CodeChange(EFFECT, f"no-{_short(one)}", f"without {ast.unparse(one)}", node, "elts", index, None)

    def _returned(self, node: ast.Tuple, second: ast.expr) -> Iterator[CodeChange]:
        """What a step gives back beside its record: all of it, or those of its parts that are effects of others."""
        if not self._gives_effects(self.hints.get("return")):
            return
        if isinstance(second, ast.Tuple):
            for index, one in enumerate(second.elts):
                if not self._is_effect(one):
                    what = f"without {ast.unparse(one)}"
                    yield CodeChange(EFFECT, f"no-{_short(one)}", what, second, "elts", index, None)
        else:
            new = ast.copy_location(ast.Tuple([], ast.Load()), second)
            yield CodeChange(EFFECT, f"no-{_short(second)}", f"without {ast.unparse(second)}", node, "elts", 1, new)

    def _statements(self, parent: ast.AST) -> Iterator[tuple[ast.AST, CodeChange]]:
        """`yield Send(...)`, `out.append(Send(...))`, `out += [...]` are found where they stand alone."""
        for field, index, node in _children(parent):
            value = node.value if isinstance(node, ast.Expr) else None
            inner = value.value if isinstance(value, ast.Yield) else None
            if isinstance(value, ast.Call) and len(value.args) == 1:
                inner = value.args[0]
            if inner is not None and self._is_effect(inner):
                new = ast.copy_location(ast.Pass(), node)
                what = f"without {ast.unparse(inner)}"
                yield node, CodeChange(EFFECT, f"no-{_short(inner)}", what, parent, field, index, new)

    def _arguments(self, node: ast.Call) -> Iterator[CodeChange]:
        callee = self._value(node.func)
        if not self._carries(callee):
            return
        handed_on = callee.__code__.co_varnames if isinstance(callee, FunctionType) else ()
        for index, argument in enumerate(node.args):
            if isinstance(argument, ast.Name) and argument.id in handed_on[index : index + 1]:
                continue  # a helper is given what its caller was given under the same name
            for other in self._another(argument):
                yield self._argument(node, argument, other, node, "args", index)
        for keyword in node.keywords:
            for other in self._another(keyword.value):
                yield self._argument(node, keyword.value, other, keyword, "value", None)

    def _argument(
        self, call: ast.Call, argument: ast.expr, other: str, parent: ast.AST, field: str, index: int | None
    ) -> CodeChange:
        new = ast.copy_location(ast.parse(other, mode="eval").body, argument)
        for inner in ast.walk(new):
            ast.copy_location(inner, argument)
        text = ast.unparse(argument)
        what = f"{ast.unparse(call)}: {text} is {other}"
        return CodeChange(ARGUMENT, f"{text}-is-{other}", what, parent, field, index, new)

    # -- what stands there --------------------------------------------------------------------------------------

    def _value(self, node: ast.expr | None) -> Any:
        """What a name, or an attribute of a module or class, stands for (None: unknown)."""
        if isinstance(node, ast.Name):
            return None if node.id in self.hints else self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            return None if owner is None else getattr(owner, node.attr, None)
        return None

    def _is_effect(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._value(node.func) in EFFECTS

    def _carries(self, value: Any) -> bool:
        """An effect, what one carries, or a function that gives effects."""
        if isinstance(value, type):
            return value in EFFECTS or issubclass(value, Event | Request)
        if not isinstance(value, FunctionType):
            return False
        try:
            return self._gives_effects(get_type_hints(value).get("return"))
        except (NameError, TypeError):
            return False

    def _gives_effects(self, kind: Any) -> bool:
        if kind in EFFECTS:
            return True
        return any(self._gives_effects(inner) for inner in get_args(kind))

    def _type(self, node: ast.expr) -> Any:
        """The type of an argument, where it can be read off (None: it cannot)."""
        if isinstance(node, ast.Name) and node.id in self.hints:
            return self.hints[node.id]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.hints:
            return _fields(self.hints[node.value.id]).get(node.attr)
        value = self._value(node)
        return type(value) if isinstance(value, str | int | Enum) else None

    def _another(self, node: ast.expr) -> Iterator[str]:
        """The next of its type: of the fields of the same record or event, of the parameters, then of the fields of
        those; of the members of an enumeration, or of the constants of the module."""
        kind = self._type(node)
        if kind is None or (isinstance(kind, type) and issubclass(kind, msgspec.Struct) and "status" in _fields(kind)):
            return
        pool: list[str]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.hints:
            owner = node.value.id
            pool = [f"{owner}.{name}" for name, one in _fields(self.hints[owner]).items() if one == kind]
        elif isinstance(node, ast.Name) and node.id in self.hints:
            pool = [name for name in self.parameters if self.hints[name] == kind]
            for name in self.parameters if len(pool) == 1 else ():
                pool += [f"{name}.{field}" for field, one in _fields(self.hints[name]).items() if one == kind]
        elif isinstance(self._value(node), Enum) and isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            pool = [f"{owner}.{one.name}" for one in kind]
        else:
            pool = sorted(name for name, one in self.names.items() if name.isupper() and type(one) is kind)
        text = ast.unparse(node)
        if text in pool and len(pool) > 1:
            yield pool[(pool.index(text) + 1) % len(pool)]


def _fields(kind: Any) -> dict[str, Any]:
    return field_types(kind) if isinstance(kind, type) else {}


def _bound(kind: Any) -> Any:
    return kind.__bound__ if isinstance(kind, TypeVar) and kind.__bound__ is not None else kind


def _children(parent: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(parent):
        if isinstance(value, list):
            yield from ((field, n, one) for n, one in enumerate(value) if isinstance(one, ast.AST))
        elif isinstance(value, ast.AST):
            yield field, None, value


def _short(node: ast.expr) -> str:
    """A word for what is left out."""
    while isinstance(node, ast.Starred | ast.Call):
        node = node.value if isinstance(node, ast.Starred) else node.func
    return ast.unparse(node)


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 100 and "\n" not in text else f"{text.splitlines()[0][:97]}..."
