"""Count what shared rules of names and prose forbid: participles, functions without a verb, shared class names.

    python tools/voice.py            the counts, and what is over its limit
    python tools/voice.py --write    lower each limit in tools/voice.toml to what there is now
    python tools/voice.py --verbless the public functions whose first word is not in tools/verbs.txt

Limits only fall.  `tests/cli/test_repository.py` compares them with the tree.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "tools/voice.toml"
VERBS = ROOT / "tools/verbs.txt"
PREDICATES = {"is", "has", "can", "may", "was", "must", "does", "did", "had", "will", "should"}
CONVENTIONS = {"from", "to", "as", "with", "without", "of", "on", "main"}
"""First words that Python programmers expect: conversions, copies with a change, other constructors, callbacks."""
BARE = set(
    re.findall(
        r"\w+",
        """told made held known taken said shown kept heard asked counted drawn ended seen given found met lost sent due
        named gone left meant written begun fed grown chosen turned passed""",
    )
)
"""No public function, method or file has one of these as its whole name; private and nested ones have it ever less."""
DEFINED = re.compile(rf"\bdef _?({'|'.join(sorted(BARE))})\b")
WORDS_MAX = 30
RIDDLE = re.compile(r"(Who|Whom|What|Whoever|Whatever)\b(?![^.]*\?)")


def list_files(*patterns: str) -> list[Path]:
    names = subprocess.check_output(["git", "ls-files", *patterns], cwd=ROOT, text=True).split()
    return [ROOT / name for name in names if (ROOT / name).exists()]


def walk_statements(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all statements within it; expressions, which are most of a tree, hold no statement."""
    yield node
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        for one in getattr(node, block, ()):
            yield from walk_statements(one)


def list_product() -> list[Path]:
    """Python files that users import: no tests, and no tools."""
    return [path for path in list_files("*.py") if not {"tests", "tools"} & set(path.relative_to(ROOT).parts)]


def find_bare_names() -> tuple[list[str], list[str]]:
    """Functions, methods and files of the product that are called by a bare participle: public ones, and others."""
    public = [f"{path.relative_to(ROOT)}: the file" for path in list_product() if path.stem in BARE]
    others: list[str] = []
    for path in list_product():
        if not DEFINED.search(path.read_text()):
            continue  # to parse all files takes seconds
        for node in walk_statements(ast.parse(path.read_text())):
            is_open = isinstance(node, ast.Module | ast.ClassDef)
            for one in getattr(node, "body", ()):
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.removeprefix("_") in BARE:
                    found = public if is_open and one.name in BARE else others
                    found.append(f"{path.relative_to(ROOT)}:{one.lineno}: {one.name}")
    return public, others


def read_verbs() -> set[str]:
    """The words with which a public function may begin."""
    lines = VERBS.read_text().splitlines()
    return PREDICATES | CONVENTIONS | {word for line in lines if not line.startswith("#") for word in line.split()}


def find_verbless() -> list[str]:
    """Public functions and methods of the product whose first word is no verb; properties are nouns and stay out."""
    verbs, found = read_verbs(), []
    for path in list_product():
        classes: list[tuple[str, list[ast.stmt]]] = [("", ast.parse(path.read_text()).body)]
        for owner, body in classes:
            for one in body:
                if isinstance(one, ast.ClassDef):
                    classes.append((f"{owner}{one.name}.", one.body))
                elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and not one.name.startswith("_"):
                    is_noun = any(re.search(r"property$|\.setter$", ast.unparse(mark)) for mark in one.decorator_list)
                    if not is_noun and one.name.partition("_")[0] not in verbs:
                        found.append(f"{path.relative_to(ROOT)}:{one.lineno}: {owner}{one.name}")
    return found


def find_shared_classes() -> list[str]:
    """Names that two classes of the product have."""
    counts: Counter[str] = Counter()
    for path in list_product():
        code = re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
        counts.update(re.findall(r"^class (\w+)", code, re.MULTILINE))
    return sorted(name for name, count in counts.items() if count > 1)


def list_sentences(text: str) -> list[str]:
    """The sentences of a page: no code, no tables, no headings."""
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.DOTALL)
    prose = [line for line in text.splitlines() if not re.match(r"\s*[|#<]|    ", line)]
    blocks = re.split(r"\n\s*\n|\n\s*[-*] |\n\s*\d+\. ", "\n".join(prose))
    return [
        one.strip() for block in blocks for one in re.split(r"(?<=[.!?:])\s+", " ".join(block.split())) if one.strip()
    ]


def count_prose() -> dict[str, int]:
    """For each page that users read: sentences of more than 30 words, and such as begin with a riddle."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *list_files("docs/*.md", "*/README.md")]
    return {
        str(path.relative_to(ROOT)): sum(
            len(sentence.split()) > WORDS_MAX or RIDDLE.match(sentence) is not None
            for sentence in list_sentences(path.read_text())
        )
        for path in sorted(set(pages))
    }


def count_all() -> dict[str, int]:
    public, others = find_bare_names()
    bare = {"bare names": len(public), "bare private names": len(others)}
    found = {"functions without a verb": len(find_verbless()), "shared classes": len(find_shared_classes())}
    return {**bare, **found, **count_prose()}


def read_limits() -> dict[str, int]:
    return tomllib.loads(LIMITS.read_text())["limits"] if LIMITS.exists() else {}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true", help="lower the limits")
    arguments.add_argument(
        "--verbless", action="store_true", help="list the public functions whose first word is no verb"
    )
    given = arguments.parse_args()
    if given.verbless:
        print(*find_verbless(), sep="\n")
        return 0
    counts, limits = count_all(), read_limits()
    if given.write:
        lines = [f'"{name}" = {min(count, limits.get(name, count))}' for name, count in sorted(counts.items())]
        LIMITS.write_text(
            "# What is forbidden by the rules of names and prose, and still there; it only falls.\n\n[limits]\n"
        )
        with LIMITS.open("a") as file:
            file.write("\n".join(lines) + "\n")
    for name, count in counts.items():
        print(
            f"{count:5}  {name}"
            + (f"  (limit {limits[name]})" if count > limits.get(name, 0) and name in limits else "")
        )
    for one in chain(*find_bare_names()):
        print(one, file=sys.stderr)
    return int(any(count > limits.get(name, 0) for name, count in counts.items()) and not given.write)


if __name__ == "__main__":
    sys.exit(main())
