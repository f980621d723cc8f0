"""Broker kill: what is left of acknowledged messages for an absent client when its broker is killed.

Each row is one broker in one configuration.  `mosquitto_sub -c` subscribes and leaves, a publisher has so many messages
of QoS 1 acknowledged, and the broker gets SIGKILL right after the last PUBACK.  Then `mosquitto_sub -c` comes back: to
the same broker, started again on its files, or, of ours, to another node.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, Final

import msgspec

from statemachines.demo.protocol import Say
from statemachines.kernel import ConfigurationError
from statemachines.testing.mqtt_connections.mqtt_broker import MqttBroker, find_program
from statemachines.testing.mqtt_connections.mqtt_socket import MqttSocket, publish_all
from statemachines.testing.process_harness import free_port

KINDS: Final = ("mosquitto-persistence", "mosquitto-autosave", "nats", "ours-process")
OURS: Final = "ours-process"
MESSAGES: Final = 1_000
QUIET_S: Final = 4.0
"""A client that has got nothing for so long has got all that is left at a broker that is there again."""

PATIENCE_S: Final = 60.0
"""The same at another node of ours, which waits for the lease of the killed one."""

CLIENT: Final = "tablet"
TOPIC: Final = "demo/lines"
TIMES: Final = ("--lease-ms", "1000", "--look-ms", "200", "--marker-ms", "500")


class BrokerRow(msgspec.Struct, frozen=True):
    """What became of the messages at one broker."""

    title: str
    """The broker and its configuration."""
    published: int
    """Messages that were acknowledged before the kill; 0: the broker is not installed."""
    rate: float
    """Of them a second."""
    kept: int
    """Of them came afterwards."""
    is_ordered: bool
    place: str
    """Where the client came back."""

    @property
    def text(self) -> str:
        """The row in words."""
        if not self.published:
            return f"{self.title}: {self.place}"
        kept = f"{self.kept:,} of {self.published:,} kept"
        return f"{self.title}: {self.rate:,.0f} publishes/s; after SIGKILL {kept}, {self.place}"

    @property
    def is_whole(self) -> bool:
        """Everything came, in order."""
        return self.kept == self.published > 0 and self.is_ordered


def kill_brokers(
    out: Path, say: Say, kinds: tuple[str, ...] = KINDS, messages: int = MESSAGES, quiet_s: float = QUIET_S
) -> list[BrokerRow]:
    """A row for each broker; one that is not installed has a row that says so."""
    rows = []
    for kind in kinds:
        try:
            row = kill_broker(kind, out / kind, messages, quiet_s)
        except ConfigurationError as error:
            row = BrokerRow(kind, 0, 0, 0, False, str(error))
        rows.append(row)
        say(f"brokers: {row.text}")
    return rows


def kill_broker(kind: str, folder: Path, messages: int, quiet_s: float) -> BrokerRow:
    """One row."""
    with contextlib.ExitStack() as stack:
        first = other = MqttBroker(kind, folder, _name_node("a", folder) if kind == OURS else ())
        stack.enter_context(first)
        if kind == OURS:
            other = stack.enter_context(MqttBroker(kind, folder, _name_node("b", folder)))
        subprocess.run([*_command(first.port), "-E"], check=True, timeout=60)
        payloads = [b"%d" % number for number in range(messages)]
        with MqttSocket(first.port, "publisher") as publisher:
            began = time.perf_counter()
            publish_all([publisher], TOPIC, payloads)
            rate = messages / (time.perf_counter() - began)
            first.kill()
        if other is first:
            first.start()
        patience_s = quiet_s if other is first else PATIENCE_S
        found = read_lines([*_command(other.port), "-C", str(messages)], messages, patience_s)
    place = "the same broker, started again" if other is first else "at the other node"
    kept = list(dict.fromkeys(one for one in found if one in set(payloads)))
    return BrokerRow(first.kind.title, messages, rate, len(kept), kept == sorted(kept, key=int), place)


def _name_node(name: str, folder: Path) -> tuple[str, ...]:
    """The options of one of two nodes over the same file: they hear of each other through the store."""
    address = f"127.0.0.1:{free_port()}"
    return ("--name", name, "--store", str(folder / "s.db"), "--node-listen", address, *TIMES)


def _command(port: int) -> list[str]:
    return [find_program("mosquitto_sub"), "-p", str(port), "-c", "-i", CLIENT, "-q", "1", "-t", "demo/#"]


def _copy_lines(pipe: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    for one in pipe:
        lines.put(one)


def read_lines(command: list[str], count: int, quiet_s: float) -> list[bytes]:
    """What a process prints, until it has printed so many lines, or none for so many seconds."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        reading = threading.Thread(target=_copy_lines, args=(child.stdout, lines))
        reading.start()
        found: list[bytes] = []
        with contextlib.suppress(queue.Empty):
            while len(found) < count:
                found.append(lines.get(timeout=quiet_s).rstrip(b"\n"))
        child.kill()
        reading.join()
    return found
