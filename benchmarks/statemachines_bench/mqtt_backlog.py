"""The row about the backlog of an MQTT session: how soon `mosquitto_sub` has all that waits.

The database of ours is filled once and copied for each turn.  mosquitto has its queue in memory, and is filled anew.
"""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

from statemachines.testing.mqtt_connections.mqtt_broker import KINDS, MqttBroker, find_program
from statemachines.testing.mqtt_connections.mqtt_socket import MqttSocket, publish_all
from statemachines_bench.mqtt_traffic import run_broker
from statemachines_bench.row import Pair, Ratio, Row, Size
from statemachines_bench.sessions import PAYLOAD, PENDING, waiting

CLIENT: Final = "c"
TOPIC: Final = "t"
"""As `waiting` has them."""

FILLERS: Final = 16


def take_backlog(port: int, rows: int) -> float:
    """Seconds of a `mosquitto_sub` until it has so many messages."""
    command = [find_program("mosquitto_sub"), "-p", str(port), "-c", "-i", CLIENT, "-q", "1", "-t", TOPIC]
    began = perf_counter()
    subprocess.run([*command, "-C", str(rows)], stdout=subprocess.DEVNULL, check=True, timeout=280)
    return perf_counter() - began


def take_from_ours(rows: int) -> float:
    """A node that begins on a copy of the database."""
    with waiting(rows).copy_store() as path, tempfile.TemporaryDirectory(prefix="gapless-bench-") as name:
        folder = Path(name)
        (folder / "s.db").symlink_to(path)
        with MqttBroker("ours-process", folder) as broker:
            return take_backlog(broker.port, rows)


def take_from_mosquitto(rows: int) -> float:
    """A broker that was filled before."""
    with run_broker("mosquitto-memory") as broker, ExitStack() as stack:
        with MqttSocket(broker.port, CLIENT, clean=False) as reader:
            reader.subscribe(TOPIC)
        clients = [stack.enter_context(MqttSocket(broker.port, f"p{one}")) for one in range(FILLERS)]
        publish_all(clients, TOPIC, [PAYLOAD] * rows)
        return take_backlog(broker.port, rows)


def prepare(size: Size) -> Pair:
    """Both with as many messages."""
    rows = size.pick(PENDING, 40)
    waiting(rows)
    return Pair(partial(take_from_ours, rows), partial(take_from_mosquitto, rows))


ROWS: Final = (
    Row(
        name="mqtt-resume",
        about=f"`mosquitto_sub -c -C {PENDING}`: as many stored messages of QoS 1 wait for it in our database",
        unit="s",
        baseline_name=f"{KINDS['mosquitto-memory'].title}: they wait in its memory",
        prepare=prepare,
        ratio=Ratio.OURS_OVER_BASELINE,
        at_most=3,
    ),
)
