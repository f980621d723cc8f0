"""Campaign: many seeds of a scenario, over local processes, with their traces in files of whole runs.

A file appears when its runs are done, so a campaign that was broken off is resumed file by file.  A file counts as done
if its table of runs is what these seeds would write now: same scenario, settings, versions and tables.

Steered campaign: its seeds are chosen round by round, by what the rounds before have covered.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from statemachines import registry
from statemachines.kernel import ConfigurationError
from statemachines.s3_path import file_system_of, show_path
from statemachines.trace.parquet import TraceWriter
from statemachines.trace.row import Run
from statemachines.whole_file import store_path
from statemachines.workers import open_workers
from statemachines_sim.fault import Fault
from statemachines_sim.protocol import settings as settings_of
from statemachines_sim.runfile import tables
from statemachines_sim.scenario import Scenario
from statemachines_sim.schedule import draw
from statemachines_sim.steering import Item, SeedSteering, list_covered
from statemachines_sim.swarm import draw_values
from statemachines_sim.world import RunOutcome, World

SEEDS_PER_FILE = 20
"""Runs in one trace file: the unit of work of a process."""


class CampaignJob(msgspec.Struct, frozen=True):
    """Some seeds for one process; `first_run` numbers its runs, `out` is where the trace goes ("" = nowhere).

    `settings`: what was set to another value than the scenario's file has (`KEY=VALUE`), for the table of runs.
    """

    scenario: Scenario
    seeds: tuple[int, ...]
    first_run: int
    out: str
    settings: tuple[str, ...] = ()
    is_resumed: bool = False
    """A file that is there, and is of these seeds, is not made again."""

    @property
    def name(self) -> str:
        """What its files are called after `trace-` and `runs-`."""
        return f"{self.scenario.name}-{self.first_run:06}"


def campaign(
    scenario: Scenario,
    seeds: range,
    *,
    out: Path | None = None,
    processes: int = 2,
    first_run: int = 0,
    progress: Callable[[int], None] | None = None,
    settings: tuple[str, ...] = (),
) -> list[RunOutcome]:
    """The outcomes in the order of the seeds; `progress(n)` is called as n more runs are done.

    `settings`: what the caller has set in the scenario (`override`), kept with the runs.
    """
    outcomes: list[RunOutcome] = []
    for done in campaign_parts(scenario, seeds, out=out, processes=processes, first_run=first_run, settings=settings):
        outcomes += done
        if progress is not None:
            progress(len(done))
    return outcomes


def campaign_parts(
    scenario: Scenario,
    seeds: range,
    *,
    out: Path | None = None,
    processes: int = 2,
    first_run: int = 0,
    settings: tuple[str, ...] = (),
    is_resumed: bool = False,
) -> Iterator[list[RunOutcome]]:
    """As `campaign`, some outcomes at a time: who is interrupted has those that came before, and their trace.

    `is_resumed`: what an earlier campaign has left in `out` is not run again.
    """
    jobs = list(list_jobs(scenario, seeds, out, first_run, settings, is_resumed))
    if processes <= 1 or len(jobs) == 1:
        yield from map(run_job, jobs)
        return
    check_sendable(jobs[0])
    with open_workers(processes) as pool:
        yield from pool.map(run_job, jobs)


def check_sendable(job: CampaignJob) -> None:
    """Another process can be given the job; raises `ConfigurationError` for a scenario whose protocol was made at run
    time, or stands in a notebook."""
    rule = (
        "is made at run time, so no other process can have it; put it into a module and name it module:ATTRIBUTE, "
        "or run the campaign in this process: processes=1"
    )
    try:
        data = pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigurationError("protocol", job.scenario.sim.name, f"{rule} ({error})") from error
    if b"__main__" in data and not hasattr(sys.modules["__main__"], "__file__"):
        raise ConfigurationError("protocol", job.scenario.sim.name, rule)
    if isinstance(job.scenario.protocol, str):
        registry.check_importable(registry.protocol(job.scenario.protocol), "run it in this process: processes=1")


def run_job(job: CampaignJob) -> list[RunOutcome]:
    """Run its seeds one after the other; the trace file appears when all are done."""
    done = read_outcomes(job) if job.is_resumed and job.out else None
    return [outcome for _, outcome in run_worlds(job)] if done is None else done


def run_worlds(job: CampaignJob) -> Iterator[tuple[World, RunOutcome]]:
    """Each run of a job, when it has ended; their file is whole when no more is asked for."""
    with TraceWriter(store_path(job.out, "--trace"), job.name) if job.out else nullcontext() as writer:
        for number, seed in enumerate(job.seeds):
            world = World(job.scenario, seed)
            outcome = world.run()
            if writer is not None:
                writer.add(run_row(job.scenario, outcome, job.first_run + number, job.settings), world.rows)
            yield world, outcome


def read_outcomes(job: CampaignJob) -> list[RunOutcome] | None:
    """The outcomes of a job whose files are there, whole, and what the job would write; None for any others."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = store_path(job.out, "--trace")
    trace, runs = (str(out / f"{kind}-{job.name}.parquet") for kind in ("trace", "runs"))
    store = file_system_of(out)
    try:
        rows = pq.read_metadata(trace, filesystem=store).num_rows
        lines = [msgspec.convert(line, Run) for line in pq.read_table(runs, filesystem=store).to_pylist()]
        outcomes = [read_outcome(line) for line in lines]
    except (OSError, pa.ArrowException, msgspec.MsgspecError):
        return None
    numbered = enumerate(outcomes, job.first_run)
    again = [run_row(job.scenario, outcome, number, job.settings) for number, outcome in numbered]
    is_same = again == lines and tuple(one.seed for one in outcomes) == job.seeds
    return outcomes if is_same and rows == sum(one.rows for one in outcomes) else None


def read_outcome(run: Run) -> RunOutcome:
    """The outcome that `run_row` wrote.  What the watch counted stands behind the fields, and before the protocol; a
    count that is called like a field stands in its place, and the field under `outcome`."""
    facts = msgspec.json.decode(run.parameters, type=dict[str, Any])
    names = list(facts)
    counted = names[: names.index("protocol") if "protocol" in names else 0]
    hidden = facts.get("outcome", {})
    own = set(RunOutcome.__struct_fields__)
    tally = {name: facts[name] for name in counted if name in hidden or name not in (*own, "outcome")}
    fields = {name: facts[name] for name in own & facts.keys()} | hidden
    return msgspec.convert(fields | {"tally": tally}, RunOutcome)


def run_row(
    scenario: Scenario,
    outcome: RunOutcome,
    run: int,
    settings: tuple[str, ...] = (),
    schedule: tuple[Fault, ...] | None = None,
) -> Run:
    """The line of a run in the table of runs: its parameters are what came out, and everything it follows from.
    `schedule`: that of the run, where its seed did not draw it."""
    sim = scenario.sim
    facts = msgspec.structs.asdict(outcome)
    tally = facts.pop("tally")
    hidden = {name: facts[name] for name in tally if name in facts}
    facts |= tally | ({"outcome": hidden} if hidden else {})
    facts["protocol"] = sim.name
    facts["schedule"] = draw(scenario, outcome.seed) if schedule is None else schedule
    facts["settings"] = settings_of(scenario)
    facts["set"] = settings
    facts["swarm"] = draw_values(scenario, outcome.seed)
    facts |= sim.facts(scenario.own, scenario)
    return Run(
        run,
        scenario.name,
        outcome.seed,
        msgspec.json.encode(facts).decode(),
        "held" if outcome.is_held else f"{outcome.monitor}: {outcome.detail}",
        msgspec.json.encode({"gapless": version("gapless"), "simpy": version("simpy")}).decode(),
        msgspec.json.encode(tables(sim.name)).decode(),
    )


def list_jobs(
    scenario: Scenario,
    seeds: Sequence[int],
    out: Path | None,
    first_run: int,
    settings: tuple[str, ...],
    is_resumed: bool = False,
) -> Iterator[CampaignJob]:
    """A job for each file; without files some hundred smaller ones, so that an interrupted campaign has its runs."""
    size = SEEDS_PER_FILE if out is not None else min(SEEDS_PER_FILE, 1 + len(seeds) // 200)
    for begin in range(0, len(seeds), size):
        part = tuple(seeds[begin : begin + size])
        yield CampaignJob(
            scenario, part, first_run + begin, "" if out is None else show_path(out), settings, is_resumed
        )


ROUND: Final = 2 * SEEDS_PER_FILE
"""Seeds that are chosen together: however many processes there are, they are the same."""


def steered_parts(
    scenario: Scenario, seeds: range, *, out: Path | None = None, processes: int = 2, settings: tuple[str, ...] = ()
) -> Iterator[list[RunOutcome]]:
    """As `campaign_parts`, with as many seeds as these, from the first of them on, and others left out."""
    steering = SeedSteering(scenario, seeds.start)
    with open_workers(processes) if processes > 1 else nullcontext() as pool:
        for begin in range(0, len(seeds), ROUND):
            chosen = steering.choose(min(ROUND, len(seeds) - begin))
            jobs = list(list_jobs(scenario, chosen, out, begin, settings))
            check_sendable(jobs[0])
            for found in map(run_covered, jobs) if pool is None else pool.map(run_covered, jobs):
                for outcome, covered in found:
                    steering.note(outcome.seed, covered)
                yield [outcome for outcome, _ in found]


def run_covered(job: CampaignJob) -> list[tuple[RunOutcome, frozenset[Item]]]:
    """The outcomes of a job, each with what its run has covered."""
    return [(outcome, list_covered(world.rows)) for world, outcome in run_worlds(job)]
