"""Processes: what a soak does to real ones: at a queue in shared memory, nodes of sessions, a link, groups."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

from soak_totals import Totals, empty_folder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "real"))

import carried_run
import many_topics_run
import mqtt_run
import progress_run
import sessions_run
import unreachable_run

from statemachines.testing.cursor_recovery import crash_run, crowd_run, interrupted_run
from statemachines.testing.postgres import PostgresServer

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


def kill_nodes(totals: Totals, faults: int) -> None:
    """Clients of sessions, and publishers that go on, while their nodes are killed and stopped: over a file, and in
    every other round over a PostgreSQL of its own."""
    folder = empty_folder("sessions")
    on_postgres = bool(totals.seed % 2)
    with PostgresServer() if on_postgres else nullcontext() as server:
        store = str(folder / "sessions.db") if server is None else server.database("sessions")
        done, answered, wrong = sessions_run.run_seed(folder, store, totals.seed, faults)
    totals.nodes_hurt += sum(done.values())
    totals.hurt_on_postgres += sum(done.values()) * on_postgres
    totals.hurt_in_a_run = sum(done.values())
    totals.through_sessions += answered
    again = f"python tests/real/sessions_run.py --first {totals.seed} --runs 1 --faults {faults}"
    again += " --store URL" * on_postgres
    totals.count_violations(
        *(f"sessions, seed {totals.seed}: {one}; files are in {folder}" for one in wrong), again=again
    )


def kill_mqtt_nodes(totals: Totals, faults: int) -> None:
    """MQTT clients of others keep their process while the nodes that they are at are killed and stopped, so many times
    in all: one node and two, over a file and over PostgreSQL, all four at the same time.  Each kind has its round."""
    folder = empty_folder("mqtt")
    client = mqtt_run.CLIENTS[totals.seed % len(mqtt_run.CLIENTS)]
    each = -(-faults // 4)

    async def play(names: str, store: str) -> None:
        kind = store.partition(":")[0] if ":" in store else "file"
        own = folder / f"{kind}-{len(names)}"
        own.mkdir()
        played = mqtt_run.play(own, store, client, totals.seed, each, kinds=("kill", "stop"), names=tuple(names))
        wrong, met, count, repeats = await played
        totals.mqtt_nodes_killed += met
        totals.mqtt_void += each - met
        totals.through_mqtt += count
        totals.mqtt_repeats += repeats
        again = (
            f"python tests/real/mqtt_run.py --client {client} --seed {totals.seed} --faults {each} --kinds kill,stop"
        )
        again += f" --nodes {len(names)}" + " --store postgres" * (kind != "file")
        what = f"{client}, seed {totals.seed}, {len(names)} nodes, {kind}"
        totals.count_violations(*(f"{what}: {one}; files are in {own}" for one in wrong), again=again)

    async def play_all(server: PostgresServer) -> None:
        places = [(names, str(folder / f"{names}.db")) for names in ("a", "ab")]
        places += [(names, server.database(f"mqtt_{names}")) for names in ("a", "ab")]
        await asyncio.gather(*(play(*one) for one in places))

    with PostgresServer() as server:
        asyncio.run(play_all(server))


def share_streams(totals: Totals, faults: int) -> None:
    """Sessions that share streams of groups, in storms of so many faults in all, and the calm behind each; over files,
    or a PostgreSQL of its own."""
    folder = empty_folder("carried")
    on_postgres = bool(totals.seed % 2)
    rounds = -(-faults // STORM)
    each = -(-faults // rounds)
    with PostgresServer() if on_postgres else nullcontext() as server:
        files = [str(folder / "sessions.db"), str(folder / "messages.db")]
        stores = files if server is None else [server.database("sessions"), server.database("streams")]
        done, what, wrong = carried_run.run_seed(folder, *stores, totals.seed, rounds, each, each)
    totals.hurt_sharing += what["hurt"]
    totals.calm_moves += sum(count for name, count in done.items() if name.startswith("calm"))
    totals.through_groups += what["given"]
    again = f"python tests/real/carried_run.py --first {totals.seed} --rounds {rounds} --faults {each} --moves {each}"
    again += " --store URL" * on_postgres
    totals.count_violations(
        *(f"shared streams, seed {totals.seed}: {one}; files are in {folder}" for one in wrong), again=again
    )


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
    folder = empty_folder("many")
    told = many_topics_run.run(folder, topics, BUSY, hosts=HOSTS)
    totals.many_topics += told.messages
    totals.claims_lost += told.elected - 1
    totals.count_violations(*(f"many topics: {what}; its files are in {folder}" for what in told.wrong))


def cut_off(totals: Totals, rounds: int) -> None:
    """Members that do not reach the leading host, in the way whose turn it is; they are to be served so many times."""
    way, stays = unreachable_run.CASES[totals.seed % len(unreachable_run.CASES)]
    folder = empty_folder("unreachable")
    came, wrong = unreachable_run.run_case(folder, way, stays, rounds)
    totals.cut_off += 1
    totals.through_relays += came
    totals.count_violations(*(f"members cut off ({way}, {stays}): {what}; files are in {folder}" for what in wrong))


def pause_leaders(totals: Totals, rounds: int) -> None:
    """The leading host of a group stands still for 2 s, at any moment: it keeps its claim."""
    folder = empty_folder("pauses")
    with progress_run.ProgressStage(folder) as stage:
        for told in progress_run.play_pauses(stage, rounds, progress_run.PAUSE_S, random.Random(totals.seed)):
            totals.leaders_paused += 1
            totals.count_violations(*[f"{told}; files are in {folder}"] * told.elected)


def crowd_queue(totals: Totals, lives: int) -> None:
    """As many processes as a queue takes come and go."""
    crowd = crowd_run.run_crowd(totals.seed, lives)
    totals.lives += crowd.lives
    totals.lives_killed += crowd.killed
    totals.through_queue += crowd.delivered
    totals.count_violations(*(f"crowd {totals.seed}: {name}: {text}" for name, text in crowd.violations))
