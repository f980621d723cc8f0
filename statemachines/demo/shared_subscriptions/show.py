"""The demo, from the first process to the page: real part, simulated part, Spark, verdicts."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from statemachines.commands.progress import Advance
from statemachines.demo.shared_subscriptions import lines, real
from statemachines.demo.shared_subscriptions.real import Real, Say
from statemachines.kernel import ConfigurationError

SCENARIO = "storm"
STORES = ("sqlite", "postgres")
"""Where the real part keeps its messages; `postgres` adds a second, shorter real part."""

SHORT_INPUT = lines.OWN_SOURCE / "kernel"
"""What the second real part reads where no input is given."""

DELIVERIES, FAULTS, KINDS = 2_000, 10, 3
"""What each simulated run must have at least."""


class Simulated(msgspec.Struct, frozen=True):
    """What the simulated part came to; `wrong` lists what does not hold."""

    runs: int
    delivered: int
    duplicates: int
    faults: dict[str, int]
    rows: int
    seconds: float
    wrong: list[str]


class Line(msgspec.Struct, frozen=True):
    """A verdict of the table at the end."""

    part: str
    check: str
    held: bool
    figure: str


class Demo(msgspec.Struct):
    """Everything; `held` decides the exit status.  `postgres`: the second real part (None: not asked for)."""

    real: Real
    postgres: Real | None
    simulated: Simulated
    verdicts: list[Line]
    page: str
    seconds: float

    @property
    def held(self) -> bool:
        """Every verdict held."""
        return all(line.held for line in self.verdicts)


def run(out: Path, path: Path | None, seeds: int, say: Say, advance: Advance, store: str = "sqlite") -> Demo:
    """The whole demo; what an earlier one left in `out` is replaced.  `advance(done, total)` within the long parts."""
    from statemachines_reports.page import part_of, write_page
    from statemachines_reports.pipeline import analyze

    if store not in STORES:
        raise ConfigurationError("--store", store, f"must be {' or '.join(STORES)}")
    begin = time.monotonic()
    for name in ("real", "postgres", "sim", "report"):
        shutil.rmtree(out / name, ignore_errors=True)
    played = play("real", lambda: real.run(out / "real", path, say, advance), say)
    on_postgres = None
    if store == "postgres":
        on_postgres = play("postgres", lambda: run_on_postgres(out / "postgres", path, say, advance), say)
    simulated = simulate(out / "sim", seeds, say, advance)
    verdicts = real_lines("real", played)
    sources = [("real", "Real run", out / "real" / "trace")]
    if on_postgres is not None:
        verdicts += real_lines("postgres", on_postgres)
        sources.append(("postgres", "Real run on PostgreSQL", out / "postgres" / "trace"))
    verdicts += simulated_lines(simulated)
    parts = []
    for part, name, trace in (*sources, ("simulated", "Simulated runs", out / "sim")):
        say(f"spark: judging every step of the {name}")
        analysis = analyze(trace, out / "report" / part)
        for check in analysis.checks:
            figure = f"{check.checked:,} looked at"
            verdicts.append(Line(part, f"{check.name} ({check.level})", check.held, figure))
        parts.append(part_of(name, analysis))
    page = out / "report" / "index.html"
    lead = (
        f"{played.lines:,} lines of {played.topics} files through a real consumer group that loses a consumer and its "
        f"leading host to SIGKILL; the same machines in {simulated.runs} simulated runs under failures; every step of "
        "both judged by Spark."
    )
    write_page(page, "Shared subscriptions: a group that loses members and its leader", lead, parts)
    return Demo(played, on_postgres, simulated, verdicts, str(page), time.monotonic() - begin)


def play(part: str, run_it: Callable[[], Real], say: Say) -> Real:
    """A real part, and what it came to."""
    played = run_it()
    say(
        f"{part}: {played.acknowledged} of {played.lines} acknowledged, {played.duplicates} delivered twice, "
        f"{played.seconds:.0f} s"
    )
    return played


def run_on_postgres(out: Path, path: Path | None, say: Say, advance: Advance) -> Real:
    """The real part on a PostgreSQL server of its own, which is gone afterwards."""
    from statemachines.testing.postgres import PostgresServer

    with PostgresServer() as server:
        say(f"postgres: a private server on port {server.port}")
        return real.run(out, path or SHORT_INPUT, say, advance, store=server.database("demo"))


def simulate(out: Path, seeds: int, say: Say, advance: Advance) -> Simulated:
    """Many seeds of the storm, over all cores."""
    from statemachines_sim.campaign import campaign
    from statemachines_sim.scenario import named

    say(f"simulated: {seeds} seeds of the scenario {SCENARIO!r}")
    begin = time.monotonic()
    done = 0

    def progress(more: int) -> None:
        nonlocal done
        done += more
        advance(done, seeds)

    outcomes = campaign(named(SCENARIO), range(seeds), out=out, processes=os.cpu_count() or 1, progress=progress)
    wrong = [f"seed {one.seed}: {one.monitor}: {one.detail}" for one in outcomes if not one.held]
    faults: dict[str, int] = {}
    for one in outcomes:
        for kind, count in one.faults.items():
            faults[kind] = faults.get(kind, 0) + count
        if one.tally["delivered"] < DELIVERIES or sum(one.faults.values()) < FAULTS or len(one.faults) < KINDS:
            wrong.append(f"seed {one.seed} was too tame: {one.tally['delivered']} deliveries, faults {one.faults}")
    came = Simulated(
        len(outcomes),
        sum(one.tally["delivered"] for one in outcomes),
        sum(one.tally["duplicates"] for one in outcomes),
        dict(sorted(faults.items())),
        sum(one.rows for one in outcomes),
        time.monotonic() - begin,
        wrong,
    )
    listed = ", ".join(f"{count} {kind}" for kind, count in came.faults.items())
    say(f"simulated: {came.runs} runs, {came.delivered:,} messages delivered; {listed}; {came.seconds:.0f} s")
    return came


def real_lines(part: str, played: Real) -> list[Line]:
    """The verdicts of the consumers' own files."""
    whole = played.acknowledged == played.lines
    figure, twice = f"{played.acknowledged:,} of {played.lines:,}", f"{played.duplicates:,} twice"
    return [
        Line(part, "every line acknowledged (own files)", whole, figure),
        Line(part, "twice only after a kill or a pause (own files)", not played.wrong, twice),
    ]


def simulated_lines(simulated: Simulated) -> list[Line]:
    """The verdicts of the monitors."""
    figure = f"{simulated.runs} runs, {sum(simulated.faults.values()):,} faults"
    return [Line("simulated", "every monitor (S1-S14, L1-L10)", not simulated.wrong, figure)]
