"""Pages of the repository for the site: which there are, and their text as Python-Markdown reads it.

Pages keep their place in the repository as their address, so that every link in them leads to the same page as there.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
FENCE = re.compile(r"\s*```")
LANGUAGE = re.compile(r"(\s*```\w+) +([^\s=]+)( \+)?$")
ITEM = re.compile(r" *([-*]|\d+\.) ")
CLAUSE = re.compile(r"- \*\*`?([A-Z][A-Z0-9]*(?:-[A-Z]*\d+)?)\b(?!-)")


def list_pages() -> list[str]:
    """Every page that the repository has, by its path."""
    found = subprocess.check_output(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT)
    return sorted(name for name in found.decode().split() if (ROOT / name).exists())


def list_linked_files(page: str) -> set[str]:
    """Files that a page links to and that are no pages: the site has a copy of each."""
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = {(ROOT / page).parent.joinpath(link).resolve() for link in LINK.findall(text) if ":" not in link}
    return {str(one.relative_to(ROOT)) for one in targets if one.is_file() and one.suffix != ".md"}


def adapt_markdown(text: str) -> str:
    """The text of a page as Python-Markdown needs it: a blank line before a list, nested items four columns in, the
    name of a listing's file as its title, and an anchor at each clause, property and decision."""
    lines: list[str] = []
    fenced = listed = False
    seen: set[str] = set()
    for line in text.splitlines():
        if FENCE.match(line):
            if not fenced:
                line = LANGUAGE.sub(_title, line)
            fenced = not fenced
        elif not fenced and ITEM.match(line) and (listed or not line.startswith("    ")):
            if not listed and lines and lines[-1].strip():
                lines.append("")
            listed = True
            line = _anchor(line, seen)
        elif not fenced and listed and line.strip() and not line.startswith(" "):
            listed = bool(lines and lines[-1].strip())  # a lazy continuation of the item
        indent = len(line) - len(line.lstrip(" "))
        lines.append(" " * indent + line if listed and indent else line)
    return "\n".join(lines) + "\n"


def _title(found: re.Match[str]) -> str:
    return f'{found[1]} title="{found[2]}{", continued" if found[3] else ""}"'


def _anchor(line: str, seen: set[str]) -> str:
    found = CLAUSE.match(line)
    if found is None or found[1] in seen:
        return line
    seen.add(found[1])
    return f'- <a id="{found[1].lower()}"></a>{line[2:]}'
