"""Soak: rounds of simulated campaigns, of groups driven by Hypothesis, of real processes under faults, of a queue whose
processes are killed, and of fuzzed frames, for a given time.

    python tools/soak.py --minutes 10

A round runs some more seeds of a scenario; lets a real group (processes, TCP, SQLite) read through a bad network while
its members and its leader host are killed, stopped and lied to; explores a system against its certificate, two-phase
commit of ten by its number of states, and looks for a planted bug; kills and stops the nodes of sessions while
publishers go on, on SQLite and on PostgreSQL by turns, the more often the longer the soak is; lets sessions share
streams of groups, in storms and in the calm behind them; cuts members off the host that leads, and stops that host;
lets processes at a queue in shared memory be killed and stopped before chosen accesses, breaks calls at it off, and
lets a crowd of them come and go; cuts a link between sessions of zenoh, which comes back slow; starts a group on 70
000 topics beside busy processes; kills workers of a Spark cluster amid a campaign and an analysis, and a driver that
follows one; and fuzzes what reads frames. It appends a line of JSON with what it did to out/soak.jsonl; the number of
lines is the seed of the next round, so no two are the same.
At the first violation it ends with exit code 1, and says what repeats it or where the files are.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import msgspec
from soak_models import (
    damage_traces,
    drive,
    explore_again,
    explore_commit,
    fuzz_frames,
    judge_twice,
    restore_processes,
    simulate,
)
from soak_processes import (
    STORM,
    break_off,
    crash_queues,
    crowd_queue,
    cut_off,
    kill_mqtt_nodes,
    kill_nodes,
    pause_leaders,
    share_streams,
    slow_link,
    start_many_topics,
)
from soak_real_round import play_real
from soak_spark import run_followed, run_on_cluster
from soak_totals import Totals

from statemachines.kernel import GaplessError
from statemachines_bench.sessions import measure_backlog
from statemachines_sim.scenario import list_shipped_with

PROTOCOL = "shared_subscriptions"
QUEUE = "cursor_recovery"
LOG = Path("out/soak.jsonl")

COUNTS = {
    "seeds": (40, "simulated runs"),
    "frames": (50_000, "fuzzed inputs"),
    "inputs": (100_000, "inputs of declared processes, which are made anew from their value before each"),
    "examples": (200, "groups, and runs of a closed system"),
    "managers": (7, "resource managers of two-phase commit (7: 300 000 states); every eighth round has ten"),
    "crashes": (100, "crash runs of the queue"),
    "lives": (600, "processes that come to a queue"),
    "slow-samples": (3_000, "samples of zenoh that are put while a link is cut, which comes back with 200 kB/s"),
    "breaks": (2_000, "calls at a queue that are broken off amid an instruction"),
    "twice": (12, "scenarios that two judges see; eight rounds go through all of them"),
    "damages": (10, "times that each kind of damage is done to a trace"),
    "states": (10_000_000, "states at most, of a system that is explored again"),
    "topics": (70_000, "topics of a group that starts at once"),
    "cluster": (
        200,
        "runs of a campaign on a cluster of Spark, of its analysis, and of one that is followed; 0: none",
    ),
}
"""Option -> how many in a round, and of what."""

HURTS_A_MINUTE = 17
HURTS_MIN, HURTS_MAX = 30, 1_000
"""Faults in a run of sessions (nodes that are killed or stopped, or kept from their store), for each minute that the
soak lasts: a fault takes a second or more, so a run takes a third of it.  An hour has runs of a thousand.  MQTT clients
meet as many, in four runs at the same time."""
STORMS_A_MINUTE = 0.3
COMMIT_LARGE, COMMIT_ROUNDS = 10, 8
"""Resource managers of two-phase commit in one round of eight: 62 million states."""
BACKLOG, BACKLOG_MINUTES = 1_000_000, 30
"""Messages that wait for a session which resumes before the first round, and how long a soak lasts that begins so."""
PAUSES = 5
"""So many times a leading host stands still in a round."""
SERVED = 20
"""So many times each member that is cut off the leading host is to get messages."""


def one_round(seed: int, given: argparse.Namespace) -> Totals:
    """A round; whatever goes wrong in it is a violation."""
    done = Totals(seed=seed, rounds=1)
    scenarios = [name for name in list_shipped_with(PROTOCOL) if name not in ("quiet", "joins")]
    try:
        simulate(done, f"{PROTOCOL}/{scenarios[seed % len(scenarios)]}", given.seeds)
        fuzz_frames(done, given.frames)
        drive(done, given.examples)
        restore_processes(done, given.inputs)
        queues = tuple(list_shipped_with(QUEUE))
        simulate(done, f"{QUEUE}/{queues[seed % len(queues)]}", given.seeds)
        explore_again(done, given.states)
        explore_commit(done, COMMIT_LARGE if seed % COMMIT_ROUNDS == 0 else given.managers)
        judge_twice(done, given.twice)
        damage_traces(done, given.damages)
        crash_queues(done, given.crashes)
        break_off(done, given.breaks)
        crowd_queue(done, given.lives)
        slow_link(done, given.slow_samples)
        kill_nodes(done, given.hurts)
        kill_mqtt_nodes(done, given.hurts)
        share_streams(done, given.storm)
        start_many_topics(done, given.topics)
        cut_off(done, SERVED)
        pause_leaders(done, PAUSES)
        if done.violations:
            return done  # what comes next removes the files that were named
        play_real(done)
        run_on_cluster(done, given.cluster)
        run_followed(done, given.cluster)
    except GaplessError as error:
        done.count_violations(f"round {seed}: {error}")
    return done


def parse_options() -> argparse.Namespace:
    """What the command line says; faults follow from the minutes where it does not say how many."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10); one round at least")
    parser.add_argument("--log", type=Path, default=LOG, help=f"where a line is appended per round (default {LOG})")
    for name, (count, what) in COUNTS.items():
        parser.add_argument(f"--{name}", type=int, default=count, help=f"{what}, in a round (default {count})")
    often = f"{HURTS_A_MINUTE} for each minute, {HURTS_MIN} to {HURTS_MAX}"
    parser.add_argument("--hurts", type=int, default=0, help=f"faults in a round's run of sessions ({often})")
    often = f"{STORM} in each storm, a storm in {1 / STORMS_A_MINUTE:.1f} minutes"
    parser.add_argument("--storm", type=int, default=0, help=f"faults in a round's run of shared streams ({often})")
    given = parser.parse_args()
    given.storm = given.storm or STORM * max(1, round(STORMS_A_MINUTE * given.minutes))
    given.hurts = given.hurts or max(HURTS_MIN, min(HURTS_MAX, round(HURTS_A_MINUTE * given.minutes)))
    return given


def main() -> int:
    """Rounds until the time is up; one at least."""
    given = parse_options()
    end = time.monotonic() + 60 * given.minutes
    given.log.parent.mkdir(parents=True, exist_ok=True)
    if given.minutes >= BACKLOG_MINUTES:
        print(f"a session resumes {BACKLOG:,} messages: {measure_backlog(BACKLOG):.1f} us / message", flush=True)
    totals, seed = Totals(), len(given.log.read_bytes().splitlines()) if given.log.exists() else 0
    while not totals.violations and (totals.rounds == 0 or time.monotonic() < end):
        done = one_round(seed + totals.rounds, given)
        totals.add(done)
        with given.log.open("ab") as file:
            file.write(msgspec.json.encode(done) + b"\n")
    print(totals.summary())
    return 1 if totals.violations else 0


if __name__ == "__main__":
    sys.exit(main())
