"""Rows about the backlog of a session: how soon `mosquitto_sub` has all that waits, and what the broker spends on it.

The database of ours is filled once and copied for each turn.  mosquitto has its queue in memory, and is filled anew.
In `resume-cpu` the client of ours is `PersistentSession`, and that of mosquitto `mosquitto_sub`.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

from statemachines.testing.mqtt_connections.mqtt_broker import KINDS, MqttBroker, find_program
from statemachines.testing.mqtt_connections.mqtt_socket import MqttSocket, publish_all
from statemachines_bench.mqtt_traffic import run_broker
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.session_idle import read_cpu_s, run_child
from statemachines_bench.sessions import PAYLOAD, PENDING, open_waiting_store, take_over_tcp

CLIENT: Final = "c"
TOPIC: Final = "t"
"""As `waiting` has them."""

FILLERS: Final = 16
TICK_S: Final = 0.01
"""In which the system counts processor time."""


def take_backlog(port: int, rows: int) -> float:
    """Seconds of a `mosquitto_sub` until it has so many messages."""
    command = [find_program("mosquitto_sub"), "-p", str(port), "-c", "-i", CLIENT, "-q", "1", "-t", TOPIC]
    began = perf_counter()
    subprocess.run([*command, "-C", str(rows)], stdout=subprocess.DEVNULL, check=True, timeout=280)
    return perf_counter() - began


def take_from_ours(rows: int) -> float:
    """A node that begins on a copy of the database."""
    with open_waiting_store(rows).copy_store() as path, tempfile.TemporaryDirectory(prefix="gapless-bench-") as name:
        folder = Path(name)
        (folder / "s.db").symlink_to(path)
        with MqttBroker("ours-process", folder) as broker:
            return take_backlog(broker.port, rows)


def take_from_mosquitto(take: Callable[[MqttBroker], float], rows: int) -> float:
    """What `take` says of a broker in whose memory so many messages wait."""
    with run_broker("mosquitto-memory") as broker, ExitStack() as stack:
        with MqttSocket(broker.port, CLIENT, clean=False) as reader:
            reader.subscribe(TOPIC)
        clients = [stack.enter_context(MqttSocket(broker.port, f"p{one}")) for one in range(FILLERS)]
        publish_all(clients, TOPIC, [PAYLOAD] * rows)
        return take(broker)


def prepare(size: Size) -> TurnPair:
    """Both with as many messages."""
    rows = size.pick(PENDING, 40)
    open_waiting_store(rows)
    baseline = partial(take_from_mosquitto, lambda broker: take_backlog(broker.port, rows), rows)
    return TurnPair(partial(take_from_ours, rows), baseline)


# -- what the broker spends -------------------------------------------------------------------------------------------


def spend_of_ours(rows: int) -> float:
    """Microseconds of the node's processor time a message, from the connect to the last acknowledgement."""
    with open_waiting_store(rows).copy_store() as path, ExitStack() as stack:
        command = ("statemachines", "node", "sessions", "--store", str(path), "--name", "a", "--listen", "127.0.0.1:0")
        pid, address = stack.enter_context(run_child(*command))
        before = read_cpu_s(pid)
        asyncio.run(take_over_tcp(address, rows))
        return (read_cpu_s(pid) - before) / rows * 1e6


def spend_of_mosquitto(rows: int) -> float:
    """The same of the broker."""

    def take(broker: MqttBroker) -> float:
        before = read_cpu_s(broker.pid)
        take_backlog(broker.port, rows)
        return max(read_cpu_s(broker.pid) - before, TICK_S) / rows * 1e6

    return take_from_mosquitto(take, rows)


def prepare_cpu(size: Size) -> TurnPair:
    """Both with as many messages."""
    rows = size.pick(PENDING, 2_000)
    open_waiting_store(rows)
    return TurnPair(partial(spend_of_ours, rows), partial(spend_of_mosquitto, rows))


ROWS: Final = (
    BenchRow(
        name="mqtt-resume",
        about=f"`mosquitto_sub -c -C {PENDING}`: as many stored messages of QoS 1 wait for it in our database",
        unit="s",
        baseline_name=f"{KINDS['mosquitto-memory'].title}: they wait in its memory",
        prepare=prepare,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=3,
    ),
    BenchRow(
        name="resume-cpu",
        about=f"processor time of the node a message while a client of ours takes {PENDING} that wait, over TCP",
        unit="us",
        baseline_name=f"{KINDS['mosquitto-memory'].title}, `mosquitto_sub`",
        prepare=prepare_cpu,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=8,
    ),
)
