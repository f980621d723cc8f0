"""Rows about the explorer: states a second, against the plainest search, which calls the machines every time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

if TYPE_CHECKING:
    from statemachines_spec.explorer.entries import Entries

LARGE = ("borrower-crash", "large")
"""System and size that is explored whole: 63 million states, in about a minute."""
LARGE_STATES, LARGE_BYTES = 20_000_000, 24
"""What LARGE has at least, and what a state of it takes at most: a run that breaks either of them is no result."""
MEDIUM = ("leader-crash", "small")
"""What pure Python explores whole."""
SPIN = ("borrower-crash", "ci")
"""What two threads walk, and what SPIN explores whole, on its entries: 2.6 million states.  SPIN takes a hundred bytes
for each, and gets slower with their number: the large system would need 7 GB and five minutes."""
LITTLE = ("late-copies", "small")
"""What is explored in place of any of them at the small size."""
PREFIX = 20_000
"""States that the plainest search explores: of the large system it would take an hour."""


@cache
def rate(name: str, size: str, engine: str) -> float:
    """States a second of processor time, from empty tables to the last state; of one system found once."""
    from statemachines_spec.explorer.explore import COMPLETE, explore
    from statemachines_spec.shared_subscriptions.systems import system

    result = explore(system(name, size), engine=engine, hashing=False)
    assert result.ended == COMPLETE
    if (name, size) == LARGE:
        assert result.states >= LARGE_STATES
        assert result.bytes_per_state <= LARGE_BYTES
    return result.states / result.seconds


def measure_plainest(name: str, size: str, prefix: int) -> float:
    """States a second of the plainest search, on a prefix."""
    from statemachines_spec.explorer.direct import search
    from statemachines_spec.shared_subscriptions.systems import system

    counts = search(system(name, size), prefix)
    return counts.states / counts.seconds


def prepare_compiled(size: Size) -> TurnPair:
    rate("revoke-timeout", "small", "compiled")  # compiles the kernel, or loads it
    large, prefix = size.pick((LARGE, PREFIX), (LITTLE, 200))
    return TurnPair(lambda: rate(*large, "compiled"), lambda: measure_plainest(*large, prefix))


def prepare_plain(size: Size) -> TurnPair:
    medium, prefix = size.pick((MEDIUM, PREFIX), (LITTLE, 200))
    return TurnPair(lambda: rate(*medium, "plain"), lambda: measure_plainest(*medium, prefix))


def prepare_spin(size: Size) -> TurnPair:
    from statemachines_spec.explorer.entries import Entries
    from statemachines_spec.explorer.explore import explore
    from statemachines_spec.explorer.promela import judge
    from statemachines_spec.shared_subscriptions.systems import system

    large, medium = size.pick((LARGE, SPIN), (LITTLE, LITTLE))
    entries = Entries(system(*medium))
    states = explore(entries.system, entries=entries, engine="compiled", hashing=False).states

    def spin() -> float:
        with TemporaryDirectory() as folder:
            counts = judge(entries, Path(folder), "-O2")
        assert counts.states == states
        return counts.states / counts.seconds

    return TurnPair(lambda: rate(*large, "compiled"), spin)


def walk_all(entries: Entries, threads: int) -> int:
    """Walk to the last level; how many states."""
    from statemachines_spec.explorer.explore import STATES_MAX
    from statemachines_spec.explorer.walker_compiled import CompiledWalker

    walker = CompiledWalker(entries, states_max=STATES_MAX, hashing=False, threads=threads)
    while walker.levels[-1] != walker.levels[-2]:
        walker.advance()
    return walker.count


def prepare_two(size: Size) -> TurnPair:
    """Entries are made before: the walk is shared out.  By the clock on the wall, since who waits is not faster."""
    from statemachines_spec.explorer.entries import Entries
    from statemachines_spec.shared_subscriptions.systems import system

    entries = Entries(system(*size.pick(SPIN, LITTLE)))
    states = walk_all(entries, 1)

    def shared_out() -> float:
        began = perf_counter()
        assert walk_all(entries, 2) == states
        return states / (perf_counter() - began)

    def side_by_side() -> float:
        began = perf_counter()
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(walk_all, (entries, entries), (1, 1))) == [states, states]
        return 2 * states / (perf_counter() - began)

    return TurnPair(shared_out, side_by_side)


ROWS = (
    BenchRow(
        name="explore",
        about=f"exploring {LARGE[0]} ({LARGE[1]}: at least {LARGE_STATES:,} states, at most {LARGE_BYTES} bytes each) "
        "by compiled tables, calls of the machines included",
        unit="states / s",
        baseline_name=f"plain Python search, first {PREFIX:,} states",
        prepare=prepare_compiled,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=10,
        aim="1 000 000 states / s",
    ),
    BenchRow(
        name="explore-python",
        about=f"exploring {MEDIUM[0]} ({MEDIUM[1]}) by tables in pure Python",
        unit="states / s",
        baseline_name=f"plain Python search, first {PREFIX:,} states",
        prepare=prepare_plain,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=3,
        aim="70 000 states / s",
    ),
    BenchRow(
        name="explore-spin",
        about=f"exploring {LARGE[0]} ({LARGE[1]}), against SPIN's search alone (generated C, breadth first)",
        unit="states / s",
        baseline_name=f"SPIN on the entries of {SPIN[0]} ({SPIN[1]})",
        prepare=prepare_spin,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=3,
        aim="1 000 000 states / s",
    ),
    BenchRow(
        name="explore-two",
        about=f"walking {SPIN[0]} ({SPIN[1]}) in two threads, each with the states that fall to it by their digests",
        unit="states / s",
        baseline_name="two walkers side by side, each with all states",
        prepare=prepare_two,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.8,
    ),
)
