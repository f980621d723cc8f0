"""Planted bugs: how soon each check finds each of them; a table in Markdown on stdout.

    python tools/planted.py                     every bug, 60 seconds of processor time for each method
    python tools/planted.py --seconds 5 late-timer one-expiry-timer

Exit code 1 if a bug was found by no method.
"""

from __future__ import annotations

import argparse
import sys

from statemachines.kernel import ConfigurationError
from statemachines.testing.finding import METHODS, find
from statemachines_spec.planted import BUGS, bug_named


def main() -> int:
    """A line for each bug, as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bugs", nargs="*", help="names (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of processor time, each (default 60)")
    options = parser.parse_args()
    try:
        bugs = [bug_named(name) for name in options.bugs] or list(BUGS)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"| bug | clause | {' | '.join(METHODS)} |")
    print(f"|---|---|{'---|' * len(METHODS)}")
    missed = 0
    for bug in bugs:
        found = [find(bug, method, cpu_s=options.seconds) for method in METHODS]
        cells = [f"{one.what}, {one.cpu_s:.2f} s" if one.what else f"not in {one.cpu_s:.0f} s" for one in found]
        print(f"| {bug.name} | {bug.clause} | {' | '.join(cells)} |", flush=True)
        missed += not any(one.what for one in found)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
