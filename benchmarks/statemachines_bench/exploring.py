"""Rows about the explorer: states a second, against the plainest search, which calls the machines every time."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from statemachines_bench.row import Pair, Ratio, Row

LARGE = ("borrower-crash", "ci")
"""System and size that is explored whole."""
MEDIUM = ("leader-crash", "small")
"""What pure Python explores whole."""
SPIN = ("pause", "small")
"""What SPIN explores whole, from the same entries."""
PREFIX = 20_000
"""States that the plainest search explores: of the large system it would take several minutes."""


def rate(name: str, size: str, engine: str) -> float:
    """States a second, from empty tables to the last state."""
    from statemachines_spec.explore import COMPLETE, explore
    from statemachines_spec.subscriptions.systems import system

    result = explore(system(name, size), engine=engine, hashing=False)
    assert result.ended == COMPLETE
    return result.states / result.seconds


def plainest(name: str, size: str) -> float:
    """States a second of the plainest search, on a prefix."""
    from statemachines_spec.direct import search
    from statemachines_spec.subscriptions.systems import system

    counts = search(system(name, size), PREFIX)
    return counts.states / counts.seconds


def prepare_compiled() -> Pair:
    rate("revoke-timeout", "small", "compiled")  # compiles the kernel, or loads it
    return Pair(lambda: rate(*LARGE, "compiled"), lambda: plainest(*LARGE))


def prepare_plain() -> Pair:
    return Pair(lambda: rate(*MEDIUM, "plain"), lambda: plainest(*MEDIUM))


def prepare_spin() -> Pair:
    from statemachines_spec.entries import Entries
    from statemachines_spec.explore import explore
    from statemachines_spec.promela import judge
    from statemachines_spec.subscriptions.systems import system

    entries = Entries(system(*SPIN))
    states = explore(entries.system, entries=entries, engine="plain", hashing=False).states

    def spin() -> float:
        with TemporaryDirectory() as folder:
            counts = judge(entries, Path(folder))
        assert counts.states == states
        return counts.states / counts.seconds

    rate("revoke-timeout", "small", "compiled")
    return Pair(lambda: rate(*LARGE, "compiled"), spin)


ROWS = (
    Row(
        name="explore",
        about=f"exploring {LARGE[0]} ({LARGE[1]}) by compiled tables, calls of the machines included",
        unit="states / s",
        baseline_name=f"plain Python search, first {PREFIX:,} states",
        prepare=prepare_compiled,
        ratio=Ratio.OURS_OVER_BASELINE,
        at_least=10,
        aim="1 000 000 states / s",
    ),
    Row(
        name="explore-python",
        about=f"exploring {MEDIUM[0]} ({MEDIUM[1]}) by tables in pure Python",
        unit="states / s",
        baseline_name=f"plain Python search, first {PREFIX:,} states",
        prepare=prepare_plain,
        ratio=Ratio.OURS_OVER_BASELINE,
        at_least=3,
        aim="70 000 states / s",
    ),
    Row(
        name="explore-spin",
        about=f"exploring {LARGE[0]} ({LARGE[1]}), against SPIN's search alone (generated C, breadth first)",
        unit="states / s",
        baseline_name=f"SPIN on the entries of {SPIN[0]} ({SPIN[1]})",
        prepare=prepare_spin,
        ratio=Ratio.OURS_OVER_BASELINE,
    ),
)
