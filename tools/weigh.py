"""Weight of the repository, its ceiling, and decisions of a protocol outside its machines.

    python tools/weigh.py                 a table of rooms, and what is above a ceiling; exit code 1 if anything is
    python tools/weigh.py --write         lower each ceiling of tools/weight.toml to what is there
    python tools/weigh.py --branches P    each branch that decides a question of protocol P outside `statemachines/P/`

Weight is the number of Python statements without docstrings, and of lines of all other text that is written by hand;
prose (.md) and what a program writes do not count.  Indented lines of texts in folders `interactions`, `steps` and
`stories` are written by a runner: they have a ceiling of their own, `golden`.  The ceiling of the sum only falls from
commit to commit; a line below `[allowance]` lets the piece of work that it names exceed it until that is done.

A branch decides a protocol's question if its condition names a class, a status or a field of its own modules.
A field is what follows a dot: a local variable of the same name does not count.  `tools/branches.toml` names functions
that read or write a form that something else declares (bytes, SQL, a page for people), at most ten a protocol.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PROTOCOLS = sorted(path.parent.name for path in ROOT.glob("spec/*/certificates"))
CEILINGS = Path("tools/weight.toml")
UNWEIGHED = (".md", ".lock", ".png", ".svg", ".parquet", ".gz", ".typed", "LICENSE", ".gitignore", CEILINGS.name)
GOLDEN = {"interactions", "steps", "stories"}
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
    return [Path(line) for line in lines if (ROOT / line).is_file()]


def name_room(file: Path) -> str:
    """The room that a file is in: the first folder, two of them below `statemachines`."""
    parts = file.parts[:-1] or ("root",)
    is_protocol = parts[1:2] and parts[1] in PROTOCOLS
    return "/".join(parts[: 2 if parts[0] == "statemachines" and not is_protocol else 1])


def count_statements(source: str) -> int:
    """Statements of a Python source, docstrings left out."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(
        isinstance(node, ast.stmt) - (isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None)
        for node in ast.walk(ast.parse(source))
    )


def weigh_text(file: Path, text: str) -> tuple[int, int]:
    """The weight of a file, and its golden lines."""
    if file.suffix == ".py":
        return count_statements(text), 0
    lines = [line for line in text.splitlines() if line.strip()]
    golden = (
        sum(line.startswith("    ") for line in lines) if file.suffix == ".txt" and file.parent.name in GOLDEN else 0
    )
    return len(lines) - golden, golden


def weigh() -> Counter[str]:
    """Room -> its weight; besides `sum` and `golden`."""
    found: Counter[str] = Counter()
    for file in list_files():
        if file.name.endswith(UNWEIGHED) or "certificates" in file.parts:
            continue
        weight, golden = weigh_text(file, (ROOT / file).read_text(encoding="utf-8", errors="replace"))
        found.update({name_room(file): weight, "sum": weight, "golden": golden})
    return found


def read_ceilings(commit: str = "") -> dict[str, Any]:
    """Those of the working tree, or of a commit ({}: it has none)."""
    if not commit:
        return tomllib.loads((ROOT / CEILINGS).read_text(encoding="utf-8"))
    shown = subprocess.run(["git", "show", f"{commit}:{CEILINGS}"], cwd=ROOT, capture_output=True, text=True)
    return tomllib.loads(shown.stdout) if shown.returncode == 0 else {}


def find_excess(found: Counter[str], ceilings: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """What is above its ceiling, or a ceiling of the sum that is higher than that of the commit before."""
    allowed = sum(ceilings["allowance"].values())
    limits = {**dict.fromkeys(found, 0), **ceilings["ceiling"], "sum": ceilings["ceiling"]["sum"] + allowed}
    excess = [
        f"{room}: {found[room]}, and its ceiling is {limit}" for room, limit in limits.items() if found[room] > limit
    ]
    was = before.get("ceiling", ceilings["ceiling"])["sum"]
    if ceilings["ceiling"]["sum"] > was:
        excess.append(f"the ceiling of the sum rose from {was} to {ceilings['ceiling']['sum']}: it only falls")
    return excess


def write_ceilings(found: Counter[str], ceilings: dict[str, Any]) -> None:
    """Lower each to what is there; the sum keeps what is allowed."""
    kept = {room: min(weight, ceilings["ceiling"].get(room, weight)) for room, weight in sorted(found.items())}
    lines = [f'"{room}" = {weight}' for room, weight in kept.items()]
    allowed = [f'"{title}" = {weight}' for title, weight in ceilings["allowance"].items()]
    text = "\n".join(["[ceiling]", *lines, "", "[allowance]", *allowed, ""])
    (ROOT / CEILINGS).write_text(text, encoding="utf-8")


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


def print_weight() -> int:
    """Two tables in Markdown on stdout, and what is above a ceiling."""
    found, ceilings = weigh(), read_ceilings()
    print("| room | weight | ceiling |\n|---|---:|---:|")
    for room, weight in found.most_common():
        print(f"| {room} | {weight:,} | {ceilings['ceiling'].get(room, 0):,} |")
    print("\n| protocol | branches outside its machines | in drivers | without exceptions |\n|---|---:|---:|---:|")
    for protocol in PROTOCOLS:
        branches = find_branches(protocol)
        drivers = [one for one in branches if one.file.startswith("statemachines/drivers")]
        print(f"| {protocol} | {len(branches)} | {len(drivers)} | {len(leave_exceptions(protocol, drivers))} |")
    excess = find_excess(found, ceilings, read_ceilings("HEAD^") or read_ceilings("HEAD"))
    print("\n".join(["", *excess]), file=sys.stderr)
    return 1 if excess else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--branches", choices=PROTOCOLS, metavar="PROTOCOL", help="list the branches of one protocol")
    parser.add_argument("--write", action="store_true", help="lower each ceiling to what is there")
    asked = parser.parse_args()
    if asked.write:
        write_ceilings(weigh(), read_ceilings())
    elif not asked.branches:
        return print_weight()
    for one in find_branches(asked.branches) if asked.branches else ():
        print(f"{one.file}:{one.line} {one.function}: {', '.join(one.words)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
