"""Planted bugs: how soon each check finds each of a protocol's; a table in Markdown on stdout.

    python tools/planted.py                     every bug of every protocol, 60 s of processor time for each method
    python tools/planted.py --protocol shared_subscriptions --seconds 5 late-timer one-expiry-timer
    python tools/planted.py --tries 62          no more than so many runs for each method, however long they take: the
                                                verdicts are the same everywhere
    python tools/planted.py --nothing           the same with no bug: nothing may break
    python tools/planted.py --write             the table of planted_bugs.md anew, beside the clauses of the protocol
    python tools/planted.py --write --method exploration        only these cells; the others stay as they are

Exit code 1 if a bug was found by no method, or if something broke where nothing was planted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from statemachines import catalogue, registry
from statemachines.kernel import ConfigurationError
from statemachines.testing.bug_search import METHODS, BugSearchResult, find, methods_of
from statemachines_spec.bug import Bug, find_bug
from statemachines_spec.protocol import all_parts, of_protocol

FIRST = ("bug", "what is wrong", "clause")
NAME = "planted_bugs.md"


def head(methods: tuple[str, ...]) -> list[str]:
    """The first lines of a table of these methods."""
    columns = (*FIRST, *methods)
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]


def page_of(protocol: str) -> Path:
    """The page with the table of a protocol, beside its clauses; it need not be there yet."""
    return catalogue.page(protocol).with_name(NAME)


def cell(found: BugSearchResult) -> str:
    """What broke where, and how soon."""
    last = found.last
    if not found.what:
        return "-"
    size = f" by {last.steps} steps, {last.states} states" if last.states else ""
    return f"{found.what} in {last.where}{size}; {found.cpu_s:.1f} s"


def line(bug: Bug, cells: dict[str, str]) -> str:
    """One line of the table."""
    return f"| {' | '.join((f'`{bug.name}`', bug.sentence, bug.clause, *cells.values()))} |"


def read_cells(page: Path, bug: Bug, methods: tuple[str, ...]) -> dict[str, str]:
    """Its cells as the page has them."""
    found = dict.fromkeys(methods, "-")
    columns: list[str] = []
    for row in page.read_text().splitlines() if page.is_file() else ():
        cells = [one.strip() for one in row.strip("|").split("|")]
        if tuple(cells[:3]) == FIRST:
            columns = cells
        if cells[0] == f"`{bug.name}`" and len(cells) == len(columns):
            found |= zip(columns[3:], cells[3:], strict=True)
    return found


def write(page: Path, lines: list[str]) -> None:
    """Put the table where the old one stands; a page that is not there yet is made of it alone."""
    text = page.read_text() if page.is_file() else f"# Planted bugs\n\n{lines[0]}\n\n"
    begin = text.index(f"| {' | '.join(FIRST)} |")
    end = text.find("\n\n", begin)
    end = len(text.rstrip("\n")) if end < 0 else end
    page.write_text(text[:begin] + "\n".join(lines) + text[end:])


class Most(NamedTuple):
    """How much each search may cost."""

    seconds: float
    tries: int


def search_bug(protocol: str, bug: Bug | None, method: str, most: Most) -> BugSearchResult:
    """What a method finds."""
    return find(protocol, bug, method, cpu_s=most.seconds, tries=most.tries)


def nothing(protocol: str, methods: list[str], most: Most) -> int:
    """The control: methods with no bug."""
    broke = 0
    for method in methods:
        found = search_bug(protocol, None, method, most)
        print(f"{protocol}, {method}: {cell(found)} ({found.runs} runs, {found.cpu_s:.1f} s)", flush=True)
        broke += bool(found.what)
    return 1 if broke else 0


def table(protocol: str, names: list[str], methods: list[str], most: Most) -> tuple[list[str], int]:
    """A line for each bug, printed as soon as it is known; how many no method found."""
    page, columns = page_of(protocol), methods_of(protocol)
    lines, missed = head(columns), 0
    print("\n".join(lines), flush=True)
    for bug in [find_bug(f"{protocol}/{name}") for name in names] or of_protocol(protocol).bugs:
        cells = read_cells(page, bug, columns)
        cells |= {one: cell(search_bug(protocol, bug, one, most)) for one in methods or columns if one in cells}
        lines.append(line(bug, cells))
        print(lines[-1], flush=True)
        missed += all(one == "-" for one in cells.values())
    return lines, missed


def protocols_of(name: str) -> list[str]:
    """The protocol that is meant, or all that have bugs."""
    return [registry.protocol(name).name] if name else [one for one, part in all_parts().items() if part.bugs]


def positive(text: str) -> int:
    """A number of runs."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of runs: say one from 1 on")
    return int(text)


def most_of(options: argparse.Namespace) -> Most:
    """Runs are counted, or time is, or both."""
    forever = 60.0 if options.tries is None else float("inf")
    return Most(forever if options.seconds is None else options.seconds, options.tries or 10**9)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bugs", nargs="*", help="names (default: all)")
    parser.add_argument("--protocol", default="", help="only its bugs (default: every protocol that has any)")
    parser.add_argument("--seconds", type=float, help="of processor time, each (default 60; with --tries: no limit)")
    parser.add_argument("--tries", type=positive, help="runs, each (default: as many as there is time for)")
    parser.add_argument("--nothing", action="store_true", help="plant nothing: nothing may break")
    parser.add_argument("--write", action="store_true", help="write the table into its page")
    parser.add_argument("--method", action="append", choices=list(METHODS), help="only this one; may be repeated")
    return parser.parse_args()


def main() -> int:
    """The tables that were asked for."""
    options = arguments()
    methods = options.method or []
    most, missed = most_of(options), 0
    try:
        protocols = protocols_of(options.protocol)
        if options.nothing:
            return max(nothing(one, methods or list(methods_of(one)), most) for one in protocols)
        for protocol in protocols:
            lines, more = table(protocol, options.bugs, methods, most)
            missed += more
            if options.write and not options.bugs:
                write(page_of(protocol), lines)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
