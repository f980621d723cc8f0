"""Fingerprint: a hash of all code that a closed system rests on, equal in every process and on every Python.

It covers what can be reached by name from the module that makes the system and from the explorer: functions, classes
and constants within the package of the protocol, the kernel and the explorer, and what a module does when it is
imported.  What nothing reaches does not count, wherever it stands.  Nor do names of functions, constants, modules and
local variables, and the place where something stands: it is known by the order in which things are first reached.
Names of classes, fields, methods and parameters count, since encoded states and calls say them.  What code says to
people does not count: docstrings, comments, layout, annotations of functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

OURS = ("statemachines", "statemachines_spec")
SIZE_BYTES = 12
ALL, DONE = "*", "="
"""In place of a name: everything that a module defines; what it does when it is imported."""

_SAID = frozenset(("ctx", "kind", "type_comment", "returns"))
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Place(NamedTuple):
    """Something that a module defines."""

    module: str
    name: str


ENGINE = Place("statemachines_spec.explorer.explore", "explore")
"""What reads a system, and counts."""


def fingerprint(module: str, words: Mapping[str, str]) -> str:
    """Hexadecimal: of what the module that makes a system reaches, and `words` that bound the system.

    Raises `ModuleNotFoundError` where the source of the module is not there.
    """
    said = (sorted(words.items()), _reach(module).digest)
    return blake2b(msgspec.json.encode(said), digest_size=SIZE_BYTES).hexdigest()


def modules_of(module: str) -> tuple[str, ...]:
    """The modules that `fingerprint` reads something of, sorted."""
    return tuple(sorted({place.module for place in _reach(module).places}))


class _Source:
    """A module: `defined`, its statements by the name that they define; `done`, those that define none; `taken`: of
    each name that it imports where that comes from (in a module `ALL`: the module itself)."""

    def __init__(self, name: str) -> None:
        place = find_spec(name)
        if place is None or place.origin is None or not place.origin.endswith(".py"):
            raise ModuleNotFoundError(f"{name}: no source to take a fingerprint of", name=name)
        self.name = name
        self.is_package = place.submodule_search_locations is not None
        self.defined: dict[str, list[ast.stmt]] = {}
        self.done: list[ast.stmt] = []
        body = ast.parse(Path(place.origin).read_bytes()).body
        self.taken = self.find_imports(body)
        for node in body:
            names = list(_names_of(node))
            for one in names:
                self.defined.setdefault(one, []).append(node)
            if not (names or _is_said(node) or isinstance(node, ast.Import | ast.ImportFrom)):
                self.done.append(node)

    def find_imports(self, nodes: Iterable[ast.AST]) -> dict[str, Place]:
        """What these statements import."""
        found: dict[str, Place] = {}
        for node in nodes:
            if isinstance(node, ast.Import):
                for one in node.names:
                    first = one.name if one.asname else one.name.partition(".")[0]
                    found[one.asname or first] = Place(first, ALL)
            elif isinstance(node, ast.ImportFrom):
                parts = self.name.split(".")
                above = parts[: len(parts) - node.level + self.is_package] if node.level else []
                base = ".".join((*above, *filter(None, (node.module,))))
                for one in node.names:
                    found[one.asname or one.name] = Place(base, one.name)
        return found


_source = cache(_Source)


def _names_of(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top of a module defines."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def _outer_functions(node: ast.AST) -> Iterator[ast.AST]:
    """The functions in it that stand in no other."""
    if isinstance(node, _FUNCTION):
        yield node
    else:
        yield from chain.from_iterable(map(_outer_functions, ast.iter_child_nodes(node)))


@cache
def _is_module(name: str) -> bool:
    base, _, last = name.rpartition(".")
    place = find_spec(base) if base else None
    folders = () if place is None else place.submodule_search_locations or ()
    return any((Path(folder) / f"{last}.py").is_file() or (Path(folder) / last / "__init__.py").is_file()
               for folder in folders)  # fmt: skip


@cache
def _find(place: Place, packages: tuple[str, ...]) -> Place | None:
    """Where something of ours is defined that is imported from `place` (None: it is not ours, or a mere name)."""
    if place.module.partition(".")[0] not in packages:
        return None
    if place.name == ALL:
        return place
    source = _source(place.module)
    if place.name in source.defined:
        return place
    if place.name in source.taken:
        return _find(source.taken[place.name], packages)
    inner = f"{place.module}.{place.name}"
    return Place(inner, ALL) if _is_module(inner) else None


class _Reach:
    """All that a module reaches: `places`, in the order in which they are reached, and a `digest` of what they say."""

    def __init__(self, module: str) -> None:
        packages = (*OURS, module.partition(".")[0])
        self.places: list[Place] = []
        self._packages = packages
        self._numbers: dict[Place, int] = {}
        self._entered: set[str] = set()
        for place in (Place(module, ALL), ENGINE):
            self._number(place)
        found = blake2b(digest_size=SIZE_BYTES)
        for place in self.places:  # it grows meanwhile
            words = (one if isinstance(one, str) else self._number(one) for one in _canonical_words(place, packages))
            found.update("\n".join(words).encode() + b"\n\n")
        self.digest = found.hexdigest()

    def _number(self, place: Place) -> str:
        if place not in self._numbers:
            self._numbers[place] = len(self.places)
            self.places.append(place)
            self._enter(place.module)
        return f"#{self._numbers[place]}"

    def _enter(self, module: str) -> None:
        """What a module does when it is imported, and what it imports, counts."""
        if module in self._entered or module.partition(".")[0] not in self._packages:
            return
        self._entered.add(module)
        source = _source(module)
        if source.done:
            self._number(Place(module, DONE))
        for place in source.taken.values():
            self._enter(place.module)
            if place.name != ALL and _is_module(inner := f"{place.module}.{place.name}"):
                self._enter(inner)


_reach = cache(_Reach)


@cache
def _canonical_words(place: Place, packages: tuple[str, ...]) -> tuple[str | Place, ...]:
    """What stands there, in words and in places."""
    source = _source(place.module)
    if place.name == ALL:
        return tuple(Place(place.module, name) for name in source.defined)
    nodes = source.done if place.name == DONE else source.defined[place.name]
    return tuple(word for node in nodes for word in _CanonicalStatement(packages, source, node).words(node))


class _CanonicalStatement:
    """A statement in words: each name of ours by its place, each local variable by its number among them."""

    def __init__(self, packages: tuple[str, ...], source: _Source, node: ast.stmt) -> None:
        inside = list(ast.walk(node))
        self.packages = packages
        self.source = source
        self.taken = {**source.taken, **source.find_imports(inside)}
        self.top = node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
        kept = {*source.defined, *self.taken, *(one.arg for one in inside if isinstance(one, ast.arg))}
        self.variables: dict[str, int] = {}
        for one in chain.from_iterable(map(ast.walk, _outer_functions(node))):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and one.id not in kept:
                self.variables.setdefault(one.id, len(self.variables))

    def words(self, node: ast.AST) -> Iterator[str | Place]:
        """Names of nodes and fields, and constants; nothing for a field that is empty, so that a field which a later
        Python adds makes no difference."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return
        place = self._place(node)
        if place is not None:
            yield _find(place, self.packages) or f"{place.module}.{place.name}"
            return
        yield type(node).__name__
        for name, value in ast.iter_fields(node):
            if name in _SAID or value is None or value == [] or (node is self.top and name == "name"):
                continue
            if name == "annotation" and isinstance(node, ast.arg):
                continue
            yield name
            if isinstance(value, list):
                some = _joined(value) if isinstance(node, ast.JoinedStr) else value
                for one in some:
                    if not isinstance(one, ast.AST):
                        yield repr(one)
                    elif not _is_said(one):
                        yield from self.words(one)
                yield "."
            elif isinstance(value, ast.AST):
                yield from self.words(value)
            elif name == "id" and value in self.variables:
                yield f"variable {self.variables[value]}"
            else:
                yield f"{type(value).__name__} {value!r}"

    def _place(self, node: ast.AST) -> Place | None:
        """Where a name, or a name behind a dot, comes from (None: it is local, a builtin, or no name)."""
        if isinstance(node, ast.Name) and node.id not in self.variables:
            if node.id in self.source.defined:
                return Place(self.source.name, node.id)
            return self.taken.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._place(node.value)
            found = None if owner is None else _find(owner, self.packages)
            if found is not None and found.name == ALL and _find(Place(found.module, node.attr), self.packages):
                return Place(found.module, node.attr)
        return None


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
