"""Reference of messages: every line that a program of ours writes to its log, and every error that it raises.

They are read from the source: texts of `logger.LEVEL(...)` and of `raise SomeError(...)`, with `{name}` for a value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from configuration_reference import make_table

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("statemachines", "sim/statemachines_sim", "spec/statemachines_spec", "reports/statemachines_reports")
LEVELS = ("debug", "info", "warning", "error")


class Message(NamedTuple):
    """`kind`: the level of a line of a log, or the class of an error; `module`: where it stands."""

    kind: str
    text: str
    module: str


@cache
def list_messages() -> tuple[Message, ...]:
    """All, by module; one that stands there twice once."""
    found = [
        message
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for message in read_messages(path)
    ]
    return tuple(dict.fromkeys(found))


def read_messages(path: Path) -> Iterator[Message]:
    """Those of a file, in its order."""
    base = next(ROOT / folder for folder in FOLDERS if path.is_relative_to(ROOT / folder)).parent
    module = ".".join(path.relative_to(base).with_suffix("").parts)
    source = path.read_text(encoding="utf-8")
    if "raise " not in source and "log" not in source:
        return
    nodes = list(ast.walk(ast.parse(source)))
    assigned = sorted(
        (
            (node.lineno, target.id, node.value)
            for node in nodes
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        ),
        key=itemgetter(0),
    )
    for node in nodes:
        kind, arguments = _kind_of(node)
        for argument in arguments:
            text = " ".join(_text_of(argument, assigned).replace("`", "'").replace("|", "\\|").split())
            if " " in text:
                yield Message(kind, text, module)
                break


def write_page() -> str:
    """The page: lines of logs, then errors, each by module."""
    messages = list_messages()
    parts = [
        "# Log lines and errors\n\n`{name}` and `%s` stand for a value. [Operating nodes](../docs/operating.md)"
        " says what to do about those that an operator meets. A command prints an error in one line,"
        " `error: KEY = VALUE: RULE`, and ends with exit code 2.\n"
    ]
    for title, wanted in (("Lines of logs", True), ("Errors", False)):
        parts.append(f"## {title}\n")
        chosen = [one for one in messages if (one.kind in LEVELS) is wanted]
        for module in dict.fromkeys(one.module for one in chosen):
            rows = [(one.kind, f"`{one.text}`") for one in chosen if one.module == module]
            parts += [f"### {module}\n", make_table(("level" if wanted else "class", "text"), rows)]
    return "\n".join(parts)


def _kind_of(node: ast.AST) -> tuple[str, list[ast.expr]]:
    """What it writes or raises, and the arguments of which one is the text; nothing for anything else."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
        name = node.exc.func.id
        return (name, node.exc.args[::-1]) if name[:1].isupper() else ("", [])
    is_log = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS
    if is_log and isinstance(node.func.value, ast.Name) and node.func.value.id in ("logger", "log"):
        return node.func.attr, node.args[:1]
    return "", []


def _text_of(node: ast.expr, assigned: list[tuple[int, str, ast.expr]]) -> str:
    """The text of a literal, of two that are joined, or of what a name was last assigned to; "": it is none.

    `assigned` is in the order of lines."""
    if isinstance(node, ast.Name):
        values = [value for line, name, value in assigned if name == node.id and line < node.lineno]
        return _text_of(values[-1], assigned) if values and not isinstance(values[-1], ast.Name) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text_of(node.left, assigned) + _text_of(node.right, assigned)
    if isinstance(node, ast.JoinedStr):
        parts = (
            one.value if isinstance(one, ast.Constant) else "{" + ast.unparse(one.value) + "}" for one in node.values
        )
        return "".join(map(str, parts))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
