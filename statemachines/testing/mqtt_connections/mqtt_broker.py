"""MqttBroker: an MQTT broker as a process of its own, ours or another's, in a named configuration.

    with MqttBroker("mosquitto-autosave", folder) as broker:
        publish to 127.0.0.1, broker.port; broker.kill(); broker.start()

It keeps its port and its files over a kill, and everything of it has ended when the `with` is left.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.testing.process_harness import free_port

START_S: Final = 60.0
MOSQUITTO: Final = (
    "user root\nallow_anonymous true\nmax_queued_messages 0\n"  # root keeps its rights, to write into our folder
    "persistence_location {folder}/\nlistener {port} 127.0.0.1\n"
)
NATS: Final = (
    'server_name: one\nlisten: "127.0.0.1:-1"\njetstream {{ store_dir: "{folder}" }}\n'
    'mqtt {{ listen: "127.0.0.1:{port}" }}\n'
)


class BrokerKind(NamedTuple):
    """A broker in one configuration."""

    title: str
    fsync: str
    """When it flushes a message to the disk."""
    program: str
    """Debian's package has the same name; empty: it is ours."""
    write_command: Callable[[str, Path, int], list[str]]
    """Program, folder, port -> the command line; it writes the configuration into the folder."""


def _ours(durability: str) -> Callable[[str, Path, int], list[str]]:
    def write_command(program: str, folder: Path, port: int) -> list[str]:
        words = ["--store", str(folder / "s.db"), "--name", "a", "--listen", f"127.0.0.1:{port}"]
        return [sys.executable, "-m", "statemachines", "node", "mqtt", *words, "--durability", durability]

    return write_command


def _configured(text: str, *options: str) -> Callable[[str, Path, int], list[str]]:
    """A program that reads this configuration."""

    def write_command(program: str, folder: Path, port: int) -> list[str]:
        path = folder / "broker.conf"
        path.write_text(text.format(folder=folder, port=port))
        return [program, *options, "-c", str(path)]

    return write_command


def find_program(name: str) -> str:
    """Its path; that of mosquitto may stand in the environment variable MOSQUITTO.

    Raises:
        ConfigurationError: It is not installed.
    """
    given = os.environ.get("MOSQUITTO") if name == "mosquitto" else None
    found = shutil.which(given or name) or shutil.which(given or name, path="/usr/sbin")
    if found is None:
        mend = "MOSQUITTO names no program" if given else f"install the package {name!r} (Debian's name)"
        raise ConfigurationError("broker", given or name, f"is not there; {mend}")
    return found


def name_mosquitto() -> str:
    """With its version, if it is there."""
    try:
        said = subprocess.run([find_program("mosquitto"), "-h"], capture_output=True, text=True).stdout
    except ConfigurationError:
        return "mosquitto"
    return said.partition("\n")[0].replace(" version", "")


THEIRS: Final = name_mosquitto()

KINDS: Final = {
    "ours-power": BrokerKind("gapless, --durability power", "before PUBACK", "", _ours("power")),
    "ours-process": BrokerKind("gapless, --durability process", "at a checkpoint", "", _ours("process")),
    "mosquitto-memory": BrokerKind(
        f"{THEIRS}, persistence false", "never", "mosquitto", _configured(MOSQUITTO + "persistence false\n")
    ),
    "mosquitto-persistence": BrokerKind(
        f"{THEIRS}, persistence true", "every 30 minutes", "mosquitto", _configured(MOSQUITTO + "persistence true\n")
    ),
    "mosquitto-autosave": BrokerKind(
        f"{THEIRS}, autosave_on_changes true, autosave_interval 1",
        "after PUBACK, the whole queue",
        "mosquitto",
        _configured(MOSQUITTO + "persistence true\nautosave_on_changes true\nautosave_interval 1\n"),
    ),
    "nats": BrokerKind("nats-server, JetStream's MQTT listener", "every 2 minutes", "nats-server", _configured(NATS)),
}


class MqttBroker:
    """One broker.

    Args:
        kind: of `KINDS`.
        folder: for its files; made where it is missing.
        options: of its command line, behind those of its kind.

    Raises:
        ConfigurationError: Its program is not installed.
    """

    def __init__(self, kind: str, folder: Path, options: Sequence[str] = ()) -> None:
        self.kind = KINDS[kind]
        self.port = free_port()
        program = find_program(self.kind.program) if self.kind.program else ""
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "broker.log"
        self._command = [*self.kind.write_command(program, folder, self.port), *options]
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._child is not None
        return self._child.pid

    def start(self) -> None:
        """Begin it, or begin it again; it takes connections when this returns."""
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError as error:
                if self._child.poll() is not None or time.monotonic() > end:
                    said = self._log.read_text(errors="replace")[-500:]
                    raise GaplessError(f"{self.kind.title} did not start: {said}") from error
                time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.kill()
