"""The trace of a scripted run: its rows, and its line in the table of runs."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import msgspec

from statemachines import registry
from statemachines.kernel.pmap import enc_hook
from statemachines.trace.parquet import TraceWriter
from statemachines.trace.row import Run
from statemachines_sim.replay_result import SimulatedReplay
from statemachines_sim.runfile import tables
from statemachines_spec.script.script import Script


def write_trace(to: Path, script: Script, run: SimulatedReplay) -> None:
    """The trace, in the directory `to`."""
    with TraceWriter(to, f"script-{script.system}") as writer:
        writer.add(run_row(script, run), run.rows)


def run_row(script: Script, run: SimulatedReplay) -> Run:
    """The line of the run in the table of runs."""
    broken = run.replayed.broken
    return Run(
        0,
        f"script-{script.system}",
        0,
        msgspec.json.encode(run.parameters, enc_hook=enc_hook).decode(),
        "; ".join(f"{name}: {detail}" for name, detail in broken.items()) or "held",
        msgspec.json.encode({"gapless": version("gapless")}).decode(),
        msgspec.json.encode(_tables(run)).decode(),
    )


def _tables(run: SimulatedReplay) -> dict[str, str]:
    """The fingerprints of the tables of every registered protocol that a machine in the trace is of."""
    named = {owner for row in run.rows if (owner := row[2].rpartition("/")[0])}
    found: dict[str, str] = {}
    for one in sorted(named & set(registry.names())):
        found |= tables(one)
    return found
