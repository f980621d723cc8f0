"""Code mutants: what the machines call, changed at one site each.

The text of a module is parsed once; a mutant changes one place of the tree, compiles it, and puts the code of the
function that it stands in into the function that everybody holds.  Nothing is imported anew, no object is replaced.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from statemachines_spec.mutants.code_sites import CodeChange, Sites
from statemachines_spec.mutants.mutant import CODE, Mutant, Site, Unmade
from statemachines_spec.mutants.reach import ReachedCode

Lines = tuple[int, int]


class Text:
    """A module as text: its tree, and where its functions stand in it."""

    def __init__(self, file: str) -> None:
        self.file = file
        with open(file, encoding="utf-8") as opened:
            self.tree = ast.parse(opened.read())
        self._nodes: dict[tuple[str, int], list[ast.AST]] = {}
        self._statements: list[Lines] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                self._nodes.setdefault((node.name, first), []).append(node)
            elif isinstance(node, ast.Lambda):
                self._nodes.setdefault(("<lambda>", node.lineno), []).append(node)
            if isinstance(node, ast.stmt):
                self._statements.append(_lines_of(node))

    def node(self, function: FunctionType) -> ast.AST | None:
        """Where a function stands; None where several could be meant."""
        code = function.__code__
        found = self._nodes.get((code.co_name, code.co_firstlineno), [])
        return found[0] if len(found) == 1 else None

    def statement(self, node: ast.AST) -> Lines:
        """The lines of the smallest statement around a node; of one with a body its head."""
        first, last = _span(node)
        around = [lines for lines in self._statements if lines[0] <= first and last <= lines[1]]
        return min(around, key=lambda lines: lines[1] - lines[0], default=(first, last))


@cache
def text_of(file: str) -> Text:
    """The module in this file, parsed once."""
    return Text(file)


def code_mutants(reach: ReachedCode) -> Iterator[Mutant]:
    """All of what the machines reach, module by module, in the order of the text."""
    seen: set[tuple[str, int, int, str]] = set()
    for function in reach.functions:
        file = inspect.getsourcefile(function)
        node = None if file is None else text_of(file).node(function)
        if file is None or node is None:
            continue
        defaults = set(ast.walk(node.args)) if isinstance(node, ast.FunctionDef | ast.Lambda) else set()
        for number, (place, change) in enumerate(Sites(function, node).find(), 1):
            key = (file, *_corner(place), f"{change.label} {change.field} {change.index}")
            if key not in seen and place not in defaults:  # which were evaluated once, and are no part of its code
                seen.add(key)
                yield _mutant(function, file, node, number, place, change)


def _mutant(
    function: FunctionType, file: str, node: ast.AST, number: int, place: ast.AST, change: CodeChange
) -> Mutant:  # fmt: skip
    text = text_of(file)
    first, last = text.statement(place)
    sites: tuple[Site, ...] = tuple(("line", file, line) for line in range(first, last + 1))
    module = function.__module__.rpartition(".")[2]
    name = function.__qualname__.replace(".<locals>", "")
    if name.endswith("<lambda>"):
        name += str(function.__code__.co_firstlineno)
    what = f"{module}.{name}: {change.what}"
    label = change.label.replace(" ", "")
    return Mutant(
        f"{module}.{name}/{number}/{label}", CODE, change.kind, what, "", sites, _patch(function, text, change)
    )


def _patch(function: FunctionType, text: Text, change: CodeChange) -> Callable[[ExitStack], None]:
    def apply(stack: ExitStack) -> None:
        before = function.__code__
        after = _compiled(text, change, before)
        if len(after.co_freevars) != len(before.co_freevars):
            raise Unmade("it does not need what its closure holds any more")
        function.__code__ = after
        stack.callback(setattr, function, "__code__", before)

    return apply


def _compiled(text: Text, change: CodeChange, like: CodeType) -> CodeType:
    kept = change.make()
    try:
        module = compile(text.tree, text.file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, TypeError) as error:
        raise Unmade(f"it does not compile: {error}") from error
    finally:
        change.undo(kept)
    for code in _codes(module):
        if (code.co_qualname, code.co_firstlineno) == (like.co_qualname, like.co_firstlineno):
            return code
    raise Unmade("its function is not found in the text of its module")


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _span(node: Any) -> Lines:
    return node.lineno, node.end_lineno or node.lineno


def _corner(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _lines_of(node: ast.stmt) -> Lines:
    """Of a statement with a body its head; of a `match` all of it, since its patterns stand among the bodies."""
    first, last = _span(node)
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and body[0].lineno > first:
        last = body[0].lineno - 1
    return first, last
