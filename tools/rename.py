"""Rename functions, methods and classes through the whole tree, as `tools/renames.toml` says.

    python tools/rename.py             what would change, and what it cannot decide
    python tools/rename.py --write     change it

The map's keys are full names (`package.module.Class.method`; modules have a table of their own), its values the new
last names.  A method takes its overrides along.  References are found by mypy's types.  An attribute of an object whose
type mypy does not know is renamed where everything of that name in the tree has one new name; else it is listed.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mypy import build
from mypy.main import process_options
from mypy.modulefinder import BuildSource
from mypy.nodes import MemberExpr, MypyFile, NameExpr, Node, SuperExpr, TypeInfo, Var
from mypy.types import CallableType, Instance, TupleType, Type, TypeType, TypeVarType, UnionType, get_proper_type

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "tools/renames.toml"
ROOTS = ("sim/", "spec/", "reports/", "benchmarks/", "examples/lock_service/", "tests/made_up/")
CLASS = "(class)"
"""Marks the scope of a class."""


class Edit(NamedTuple):
    line: int
    column: int
    """In bytes of UTF-8, as `ast` counts."""
    old: str
    new: str


class Unknown(NamedTuple):
    path: Path
    line: int
    text: str


def list_sources() -> dict[str, Path]:
    """Every Python file of the tree by the module name that it is imported under; tests by their path."""
    names = subprocess.check_output(["git", "ls-files", "*.py"], cwd=ROOT, text=True).split()
    found = {}
    for name in names:
        short = next((name[len(root) :] for root in ROOTS if name.startswith(root)), name)
        found[short[:-3].replace("/", ".").removesuffix(".__init__")] = ROOT / name
    return found


def qualify(name: str, path: Path, sources: dict[str, Path]) -> str:
    """The full name of a module that `path` imports; tests import what lies beside them by its last name alone."""
    if name.partition(".")[0] in STEMS.get(path, {}):
        first, dot, rest = name.partition(".")
        return STEMS[path][first] + dot + rest
    return name


STEMS: dict[Path, dict[str, str]] = {}


def find_stems(sources: dict[str, Path]) -> None:
    tests = {module: path for module, path in sources.items() if module.startswith(("tests.", "tools."))}
    by_stem = defaultdict(list)
    for module in tests:
        by_stem[module.rpartition(".")[2]].append(module)
        if sources[module].name == "__init__.py":
            by_stem[sources[module].parent.name].append(module)
    for path in tests.values():
        stems = {}
        for stem, modules in by_stem.items():
            beside = [one for one in modules if sources[one].parent == path.parent]
            if beside or len(modules) == 1:
                stems[stem] = (beside or modules)[0]
        STEMS[path] = stems


def checked_text(path: Path, sources: dict[str, Path]) -> str:
    def full(match: re.Match[str]) -> str:
        return f"{match[1]}from {qualify(match[2], path, sources)} import"

    return re.sub(r"(?m)^([ \t]*)from ([a-z_][\w.]*) import", full, path.read_text())


def type_check(sources: dict[str, Path]) -> build.BuildResult:
    _, options = process_options(["--config-file", str(ROOT / "pyproject.toml"), "--check-untyped-defs"])
    options.export_types = options.preserve_asts = True
    options.incremental = False
    options.ignore_errors = True
    options.mypy_path += [str(ROOT / root) for root in ROOTS]
    return build.build(
        [BuildSource(str(path), module, checked_text(path, sources)) for module, path in sources.items()], options
    )


def list_classes(files: dict[str, MypyFile]) -> Iterator[TypeInfo]:
    def inside(names: Any) -> Iterator[TypeInfo]:
        for symbol in names.values():
            node = symbol.node
            if isinstance(node, TypeInfo) and symbol.kind is not None and not symbol.module_hidden:
                yield node
                yield from inside(node.names)

    seen = set()
    for file in files.values():
        for info in inside(file.names):
            if info.fullname not in seen:
                seen.add(info.fullname)
                yield info


class Renames:
    """New names by full name, overrides included; and by bare name, where that is one."""

    def __init__(self, table: dict[str, str], files: dict[str, MypyFile], modules: set[str]) -> None:
        self.of = dict(table)
        infos = [info for info in list_classes(files) if info.module_name in modules]
        changed = True
        while changed:  # from a base to what overrides it, and back up to its other bases
            changed = False
            for info in infos:
                for name in info.names:
                    family = [base.fullname + "." + name for base in info.mro if name in base.names]
                    new = {self.of[one] for one in family if one in self.of}
                    if len(new) > 1:
                        raise SystemExit(f"{info.fullname}.{name} would have several names: {sorted(new)}")
                    for one in family if new else ():
                        if one not in self.of:
                            self.of[one], changed = next(iter(new)), True
        definitions: dict[str, set[str | None]] = defaultdict(set)
        for info in infos:
            for name in info.names:
                definitions[name].add(self.of.get(f"{info.fullname}.{name}"))
        self.of_attribute = {
            name: next(iter(new)) for name, new in definitions.items() if len(new) == 1 and None not in new
        }
        self.bare = {full.rpartition(".")[2] for full in self.of}


def owners_of(found: Type | None) -> Iterator[TypeInfo] | None:
    """The classes an attribute may be looked up in; None: not known."""
    proper = get_proper_type(found)
    match proper:
        case Instance():
            return iter([proper.type])
        case TypeType():
            return owners_of(proper.item)
        case TypeVarType():
            return owners_of(proper.upper_bound)
        case TupleType():
            return owners_of(proper.partial_fallback)
        case CallableType() if proper.is_type_obj():
            return owners_of(proper.ret_type)
        case UnionType():
            parts = [owners_of(item) for item in proper.items]
            known = [info for part in parts if part is not None for info in part]
            return iter(known) if known else None
    return None


BESIDE = {
    "node",
    "info",
    "def_var",
    "type",
    "unanalyzed_type",
    "original_def",
    "impl",
    "target",
    "names",
    "imports",
    "alias_deps",
}
"""Attributes of mypy's nodes that lead away from the tree."""


@cache
def children_of(kind: type) -> list[str]:
    named = {
        name
        for base in kind.__mro__
        for name, value in vars(base).items()
        if type(value).__name__ == "getset_descriptor"
    }
    return sorted(named - BESIDE)


def walk_members(node: Any) -> Iterator[MemberExpr | SuperExpr]:
    """Every `x.name` and `super().name` below a node; mypy's visitors are compiled, so nothing inherits from them."""
    stack, seen = [node], set()
    while stack:
        one = stack.pop()
        if isinstance(one, list | tuple):
            stack.extend(one)
        elif isinstance(one, dict):
            stack.extend(one.values())
        elif isinstance(one, Node) and not isinstance(one, TypeInfo | Var | NameExpr) and id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, MemberExpr | SuperExpr):
                yield one
            for name in children_of(type(one)):
                with suppress(AssertionError, AttributeError):  # of what was never set
                    stack.append(getattr(one, name))


class Attributes:
    """Every `x.name` of a file whose name is among those that change."""

    def __init__(self, renames: Renames, types: dict[Any, Type], file: MypyFile) -> None:
        self.renames, self.types = renames, types
        self.edits: set[Edit] = set()
        self.known: set[tuple[int, int]] = set()
        for node in walk_members(file.defs):
            if node.name in renames.bare:
                self.look(node)

    def look(self, node: MemberExpr | SuperExpr) -> None:
        if node.end_line is None or node.end_column is None:
            return
        new = None
        if isinstance(node, MemberExpr) and node.fullname:
            new = self.renames.of.get(node.fullname)
        if new is None:
            if isinstance(node, MemberExpr):
                owners = owners_of(self.types.get(node.expr))
            else:
                owners = iter([node.info]) if node.info else None
            if owners is None:
                return  # what mypy does not reach is looked at by `Names`
            for info in owners:
                for base in info.mro[isinstance(node, SuperExpr) :]:
                    if node.name in base.names:
                        new = new or self.renames.of.get(f"{base.fullname}.{node.name}")
                        break
        self.known.add((node.end_line, node.end_column))
        if new is not None:
            self.edits.add(Edit(node.end_line, node.end_column - len(node.name), node.name, new))


class Names(ast.NodeVisitor):
    """Definitions, imports and plain names of a file, resolved by its own scopes."""

    def __init__(self, module: str, renames: Renames, resolve: Any, known: set[tuple[int, int]], path: Path) -> None:
        self.module, self.renames, self.resolve, self.known, self.path = module, renames, resolve, known, path
        self.scopes: list[dict[str, str | None]] = [{}]
        self.within: list[str] = []
        self.edits: set[Edit] = set()
        self.unknown: list[Unknown] = []
        self.lines = path.read_text().splitlines()

    def note(self, line: int, column: int, old: str, new: str) -> None:
        self.edits.add(Edit(line, column, old, new))

    def bind(self, body: list[ast.stmt], scope: dict[str, str | None], is_module: bool) -> None:
        """What statements bind, without going into functions and classes."""
        prefix = ".".join([self.module, *self.within])
        for statement in body:
            for node in walk_scope(statement):
                match node:
                    case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                        scope[node.name] = f"{prefix}.{node.name}" if is_module else None
                    case ast.Import():
                        for alias in node.names:
                            scope[alias.asname or alias.name.split(".")[0]] = (
                                alias.name if alias.asname else alias.name.split(".")[0]
                            )
                    case ast.ImportFrom():
                        base = import_base(self.module, self.path, node)
                        for alias in node.names:
                            scope[alias.asname or alias.name] = f"{base}.{alias.name}"
                    case ast.Name(ctx=ast.Store()):
                        scope[node.id] = f"{prefix}.{node.id}" if is_module else None
                    case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                        scope[name] = None
                    case ast.ExceptHandler(name=str() as name):
                        scope[name] = None

    def lookup(self, name: str) -> str | None:
        for scope in reversed(self.scopes):
            if name in scope:
                full = scope[name]
                return None if full is None else self.resolve(full)
        return None

    def visit_Module(self, node: ast.Module) -> None:
        self.bind(node.body, self.scopes[0], True)
        self.generic_visit(node)

    def define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, word: str) -> None:
        full = ".".join([self.module, *self.within, node.name])
        if (new := self.renames.of.get(full)) is not None:
            line = node.lineno
            match = re.search(rf"\b{word}\s+({re.escape(node.name)})\b", self.lines[line - 1])
            assert match, (self.path, line)
            self.note(line, len(self.lines[line - 1][: match.start(1)].encode()), node.name, new)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.define(node, "class")
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self.within.append(node.name)
        scope: dict[str, str | None] = {}
        self.bind(node.body, scope, True)
        scope[CLASS] = None
        self.scopes.append(scope)
        for statement in node.body:
            self.visit(statement)
        self.scopes.pop()
        self.within.pop()

    def visit_function(self, node: Any) -> None:
        self.define(node, "def")
        for part in node.decorator_list:
            self.visit(part)
        arguments = node.args
        every = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            *filter(None, [arguments.vararg, arguments.kwarg]),
        ]
        for part in (
            *arguments.defaults,
            *filter(None, arguments.kw_defaults),
            *(one.annotation for one in every if one.annotation),
        ):
            self.visit(part)
        if node.returns:
            self.visit(node.returns)
        scope: dict[str, str | None] = {one.arg: None for one in every}
        hidden = self.scopes
        self.scopes = [one for one in self.scopes if CLASS not in one]  # those of a class are not seen inside a method
        self.bind(node.body, scope, False)
        self.scopes = [*self.scopes, scope]
        self.within.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.within.pop()
        self.scopes = hidden

    visit_FunctionDef = visit_AsyncFunctionDef = visit_function

    def visit_Lambda(self, node: ast.Lambda) -> None:
        arguments = node.args
        every = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            *filter(None, [arguments.vararg, arguments.kwarg]),
        ]
        for part in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
            self.visit(part)
        self.scopes.append({one.arg: None for one in every})
        self.visit(node.body)
        self.scopes.pop()

    def visit_comprehension_like(self, node: Any) -> None:
        scope: dict[str, str | None] = {}
        for generator in node.generators:
            for inner in ast.walk(generator.target):
                if isinstance(inner, ast.Name):
                    scope[inner.id] = None
        self.scopes.append(scope)
        self.generic_visit(node)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_comprehension_like

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = import_base(self.module, self.path, node)
        if (moved := self.renames.of.get(base)) is not None and node.module is not None:
            line = self.lines[node.lineno - 1]
            match = re.match(r"\s*from\s+([.\w]+)\s+import\b", line)
            assert match, (self.path, node.lineno)
            old = base.rpartition(".")[2]
            self.note(node.lineno, len(line[: match.end(1)].encode()) - len(old), old, moved)
        for alias in node.names:
            new = self.renames.of.get(self.resolve(f"{base}.{alias.name}"))
            if new is not None:
                self.note(alias.lineno, alias.col_offset, alias.name, new)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.renames.bare:
            full = self.lookup(node.id)
            new = self.renames.of.get(full) if full else None
            if new is not None and not self.is_alias(node.id):
                self.note(node.lineno, node.col_offset, node.id, new)

    def is_alias(self, name: str) -> bool:
        """It was imported under another name than its own: that stays."""
        for scope in reversed(self.scopes):
            if name in scope:
                full = scope[name]
                return full is not None and full.rpartition(".")[2] != name
        return False

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit(node.value)
        if node.attr not in self.renames.bare or node.end_lineno is None or node.end_col_offset is None:
            return
        if isinstance(node.value, ast.Name) and (full := self.lookup(node.value.id)) is not None:
            new = self.renames.of.get(self.resolve(f"{full}.{node.attr}"))
            if new is not None:
                self.note(node.end_lineno, node.end_col_offset - len(node.attr), node.attr, new)
                return
        if (node.end_lineno, node.end_col_offset) in self.known:
            return
        if (new := self.renames.of_attribute.get(node.attr)) is not None:
            self.note(node.end_lineno, node.end_col_offset - len(node.attr), node.attr, new)
        else:
            self.unknown.append(Unknown(self.path, node.end_lineno, self.lines[node.end_lineno - 1].strip()))

    def visit_Constant(self, node: ast.Constant) -> None:
        """Names in strings: of an attribute, of `module:ATTRIBUTE`, of a quoted type."""
        if not isinstance(node.value, str) or node.lineno != node.end_lineno:
            return
        for word in set(re.findall(r"[A-Za-z_]\w*", node.value)) & self.renames.bare:
            if node.value == word or re.fullmatch(rf"[\w.]+:{word}|[\w.]+\.{word}", node.value) or word[0].isupper():
                self.unknown.append(Unknown(self.path, node.lineno, f"string: {self.lines[node.lineno - 1].strip()}"))


def walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    for child in ast.iter_child_nodes(node):
        yield from walk_scope(child)


def import_base(module: str, path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return qualify(node.module or "", path, {})
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + (path.name == "__init__.py")]
    return ".".join([*parts, *([node.module] if node.module else [])])


def make_resolver(trees: dict[str, ast.Module], sources: dict[str, Path]) -> Any:
    """From the name something is imported under to the name where it is defined."""
    exports: dict[str, str] = {}
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                base = import_base(module, sources[module], node)
                for alias in node.names:
                    exports[f"{module}.{alias.asname or alias.name}"] = f"{base}.{alias.name}"

    def resolve(full: str) -> str:
        for _ in range(10):
            if full not in exports or exports[full] == full:
                break
            full = exports[full]
        return full

    return resolve


def apply(path: Path, edits: set[Edit]) -> None:
    lines = [line.encode() for line in path.read_text().split("\n")]
    for edit in sorted(edits, reverse=True):
        line = lines[edit.line - 1]
        end = edit.column + len(edit.old.encode())
        assert line[edit.column : end] == edit.old.encode(), (path, edit, line)
        lines[edit.line - 1] = line[: edit.column] + edit.new.encode() + line[end:]
    path.write_bytes(b"\n".join(lines))


def move_modules(modules: dict[str, str], sources: dict[str, Path]) -> None:
    """Move the files, and rewrite what names a module in full: in text files, and in strings."""
    paths = {
        sources[module]: sources[module].with_name(f"{new}.py") for module, new in modules.items() if module in sources
    }
    for old, new in paths.items():
        subprocess.check_call(["git", "mv", str(old), str(new)], cwd=ROOT)
    words = {module: module.rpartition(".")[0] + "." + new for module, new in modules.items()}
    words |= {str(old.relative_to(ROOT)): str(new.relative_to(ROOT)) for old, new in paths.items()}
    pattern = re.compile(
        "(?<![\\w./])(" + "|".join(map(re.escape, sorted(words, key=len, reverse=True))) + r")(?!\w|\.py)"
    )
    names = subprocess.check_output(["git", "ls-files", "*.py", "*.md", "*.toml", "*.txt"], cwd=ROOT, text=True).split()
    for path in map(ROOT.joinpath, names):
        text = path.read_text()
        if path != MAP and (new_text := pattern.sub(lambda match: words[match[1]], text)) != text:
            path.write_text(new_text)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true", help="change the files")
    given = arguments.parse_args()
    found = tomllib.loads(MAP.read_text())
    table = found["renames"] | found["modules"]
    sources = list_sources()
    find_stems(sources)
    result = type_check(sources)
    renames = Renames(table, result.files, set(sources))
    trees = {module: ast.parse(path.read_text()) for module, path in sources.items()}
    resolve = make_resolver(trees, sources)
    total, unknown = 0, []
    unused = set(table)
    for module, path in sources.items():
        attributes = Attributes(renames, result.types, result.files[module])
        names = Names(module, renames, resolve, attributes.known, path)
        names.visit(trees[module])
        edits = attributes.edits | names.edits
        total += len(edits)
        unknown += names.unknown
        if given.write and edits:
            apply(path, edits)
    if given.write:
        move_modules(found["modules"], sources)
    for one in unknown:
        print(f"{one.path.relative_to(ROOT)}:{one.line}: {one.text}")
    missing = sorted(full for full in unused if not any(full.startswith(module + ".") for module in sources))
    for full in missing:
        print(f"not in the tree: {full}", file=sys.stderr)
    print(f"{total} places of {len(renames.of)} names; {len(unknown)} to look at", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
