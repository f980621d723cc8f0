"""Rows about what a step of a campaign costs, protocol by protocol, and what a step of a replay does.

A campaign simulates, watches, and writes its trace; its steps are counted in that trace.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import process_time
from typing import Final

from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.simulation import MESSAGES, UNDER_WAY, measure_bare

SCENARIOS: Final = {
    "cursor_recovery": ("deaths", 2),
    "missed_samples": ("random_loss", 2),
    "persistent_sessions": ("sessions_storm", 1),
    "sequence_windows": ("crowded", 3),
    "shared_subscriptions": ("storm", 4),
}
"""Protocol -> its scenario, and how many seeds take some seconds."""


@contextmanager
def made_trace(scenario: str, seeds: int, *, data: bool = False) -> Iterator[tuple[Path, float]]:
    """The trace of a campaign in this process, for as long, and the processor seconds that it took."""
    from statemachines.trace.parquet import TraceWriter
    from statemachines_sim.campaign import run_row
    from statemachines_sim.scenario import find_scenario
    from statemachines_sim.world import World

    found = find_scenario(scenario)
    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder:
        began = process_time()
        with TraceWriter(Path(folder), "campaign") as writer:
            for seed in range(seeds):
                world = World(found, seed, data=data)
                outcome = world.run()
                writer.add(run_row(world.scenario, outcome, seed), world.rows)
        yield Path(folder) / "trace-campaign.parquet", process_time() - began


def count_steps(path: Path) -> int:
    """The steps in a trace file."""
    from statemachines_reports.columns import STEPS, read_columns

    return sum(len(columns.rows_of(*STEPS)) for columns in read_columns(path))


def measure_campaign(scenario: str, seeds: int) -> float:
    """Steps a second of a campaign on one core."""
    with made_trace(scenario, seeds) as (path, spent):
        return count_steps(path) / spent


def measure_replay(protocol: str, scenario: str, seeds: int) -> float:
    """Steps a second of level replay on one core, the reading of the file included."""
    from statemachines import registry
    from statemachines_reports.columns import Segment, read_columns
    from statemachines_reports.judge import Judges

    judges = Judges([registry.protocol(protocol)])
    check = next(check for name, _, check in judges.checks if name == "replay")
    with made_trace(f"{protocol}/{scenario}", seeds, data=True) as (path, _):
        began = process_time()
        segments = (Segment(columns, judges.lookup, lambda run: {}) for columns in read_columns(path))
        steps = sum(check.judge(segment).checked for segment in segments)
        return steps / (process_time() - began)


def prepare_campaign(protocol: str, size: Size) -> TurnPair:
    """A campaign against bare callbacks of SimPy."""
    scenario, seeds = SCENARIOS[protocol]
    messages = size.pick(MESSAGES, 2 * UNDER_WAY)
    return TurnPair(
        lambda: measure_campaign(f"{protocol}/{scenario}", size.pick(seeds, 1)),
        lambda: 1e9 / measure_bare(messages),
    )


def prepare_replay(size: Size) -> TurnPair:
    """A replay against the campaign that made the trace."""
    protocol = "shared_subscriptions"
    scenario, seeds = SCENARIOS[protocol]
    seeds = size.pick(seeds, 1)
    return TurnPair(
        lambda: measure_replay(protocol, scenario, seeds),
        lambda: measure_campaign(f"{protocol}/{scenario}", seeds),
    )


ROWS: Final = (
    *(
        BenchRow(
            name=f"campaign-{protocol.replace('_', '-')}",
            about=f"steps of a campaign of {protocol}/{scenario}, one core, watched and traced, beside bare callbacks",
            unit="steps / s",
            baseline_name="SimPy timeout + callback",
            prepare=partial(prepare_campaign, protocol),
            ratio=RatioKind.BASELINE_OVER_OURS,
            aim="20 000 steps/s",
        )
        for protocol, (scenario, _) in SCENARIOS.items()
    ),
    BenchRow(
        name="replay",
        about="steps of level replay on one core, with reading, of shared subscriptions under all faults",
        unit="steps / s",
        baseline_name="the campaign",
        prepare=prepare_replay,
        ratio=RatioKind.OURS_OVER_BASELINE,
        aim="150 000 steps/s",
    ),
)
