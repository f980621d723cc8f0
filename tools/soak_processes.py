"""Processes: what a soak does to real ones: at a queue in shared memory, nodes of sessions, a link, groups."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from soak_totals import Totals, empty_folder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "real"))

import run
from mqtt_subscribers import CLIENTS

from statemachines.testing.cursor_recovery import crash_run, crowd_run, interrupted_run

STORM = 8
"""Faults of a storm over sessions that share streams, and moves in the calm behind it: half a minute each."""
SLOW_LINK_S = 300.0
BUSY, HOSTS = 4, 2
"""Processes that keep the machine busy beside a group that starts on many topics at once, and its leader hosts."""


def crash_queues(totals: Totals, runs: int) -> None:
    """Some more plans of processes that die or stop at chosen accesses."""
    first = totals.seed * runs
    for seed in range(first, first + runs):
        totals.crash_runs += 1
        wrong = crash_run.run_seed(seed)
        again = f"python -m {crash_run.__name__} --runs 1 --first {seed}"
        totals.count_violations(*(f"crash run {seed}: {name}: {text}" for name, text in wrong), again=again)


def break_off(totals: Totals, places: int) -> None:
    """Calls at a queue, broken off before instructions of the interpreter: one, or two that are near each other."""
    chance = random.Random(totals.seed)
    counts = {kind: interrupted_run.play(kind) for kind in interrupted_run.KINDS}
    for _ in range(places):
        kind = chance.choice(interrupted_run.KINDS)
        first = chance.randint(1, counts[kind])
        second = [first + chance.randint(1, 60)] if chance.random() < 0.5 else []
        try:
            interrupted_run.play(kind, first, *second)
        except interrupted_run.PromiseBroken as error:
            totals.count_violations(f"a call that was broken off: {error}")
    totals.calls_broken_off += places


def play_workload(
    totals: Totals, name: str, faults: int, *, on_postgres: bool = False, **options: Any
) -> tuple[Counter[str], dict[str, Any]]:
    """A run of real processes that are hurt under a load: what was done, and what there was."""
    url = "postgres" if on_postgres else ""
    given = [f"--{option} {value}" for option, value in options.items()] + ["--store postgres"] * on_postgres
    folder = empty_folder(f"{name}{''.join(given)}".replace(" ", ""))
    again = " ".join([f"python tests/real/run.py {name} --first {totals.seed} --faults {faults}", *given])
    with run.prepare_store(url, run.find_workload(name), folder / "store.db") as store:
        done, said, wrong = run.run_seed(name, folder, store, totals.seed, faults, **options)
    totals.count_violations(*(f"{name}: {one}; files are in {folder}" for one in wrong), again=again)
    return done, said


def kill_nodes(totals: Totals, faults: int) -> None:
    """Clients of sessions, and publishers that go on, while their nodes are killed and stopped: over a file, and in
    every other round over a PostgreSQL of its own."""
    on_postgres = bool(totals.seed % 2)
    done, said = play_workload(totals, "sessions", faults, on_postgres=on_postgres)
    totals.nodes_hurt += done.total()
    totals.hurt_on_postgres += done.total() * on_postgres
    totals.hurt_in_a_run = done.total()
    totals.through_sessions += said["messages"]


def kill_mqtt_nodes(totals: Totals, faults: int) -> None:
    """MQTT clients of others keep their process while the nodes that they are at are killed and stopped, so many times
    in all: one node and two, over a file and over PostgreSQL, all four at the same time.  Each kind has its round."""
    each = -(-faults // 4)
    given = {"client": CLIENTS[totals.seed % len(CLIENTS)], "kinds": "kill,stop"}
    with ThreadPoolExecutor() as threads:
        places = itertools.product((1, 2), (False, True))
        runs = [
            threads.submit(play_workload, totals, "mqtt", each, nodes=nodes, on_postgres=on_postgres, **given)
            for nodes, on_postgres in places
        ]
    for one in runs:
        _, said = one.result()
        totals.mqtt_nodes_killed += said["met"]
        totals.mqtt_void += each - said["met"]
        totals.through_mqtt += said["messages"]
        totals.mqtt_repeats += said["sent again by the publisher"]


def share_streams(totals: Totals, faults: int) -> None:
    """Sessions that share streams of groups, in storms of so many faults in all, and the calm behind each; over files,
    or a PostgreSQL of its own."""
    rounds = -(-faults // STORM)
    each = -(-faults // rounds)
    done, said = play_workload(totals, "carried", each, on_postgres=bool(totals.seed % 2), rounds=rounds, moves=each)
    totals.hurt_sharing += said["hurt"]
    totals.calm_moves += sum(count for name, count in done.items() if name.startswith("calm"))
    totals.through_groups += said["given"]


def slow_link(totals: Totals, samples: int) -> None:
    """A link between sessions of zenoh is cut, and comes back slow; nothing that is cached may be given up."""
    if not samples:
        return
    command = [sys.executable, "-m", "statemachines.testing.missed_samples.slow_link_run", "--samples", str(samples)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SLOW_LINK_S)
    except subprocess.TimeoutExpired as error:
        totals.count_violations(f"slow link: {error}", again=" ".join(command))
        return
    totals.over_slow_link += sum(json.loads(line)["delivered"] for line in ended.stdout.splitlines())
    if ended.returncode:
        totals.count_violations(f"slow link: {ended.stdout}{ended.stderr}", again=" ".join(command))


def start_many_topics(totals: Totals, topics: int) -> None:
    """A group finds many topics beside busy processes; a second member joins, and gets half of them."""
    _, said = play_workload(totals, "many_topics", 0, topics=topics, busy=BUSY, hosts=HOSTS)
    totals.many_topics += said["messages"]
    totals.claims_lost += said["elected"] - 1


def cut_off(totals: Totals, rounds: int) -> None:
    """Members that do not reach the leading host, in the way whose turn it is; they are to be served so many times."""
    kinds = run.find_workload("unreachable").kinds
    way, stays = kinds[totals.seed // 2 % len(kinds)], not totals.seed % 2
    _, said = play_workload(totals, "unreachable", 1, way=way, stays=int(stays), rounds=rounds)
    totals.cut_off += 1
    totals.through_relays += said["messages"]


def pause_leaders(totals: Totals, rounds: int) -> None:
    """The leading host of a group stands still for 2 s, at any moment: it keeps its claim."""
    done, _ = play_workload(totals, "progress", rounds, what="pauses")
    totals.leaders_paused += done["pauses"]


def crowd_queue(totals: Totals, lives: int) -> None:
    """As many processes as a queue takes come and go."""
    crowd = crowd_run.run_crowd(totals.seed, lives)
    totals.lives += crowd.lives
    totals.lives_killed += crowd.killed
    totals.through_queue += crowd.delivered
    totals.count_violations(*(f"crowd {totals.seed}: {name}: {text}" for name, text in crowd.violations))
