"""Fingerprint: a hash of all code that a closed system rests on, equal in every process and on every Python.

It covers the modules that the system is made of and what they import, within the package of the protocol, the kernel
and the explorer.  What a module says to people does not count: docstrings, comments, blank lines, layout.  A hash of
whole modules is coarse: a change elsewhere in a module counts, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

ENGINE = "statemachines_spec.explorer.explore"
"""What reads a system, and counts."""
OURS = ("statemachines", "statemachines_spec")
SIZE_BYTES = 12

_SAID = frozenset(("ctx", "kind", "type_comment"))


def fingerprint(module: str, words: Mapping[str, str]) -> str:
    """Hexadecimal: of the module that makes a system, all that it imports, and `words` that bound the system.

    Raises `ModuleNotFoundError` where the source of the module is not there.
    """
    said = (sorted(words.items()), [(name, _digest(name)) for name in modules_of(module)])
    return blake2b(msgspec.json.encode(said), digest_size=SIZE_BYTES).hexdigest()


@cache
def modules_of(module: str) -> tuple[str, ...]:
    """The modules that `fingerprint` reads, sorted."""
    return tuple(sorted(_reached((module, ENGINE), (*OURS, module.partition(".")[0]))))


def _reached(roots: Iterable[str], packages: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += (one for one in _imports(name) if one.partition(".")[0] in packages)
    return found


@cache
def _source(module: str) -> tuple[ast.Module, bool]:
    """The syntax tree of a module, and whether it is a package."""
    place = find_spec(module)
    if place is None or place.origin is None or not place.origin.endswith(".py"):
        raise ModuleNotFoundError(f"{module}: no source to take a fingerprint of", name=module)
    return ast.parse(Path(place.origin).read_bytes()), place.submodule_search_locations is not None


@cache
def _imports(module: str) -> tuple[str, ...]:
    """The modules that one names in its imports, wherever they stand in it."""
    tree, is_package = _source(module)
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= dict.fromkeys(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            above = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join((*above, *filter(None, (node.module,))))
            modules: dict[str, None] = {}
            if base.partition(".")[0] in (*OURS, parts[0]):
                modules = {one: None for name in node.names if _is_module(one := f"{base}.{name.name}")}
            found |= modules
            if len(modules) < len(node.names):  # a package that only modules are taken from is not read itself
                found[base] = None
    return tuple(found)


@cache
def _is_module(name: str) -> bool:
    base, _, last = name.rpartition(".")
    place = find_spec(base)
    folders = () if place is None else place.submodule_search_locations or ()
    return any((Path(folder) / f"{last}.py").is_file() or (Path(folder) / last / "__init__.py").is_file()
               for folder in folders)  # fmt: skip


@cache
def _digest(module: str) -> str:
    return digest_of(_source(module)[0])


def digest_of(tree: ast.Module) -> str:
    """Hexadecimal: of a syntax tree without what it says to people."""
    return blake2b("\n".join(_words(tree)).encode(), digest_size=SIZE_BYTES).hexdigest()


def _words(node: ast.AST) -> Iterator[str]:
    """Names of nodes and fields, and constants; nothing for a field that is empty, so that a field which a later Python
    adds makes no difference."""
    yield type(node).__name__
    for name, value in ast.iter_fields(node):
        if name in _SAID or value is None or value == []:
            continue
        yield name
        if isinstance(value, list):
            some = _joined(value) if isinstance(node, ast.JoinedStr) else value
            for one in some:
                if isinstance(one, ast.AST):
                    if not _is_said(one):
                        yield from _words(one)
                else:
                    yield repr(one)
            yield "."
        elif isinstance(value, ast.AST):
            yield from _words(value)
        else:
            yield f"{type(value).__name__} {value!r}"


def _joined(parts: list[Any]) -> list[Any]:
    """The parts of an f-string, its constants as long as they can be: Pythons differ in where they cut them."""
    found: list[Any] = []
    for one in parts:
        if isinstance(one, ast.Constant) and found and isinstance(found[-1], ast.Constant):
            found[-1] = ast.Constant(str(found[-1].value) + str(one.value))
        elif not (isinstance(one, ast.Constant) and one.value == ""):
            found.append(one)
    return found


def _is_said(node: ast.AST) -> bool:
    """A string that stands by itself: a docstring, or one below a name."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
