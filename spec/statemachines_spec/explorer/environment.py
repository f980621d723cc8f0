"""Environment: what stands in place of parties that a system leaves out.  It is printed among the bounds."""

from __future__ import annotations

import ast
import inspect
from textwrap import dedent
from typing import Any, Final

import msgspec

LINES_MAX: Final = 60
"""So many lines an environment may have; a larger one is named in a decision, with its reason."""


class Environment(msgspec.Struct, frozen=True):
    """`parties` that are left out; `tells`: what is told in their place, in words; `code`: the functions and classes
    that tell it."""

    parties: str
    tells: str
    code: tuple[Any, ...]

    def count_lines(self) -> int:
        """Lines of its code, without empty ones and docstrings."""
        return sum(_count_lines(dedent(inspect.getsource(one))) for one in self.code)


def _count_lines(source: str) -> int:
    text = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(bool(line.strip()) for number, line in enumerate(source.splitlines(), 1) if number not in text)
