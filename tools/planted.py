"""Planted bugs: how soon each check finds each of them; a table in Markdown on stdout.

    python tools/planted.py                     every bug, 60 seconds of processor time for each method
    python tools/planted.py --seconds 5 late-timer one-expiry-timer
    python tools/planted.py --nothing           the same with no bug: nothing may break
    python tools/planted.py --protocol NAME     those of another protocol than shared_subscriptions
    python tools/planted.py --write             the table of spec/<protocol>/planted_bugs.md anew
    python tools/planted.py --write --method exploration        only these cells; the others stay as they are

Exit code 1 if a bug was found by no method, or if something broke where nothing was planted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from statemachines.kernel import ConfigurationError
from statemachines.testing.finding import METHODS, Found, find
from statemachines_spec.bug import Bug, bug_named, bugs

SPEC = Path(__file__).parents[1] / "spec"
HEAD = ("bug", "what is wrong", "clause", *METHODS)


def cell(found: Found) -> str:
    """What broke where, and how soon."""
    last = found.last
    if not found.what:
        return "-"
    size = f" by {last.steps} steps, {last.states} states" if last.states else ""
    return f"{found.what} in {last.where}{size}; {found.cpu_s:.1f} s"


def line(bug: Bug, cells: dict[str, str]) -> str:
    """One line of the table."""
    return f"| {' | '.join((f'`{bug.name}`', bug.sentence, bug.clause, *(cells[method] for method in METHODS)))} |"


def page_of(protocol: str) -> Path:
    """Where the table of the protocol stands."""
    return SPEC / protocol / "planted_bugs.md"


def kept(page: Path, bug: Bug) -> dict[str, str]:
    """Its cells as the page has them."""
    for row in (page.read_text().splitlines() if page.exists() else ()):
        cells = [one.strip() for one in row.strip("|").split("|")]
        if cells[0] == f"`{bug.name}`" and len(cells) == len(HEAD):
            return dict(zip(METHODS, cells[3:], strict=True))
    return dict.fromkeys(METHODS, "-")


def write(page: Path, lines: list[str]) -> None:
    """Put the table where the old one stands, or into a page of its own."""
    if not page.exists():
        page.write_text("# Planted bugs\n\n" + "\n".join(lines) + "\n\n")
        return
    text = page.read_text()
    begin = text.index("| bug | what is wrong |")
    end = text.index("\n\n", begin)
    page.write_text(text[:begin] + "\n".join(lines) + text[end:])


def nothing(protocol: str, methods: list[str], seconds: float) -> int:
    """The control: methods with no bug."""
    broke = 0
    for method in methods:
        found = find(protocol, None, method, cpu_s=seconds)
        print(f"{method}: {cell(found)} ({found.runs} runs, {found.cpu_s:.1f} s)", flush=True)
        broke += bool(found.what)
    return 1 if broke else 0


def main() -> int:
    """A line for each bug, as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bugs", nargs="*", help="names (default: all)")
    parser.add_argument("--protocol", default="shared_subscriptions", help="whose (default shared_subscriptions)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of processor time, each (default 60)")
    parser.add_argument("--nothing", action="store_true", help="plant nothing: nothing may break")
    parser.add_argument("--write", action="store_true", help="write the table into its page")
    parser.add_argument("--method", action="append", choices=list(METHODS), help="only this one; may be repeated")
    options = parser.parse_args()
    methods = options.method or list(METHODS)
    if options.nothing:
        return nothing(options.protocol, methods, options.seconds)
    try:
        chosen = [bug_named(f"{options.protocol}/{name}") for name in options.bugs]
        looked_for = chosen or list(bugs(options.protocol).values())
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    print("\n".join(lines), flush=True)
    missed = 0
    page = page_of(options.protocol)
    for bug in looked_for:
        cells = kept(page, bug) | {method: cell(find(options.protocol, bug, method, cpu_s=options.seconds)) for method in methods}
        lines.append(line(bug, cells))
        print(lines[-1], flush=True)
        missed += all(one == "-" for one in cells.values())
    if options.write and not options.bugs:
        write(page, lines)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
