"""Broker kill: what is left of acknowledged messages for an absent client when its broker is killed.

Each row is one broker in one configuration.  `mosquitto_sub -c` subscribes and leaves, a publisher has so many messages
of QoS 1 acknowledged, and the broker gets SIGKILL right after the last PUBACK.  Then `mosquitto_sub -c` comes back: to
the same broker, started again on its files, or, of ours, to another node.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Final

from statemachines.demo.persistent_sessions.real import CLIENT, TIMES, TOPIC
from statemachines.demo.protocol import DemoStage, Figures
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


class BrokerKills:
    """A row for each broker, ours last; one that is not installed has a row that says so."""

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage

    def run(self) -> Figures:
        """Kill one after the other."""
        rows = []
        for kind in KINDS:
            try:
                row = kill_broker(kind, self._stage.out / kind)
            except ConfigurationError as error:
                row = {"kept": 0, "published": 0, "rate": 0.0, "is_ordered": False, "text": f"{kind}: {error}"}
            rows.append(row)
            self._stage.tell(row["text"])
        return {**rows[-1], "rows": rows, "text": "; ".join(one["text"] for one in rows)}


def kill_broker(kind: str, folder: Path) -> Figures:
    """One row: of messages that were `published`, and acknowledged before the kill, at a `rate` a second, so many came
    afterwards (`kept`), and in their order or not."""
    with contextlib.ExitStack() as stack:
        options = [_name_node(name, folder) for name in "ab"] if kind == OURS else [()]
        brokers = [stack.enter_context(MqttBroker(kind, folder, words)) for words in options]
        first, other = brokers[0], brokers[-1]
        subprocess.run([*_command(first.port), "-E"], check=True, timeout=60)
        payloads = [b"%d" % number for number in range(MESSAGES)]
        with MqttSocket(first.port, "publisher") as publisher:
            began = time.perf_counter()
            publish_all([publisher], TOPIC, payloads)
            rate = MESSAGES / (time.perf_counter() - began)
            first.kill()
        if other is first:
            first.start()
        patience_s = QUIET_S if other is first else PATIENCE_S
        found = read_lines([*_command(other.port), "-C", str(MESSAGES)], MESSAGES, patience_s)
    place = "the same broker, started again" if other is first else "at the other node"
    title = first.kind.title
    kept = list(dict.fromkeys(one for one in found if one in set(payloads)))
    return {
        "kept": len(kept),
        "published": MESSAGES,
        "rate": rate,
        "is_ordered": kept == sorted(kept, key=int),
        "text": f"{title}: {rate:,.0f} publishes/s; after SIGKILL {len(kept):,} of {MESSAGES:,} kept, {place}",
    }


def _name_node(name: str, folder: Path) -> tuple[str, ...]:
    """The options of one of two nodes over the same file: they hear of each other through the store."""
    address = f"127.0.0.1:{free_port()}"
    return ("--name", name, "--store", str(folder / "s.db"), "--node-listen", address, *TIMES)


def _command(port: int) -> list[str]:
    return [find_program("mosquitto_sub"), "-p", str(port), "-c", "-i", CLIENT, "-q", "1", "-t", "demo/#"]


def read_lines(command: list[str], count: int, quiet_s: float) -> list[bytes]:
    """What a process prints, until it has printed so many lines, or none for so many seconds."""
    found = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        while found.count(b"\n") < count and select.select([child.stdout], [], [], quiet_s)[0]:
            more = os.read(child.stdout.fileno(), 65_536)
            if not more:
                break
            found += more
        child.kill()
    return found.split(b"\n")[:-1]
