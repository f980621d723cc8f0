"""Weight of the repository: lines and tokens by area and protocol, and decisions of a protocol outside its machines.

    python tools/weight.py                 tables of areas, protocols and branches, in Markdown
    python tools/weight.py --branches P    each branch that decides a question of protocol P outside `statemachines/P/`

Lines are those of Python, TOML and interaction texts.  Tokens are those of Python without comments and docstrings.
A branch decides a protocol's question if its condition names a class, a status or a field of its own modules.
A field is what follows a dot: a local variable of the same name does not count.  `tools/branches.toml` names functions
that read or write a form that something else declares (bytes, SQL, a page for people), at most ten a protocol.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PROTOCOLS = sorted(path.parent.name for path in ROOT.glob("spec/*/certificates"))
KINDS = (".py", ".toml", ".txt")
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
OUTSIDE = ("statemachines/drivers", "sim", "spec/statemachines_spec", "statemachines/testing")
PLAIN = {"id", "name", "number", "value", "kind", "size", "count", "text", "data", "time"}


class Branch(NamedTuple):
    """One condition outside the machines, and the words of the protocol that it names."""

    file: str
    line: int
    function: str
    words: tuple[str, ...]


def list_files(*under: str) -> list[Path]:
    """Files of the repository below the folders, as they lie in the working tree, relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *under]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [Path(line) for line in lines if line.endswith(KINDS) and (ROOT / line).is_file()]


def name_area(file: Path) -> str:
    """The area that a file belongs to: the first folder, two of them below `statemachines`."""
    parts = file.parts[:-1] or ("root",)
    deep = parts[0] == "statemachines" and parts[1:2] in (("drivers",), ("testing",), ("demo",), ("kernel",))
    return "/".join(parts[: 2 if deep else 1])


def name_protocol(file: Path) -> str:
    """The protocol in whose folders a file lies, or `neutral`."""
    return next((part for part in file.parts if part in PROTOCOLS), "neutral")


def count_tokens(source: str) -> int:
    """Tokens of a Python source, without comments, docstrings and layout."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    strings = {
        node.body[0].lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(
        token.type not in LAYOUT and not (token.type == tokenize.STRING and token.start[0] in strings)
        for token in tokens
    )


def weigh() -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Lines and tokens of each (area, protocol)."""
    lines: Counter[tuple[str, str]] = Counter()
    tokens: Counter[tuple[str, str]] = Counter()
    for file in list_files():
        text = (ROOT / file).read_text(encoding="utf-8")
        where = name_area(file), name_protocol(file)
        lines[where] += text.count("\n")
        tokens[where] += count_tokens(text) if file.suffix == ".py" else 0
    return lines, tokens


def read_words(protocol: str) -> frozenset[str]:
    """Names that a protocol's own modules define: classes, members of enumerations, fields of records."""
    words: set[str] = set()
    for file in list_files(f"statemachines/{protocol}"):
        if file.suffix != ".py":
            continue
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                words.add(node.name)
                words |= {
                    target.id
                    for line in node.body
                    for target in ([line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", []))
                    if isinstance(target, ast.Name)
                }
    return frozenset(words - PLAIN)


def read_conditions(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Every condition of a module with the function that holds it: tests, filters and cases."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield test, inside
            case ast.comprehension(ifs=tests):
                yield from ((test, inside) for test in tests)
            case ast.match_case(pattern=pattern):
                yield pattern, inside
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    return walk(tree, "")


def list_names(condition: ast.AST, words: frozenset[str]) -> tuple[str, ...]:
    """The words of a protocol that a condition names: types and states, fields behind a dot or in a pattern."""
    names: set[str] = set()
    for node in ast.walk(condition):
        match node:
            case ast.Attribute(attr=name):
                names.add(name)
            case ast.Name(id=name) if name[:1].isupper():
                names.add(name)
            case ast.MatchClass(kwd_attrs=fields):
                names.update(fields)
    return tuple(sorted(names & words))


def read_exceptions(protocol: str) -> dict[str, str]:
    """`folder/file.py function` of what is not counted, and the reason."""
    return dict(tomllib.loads((ROOT / "tools/branches.toml").read_text(encoding="utf-8")).get(protocol, {}))


def find_branches(protocol: str, outside: tuple[str, ...] = OUTSIDE) -> list[Branch]:
    """Branches outside `statemachines/<protocol>/` that the protocol's words decide; codecs are left out."""
    words = read_words(protocol)
    found = []
    for file in list_files(*outside):
        if protocol not in file.parts or file.suffix != ".py" or "codec" in file.stem:
            continue
        for test, function in read_conditions(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if named := list_names(test, words):
                line = next((node.lineno for node in ast.walk(test) if hasattr(node, "lineno")), 0)
                found.append(Branch(str(file), line, function, named))
    return sorted(set(found))


def leave_exceptions(protocol: str, branches: list[Branch]) -> list[Branch]:
    """Branches without those of the functions that `tools/branches.toml` names."""
    excepted = read_exceptions(protocol)
    return [
        one for one in branches if f"{one.file.removeprefix('statemachines/drivers/')} {one.function}" not in excepted
    ]


def print_weight() -> None:
    """Three tables in Markdown on stdout."""
    lines, tokens = weigh()
    for title, place in (("area", 0), ("protocol", 1)):
        print(f"| {title} | lines | tokens |\n|---|---:|---:|")
        keys = sorted(
            {key[place] for key in lines}, key=lambda key: -sum(n for k, n in lines.items() if k[place] == key)
        )
        for key in keys:
            sums = (sum(n for k, n in counted.items() if k[place] == key) for counted in (lines, tokens))
            print(f"| {key} | " + " | ".join(f"{n:,}" for n in sums) + " |")
        print(f"| whole | {lines.total():,} | {tokens.total():,} |\n")
    print("| protocol | branches outside its machines | in drivers | without exceptions |\n|---|---:|---:|---:|")
    for protocol in PROTOCOLS:
        branches = find_branches(protocol)
        drivers = [one for one in branches if one.file.startswith("statemachines/drivers")]
        print(f"| {protocol} | {len(branches)} | {len(drivers)} | {len(leave_exceptions(protocol, drivers))} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--branches", choices=PROTOCOLS, metavar="PROTOCOL", help="list the branches of one protocol")
    asked = parser.parse_args()
    if not asked.branches:
        print_weight()
        return
    for one in find_branches(asked.branches):
        print(f"{one.file}:{one.line} {one.function}: {', '.join(one.words)}")


if __name__ == "__main__":
    main()
