"""Rows about what a node spends on MQTT clients and sessions: on a message of a `$share` group, on a backlog, and on
clients that only say that they live.

In `mqtt-share` node and clients are the same with a plain subscription, which is the baseline.  All messages are
published before the subscriber reads the first: so the member fills its session, and goes on as the client
acknowledges.  In `mqtt-resume` and `resume-cpu` the database of ours is filled once and copied for each turn; mosquitto
has its queue in memory, and is filled anew.  The client of ours is `PersistentSession` in `resume-cpu`.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Final, NamedTuple

from statemachines.drivers.persistent_sessions import PersistentSession
from statemachines.kernel import GaplessError
from statemachines.testing.mqtt_connections.mqtt_broker import KINDS, MqttBroker, find_program
from statemachines.testing.mqtt_connections.mqtt_socket import MqttSocket, publish_all
from statemachines.testing.process_harness import free_port
from statemachines_bench import sessions
from statemachines_bench.harness import (
    SharedRuns,
    compare,
    compare_sizes,
    copy_store,
    open_folder,
    read_cpu_s,
    read_memory,
    run_child,
    run_node,
)
from statemachines_bench.mqtt_traffic import PAYLOAD, PUBLISHERS, TOPIC, run_broker
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

SHARED: Final = 4_000
CLIENT: Final = "c"
WAITING: Final = "t"
"""Client and topic of the messages that wait, as `sessions.fill` has them."""

TICK_S: Final = 0.01
"""In which the system counts processor time."""

IDLE: Final = 2_000
AT_ONCE: Final = 50
"""Clients that connect at a time."""

SETTLE_S: Final = 3.0
WATCH_S: Final = 10.0
LEAST: Final = 0.01
"""Percent of a core: a tick of the system's account in 100 s."""


# -- a group ----------------------------------------------------------------------------------------------------------


def spend_on_message(topic_filter: str, messages: int) -> float:
    """Microseconds of the node's processor time a message, from the first publish to the last acknowledgement."""
    with open_folder() as folder, ExitStack() as stack:
        groups = ("--group-listen", f"127.0.0.1:{free_port()}")
        broker = stack.enter_context(MqttBroker("ours-process", folder / "broker", groups))
        reader = stack.enter_context(MqttSocket(broker.port, "reader", clean=False))
        reader.subscribe(topic_filter)
        clients = [stack.enter_context(MqttSocket(broker.port, f"p{one}")) for one in range(PUBLISHERS)]
        before = read_cpu_s(broker.pid)
        publish_all(clients, TOPIC, [PAYLOAD + str(number).encode() for number in range(messages)])
        came: set[bytes] = set()
        while len(came) < messages:
            found = reader.read_messages()
            came.update(one.payload for one in found)
            reader.acknowledge(found)
        spent = read_cpu_s(broker.pid) - before
    if not spent:
        raise GaplessError("the node has spent nothing")
    return spent / messages * 1e6


# -- a backlog --------------------------------------------------------------------------------------------------------


def take_backlog(port: int, rows: int) -> float:
    """Seconds of a `mosquitto_sub` until it has so many messages."""
    command = [find_program("mosquitto_sub"), "-p", str(port), "-c", "-i", CLIENT, "-q", "1", "-t", WAITING]
    began = perf_counter()
    subprocess.run([*command, "-C", str(rows)], stdout=subprocess.DEVNULL, check=True, timeout=280)
    return perf_counter() - began


def take_from_ours(kept: Path, rows: int) -> float:
    """A node that begins on a copy of the database."""
    with copy_store(kept) as path, MqttBroker("ours-process", path.parent) as broker:
        return take_backlog(broker.port, rows)


def take_from_mosquitto(take: Callable[[MqttBroker, int], float], kept: Path, rows: int) -> float:
    """What `take` says of a broker in whose memory so many messages wait."""
    with run_broker("mosquitto-memory") as broker, ExitStack() as stack:
        with MqttSocket(broker.port, CLIENT, clean=False) as reader:
            reader.subscribe(WAITING)
        clients = [stack.enter_context(MqttSocket(broker.port, f"p{one}")) for one in range(PUBLISHERS)]
        publish_all(clients, WAITING, [sessions.PAYLOAD] * rows)
        return take(broker, rows)


def spend_of_ours(kept: Path, rows: int) -> float:
    """Microseconds of the node's processor time a message, from the connect to the last acknowledgement."""
    with copy_store(kept) as path, run_node("sessions", "a", path) as (child, address):
        before = read_cpu_s(child.pid)
        asyncio.run(sessions.take_over_tcp(address, rows))
        return (read_cpu_s(child.pid) - before) / rows * 1e6


def spend_of_mosquitto(broker: MqttBroker, rows: int) -> float:
    """The same of the broker."""
    before = read_cpu_s(broker.pid)
    take_backlog(broker.port, rows)
    return max(read_cpu_s(broker.pid) - before, TICK_S) / rows * 1e6


# -- idle sessions ----------------------------------------------------------------------------------------------------


def allow_files() -> None:
    """As many open files as the system lets this process have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def run_idle(count: int) -> Iterator[tuple[int, int]]:
    """(pid of a node with so many idle sessions, bytes of its memory before they came)."""
    allow_files()
    with open_folder() as folder, ExitStack() as stack:
        node = run_node("sessions", "a", folder / "s.db", "--max-connections", str(2 * count + 10))
        child, address = stack.enter_context(node)
        before = read_memory(child.pid)
        stack.enter_context(run_child("statemachines_bench.session_costs", address, str(count)))
        sleep(SETTLE_S)
        yield child.pid, before


class IdleCost(NamedTuple):
    """What idle sessions cost a node."""

    cpu: float
    """Percent of a core."""
    memory: float
    """Bytes for each session."""


def measure_idle(count: int, watch_s: float) -> IdleCost:
    """Of so many sessions."""
    with run_idle(count) as (pid, memory_before):
        memory = max(1, read_memory(pid) - memory_before) / count
        before = read_cpu_s(pid)
        sleep(watch_s)
        watched_s = max(watch_s, LEAST)
        return IdleCost(max(LEAST, 100 * (read_cpu_s(pid) - before) / watched_s), memory)


@cache
def share_idle(size: Size) -> SharedRuns[IdleCost]:
    """Of many sessions: both rows read the same runs."""
    return SharedRuns(partial(measure_idle, *size.pick((IDLE, WATCH_S), (20, 0.5))))


async def connect_all(address: str, count: int) -> None:
    """Connect so many clients with a subscription each, say so, and stay."""
    clients = [PersistentSession(f"c{number}", nodes=(address,)) for number in range(count)]
    for place in range(0, count, AT_ONCE):
        some = clients[place : place + AT_ONCE]
        await asyncio.gather(*(one.__aenter__() for one in some))
        await asyncio.gather(*(one.subscribe(f"t/{number}") for number, one in enumerate(some, place)))
    print("connected", flush=True)
    await asyncio.Event().wait()


def prepare_cpu(size: Size) -> TurnPair:
    """Many sessions and one."""
    watch_s = size.pick(WATCH_S, 0.5)
    return TurnPair(share_idle(size).read(lambda cost: cost.cpu), lambda: measure_idle(1, watch_s).cpu)


def prepare_memory(size: Size) -> TurnPair:
    """Many sessions, and a twentieth of them."""
    few = size.pick(IDLE, 20) // 20
    return TurnPair(share_idle(size).read(lambda cost: cost.memory), lambda: measure_idle(few, 0.0).memory)


ROWS: Final = (
    BenchRow(
        name="mqtt-share",
        about=f"processor time of a node a message of a $share group with one member: {PUBLISHERS} publishers, "
        f"{SHARED:,} messages of QoS 1, which are all there before the member's client reads",
        unit="us / message",
        baseline_name="the same with a plain subscription",
        prepare=compare_sizes(
            spend_on_message,
            ((f"$share/g/{TOPIC}", SHARED), (TOPIC, SHARED)),
            ((f"$share/g/{TOPIC}", 300), (TOPIC, 300)),
        ),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=3.0,
    ),
    BenchRow(
        name="mqtt-resume",
        about=f"`mosquitto_sub -c -C {sessions.PENDING}`: as many stored messages of QoS 1 wait for it in our database",
        unit="s",
        baseline_name=f"{KINDS['mosquitto-memory'].title}: they wait in its memory",
        prepare=compare(
            take_from_ours,
            partial(take_from_mosquitto, lambda broker, rows: take_backlog(broker.port, rows)),
            (sessions.PENDING,),
            (40,),
            sessions.fill_waiting,
        ),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=3,
    ),
    BenchRow(
        name="resume-cpu",
        about=f"processor time of the node a message while a client of ours takes {sessions.PENDING} that wait, over "
        "TCP",
        unit="us",
        baseline_name=f"{KINDS['mosquitto-memory'].title}, `mosquitto_sub`",
        prepare=compare(
            spend_of_ours,
            partial(take_from_mosquitto, spend_of_mosquitto),
            (sessions.PENDING,),
            (2_000,),
            sessions.fill_waiting,
        ),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=8,
    ),
    BenchRow(
        name="session-idle",
        about=f"processor time of a node with {IDLE} idle sessions, each of which its client asks once a second",
        unit="% of a core",
        baseline_name="the same with one session",
        prepare=prepare_cpu,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
    BenchRow(
        name="session-idle-memory",
        about=f"memory of a node for each of {IDLE} idle sessions with one subscription",
        unit="bytes / session",
        baseline_name=f"the same with {IDLE // 20} sessions, which share what the node takes for any",
        prepare=prepare_memory,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
)


if __name__ == "__main__":
    allow_files()
    with suppress(KeyboardInterrupt):
        asyncio.run(connect_all(sys.argv[1], int(sys.argv[2])))
