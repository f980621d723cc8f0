"""One mistake in one place of a source file: which there are, and the code of the file with one of them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class Place(NamedTuple):
    """`mistake`, in the function that begins in line `function` of a file."""

    file: str
    function: int
    line: int
    column: int
    mistake: str


def negate(node: Any) -> ast.AST:
    """Its condition."""
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


def catch_nothing(node: ast.Try) -> ast.AST:
    """As if nothing were caught."""
    return ast.Try([*node.body, *node.orelse], [], [], node.finalbody or [ast.Pass()])


def compare_otherwise(node: ast.Compare) -> ast.AST:
    """By the opposite, or with the bound within."""
    node.ops = [OTHER[type(node.ops[0])]()]
    return node


MISTAKES: dict[str, tuple[Callable[[Any], bool], Callable[[Any], ast.AST]]] = {
    "negated": (lambda node: isinstance(node, (ast.If, ast.While, ast.IfExp)), negate),
    "not awaited": (lambda node: isinstance(node, ast.Await), lambda node: ast.Constant(None)),
    "left out": (lambda node: isinstance(node, (ast.Expr, ast.AugAssign)), lambda node: ast.Pass()),
    "not caught": (lambda node: isinstance(node, ast.Try) and node.handlers, catch_nothing),
    "one more": (
        lambda node: isinstance(node, ast.Constant) and type(node.value) is int,
        lambda node: ast.Constant(node.value + 1),
    ),
    "returns nothing": (lambda node: isinstance(node, ast.Return) and node.value, lambda node: ast.Return()),
    "compared otherwise": (lambda node: isinstance(node, ast.Compare) and len(node.ops) == 1, compare_otherwise),
}
"""Name -> whether a node can have it, and the node that stands there then."""


def list_places(file: Path, name: str) -> Iterator[Place]:
    """Each place within a function, docstrings left out."""
    for function in ast.walk(ast.parse(file.read_bytes())):
        if not isinstance(function, FUNCTIONS):
            continue
        documented = {node.value for node in ast.walk(function) if isinstance(node, ast.Expr)}
        inner = {one for node in function.body for one in ast.walk(node) if isinstance(one, FUNCTIONS)}
        hidden = {one for node in inner for one in ast.walk(node)}
        for node in (one for statement in function.body for one in ast.walk(statement)):
            if node in hidden or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                continue
            for mistake, (fits, _) in MISTAKES.items():
                if fits(node) and not (isinstance(node, ast.Constant) and node in documented):
                    yield Place(name, function.lineno, node.lineno, node.col_offset, mistake)


class _Planter(ast.NodeTransformer):
    def __init__(self, place: Place) -> None:
        self.place = place

    def visit(self, node: ast.AST) -> Any:
        fits, make = MISTAKES[self.place.mistake]
        here = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)) == (self.place.line, self.place.column)
        if here and fits(node):
            return ast.copy_location(make(node), node)
        return self.generic_visit(node)


def compile_with(path: str, source: bytes, place: Place) -> CodeType:
    """The code of a module that has the mistake."""
    tree = _Planter(place).visit(ast.parse(source))
    return compile(ast.fix_missing_locations(tree), path, "exec")
