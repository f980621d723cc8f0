"""Digests of simulated runs: one line for each shipped scenario and seed, so that two versions can be compared.

    python tools/sim_digests.py > before.txt
    python tools/sim_digests.py --check before.txt          exit code 1, and the lines that differ

A digest covers every row of the trace but its column `machine`, and what the run came to.  A change that is no change
of behaviour leaves all of them as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from statemachines_sim.scenario import find_scenario, list_shipped
from statemachines_sim.world import World

SEEDS = range(3)
MACHINE = 2
"""The column of a row that is left out."""


def line(run: tuple[str, int]) -> str:
    """Scenario, seed, rows, digest of the rows, what broke."""
    name, seed = run
    world = World(find_scenario(name), seed)
    outcome = world.run()
    digest = hashlib.sha256()
    for row in world.rows:
        digest.update(repr(row[:MACHINE] + row[MACHINE + 1 :]).encode())
    return f"{name.rpartition('/')[2]} {seed} {len(world.rows)} {digest.hexdigest()[:24]} {outcome.monitor or 'held'}"


def lines(processes: int) -> Iterator[str]:
    """Of all runs, in order."""
    runs = [(name, seed) for name in list_shipped() for seed in SEEDS]
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(line, runs)


def main() -> int:
    """Print or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=Path, help="compare with what was printed before")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    before = None if options.check is None else set(options.check.read_text().splitlines())
    differ = 0
    for one in lines(options.processes):
        if before is None or one not in before:
            differ += before is not None
            print(one, flush=True)
    print(f"{differ} lines differ", file=sys.stderr) if before is not None else None
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
