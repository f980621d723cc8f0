"""ProcessHarness: real `gapless node` processes that are started, waited for, killed, stopped, and always reaped.

    with ProcessHarness(folder, common=("--store", "locks.db")) as nodes:
        server = nodes.start("server", "server-1", "--listen", "127.0.0.1:0", says="listening on ")
        nodes.start("holder", "holder-1", "--server", server.address)
        nodes.kill("holder-1")

What a process says is kept in `NAME.out` and `NAME.err` below the folder; a second process of a name appends to them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from statemachines.interrupts import defer_interrupts
from statemachines.kernel import ConfigurationError, GaplessError

NODE = (sys.executable, "-m", "statemachines", "node")

PATIENCE_S = 300.0
"""Nothing that is waited for takes so long, even on a busy machine."""

STOP_S = 15.0
"""A process that has not ended so long after SIGTERM is killed, and that is an error."""

POLL_S = 0.02

PORTS = (20_000, 32_000)
"""Where free ports are looked for: below those that the system gives to outgoing connections."""

SAID_MAX = 2_000
"""Characters of a process's messages that an error repeats."""


_RESERVED: list[socket.socket] = []


def _reserve(port: int) -> bool:
    """Take a name that goes with this process, if nobody has it: between the choice of a port and its use, and while
    whoever listens there is dead, the port itself is free.  Only Linux has such names."""
    if sys.platform != "linux":
        return True
    mine = socket.socket(socket.AF_UNIX)
    try:
        mine.bind(f"\0gapless-port-{port}")
    except OSError:
        mine.close()
        return False
    _RESERVED.append(mine)
    return True


class HarnessError(GaplessError):
    """A process did not do what a test waited for, or ended by itself."""


class NodeProcess:
    """One process: `role`, `name`, `pid`; `ends`: that it ends by itself, well, is expected."""

    def __init__(self, role: str, name: str, command: list[str], folder: Path, *, ends: bool = False) -> None:
        self.role = role
        self.name = name
        self.ends = ends
        self.address = ""
        """The word that followed what it was waited for to say: where it listens."""
        self.stopped = False
        self.expected = False
        """It was killed, or told to end: that it is gone is no error."""
        self._out, self._err, self._life = (folder / f"{name}.{end}" for end in ("out", "err", "life"))
        self._life_before = self._number()
        with self._out.open("ab") as out, self._err.open("ab") as err:
            self._out_from, self._err_from = out.tell(), err.tell()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    @property
    def pid(self) -> int:
        """Of the operating system."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code (negative: the signal that ended it); None: it runs."""
        return self._process.poll()

    @property
    def began(self) -> bool:
        """It has taken the number of its life: from then on it ends in good order on SIGTERM."""
        return self._number() != self._life_before

    def _number(self) -> str:
        return self._life.read_text() if self._life.exists() else ""

    def read_output(self) -> str:
        """What it printed so far."""
        return self._out.read_bytes()[self._out_from :].decode(errors="replace")

    def read_log(self) -> str:
        """What it wrote to its log so far."""
        return self._err.read_bytes()[self._err_from :].decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL, and reap."""
        self.expected = True
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGSTOP: from when this returns it does nothing until `resume`, and keeps all it has."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.stopped = True

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)
        self.stopped = False

    def terminate(self) -> None:
        """SIGTERM: end in good order; `wait` for it."""
        self.expected = True
        self._process.terminate()

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Its exit code, when it has ended; raises `HarnessError` when it does not."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired as error:
            raise HarnessError(f"{self.name} has not ended within {patience_s:g} s; it said: {self.tail()}") from error

    def tail(self) -> str:
        """The end of its messages, for an error."""
        return self.read_log()[-SAID_MAX:].strip() or "nothing"

    def reap(self) -> str:
        """End it whatever it does; what was wrong with that ("": nothing)."""
        if self.exit_code is None:
            if self.stopped:
                self.resume()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
            if self.exit_code is None:
                self._process.kill()
                self._process.wait()
                return f"{self.name} did not stop on SIGTERM"
        good = (0, -signal.SIGKILL) if self.began else (0, -signal.SIGKILL, -signal.SIGTERM)
        if self._process.returncode not in good:
            return f"{self.name} ended with {self._process.returncode}; it said: {self.tail()}"
        if "Traceback (most recent call last)" in self.read_log():
            return f"{self.name} went on after an error that nobody expected; it said: {self.tail()}"
        return ""


class ProcessHarness:
    """Processes of `gapless node`, or of another `program` that takes the same arguments; what they keep and say is
    below `folder`.

    `trace`: directory for logs of every step (None: no logs); `common`: arguments that every process gets; `stateful`:
    they are told where to keep their state (`--state`), as roles that have all of it in a database are not.  On
    leaving, everything is ended; what did not end well is in `wrong`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        trace: Path | None = None,
        common: tuple[str, ...] = (),
        program: tuple[str, ...] = NODE,
        stateful: bool = True,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.trace = trace
        self.nodes: dict[str, NodeProcess] = {}
        self.wrong: list[str] = []
        self._common = common
        self._program = program
        self._stateful = stateful
        self._all: list[NodeProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> list[str]:
        """End all that runs, those first whose role came last: whom others rely on is there until they have ended.

        Gives back what did not end well."""
        roles = list(dict.fromkeys(node.role for node in self._all))
        ordered = sorted(self._all, key=lambda node: -roles.index(node.role))
        self.wrong += [wrong for node in ordered if (wrong := node.reap())]
        self._all.clear()
        return self.wrong

    # -- starting -----------------------------------------------------------------------------------------------

    def start(self, role: str, name: str, *arguments: str, says: str = "", ends: bool = False) -> NodeProcess:
        """`gapless node ROLE ARGUMENTS`, under this name; with `says` it has said so when this returns, and the word
        after it is its `address`.  `ends`: that it ends by itself, well, is expected."""
        command = [*self._program, role, *arguments, *self._common, "--name", name]
        if self._stateful:
            command += ["--state", str(self.folder)]
        if self.trace is not None:
            command += ["--trace", str(self.trace)]
        return self.start_command(role, name, command, says=says, ends=ends)

    def start_command(
        self, role: str, name: str, command: list[str], *, says: str = "", ends: bool = False
    ) -> NodeProcess:
        """The same of a whole command line, of a program that is told neither its name nor where its files go."""
        if name in self.nodes and self.nodes[name].exit_code is None:
            raise ConfigurationError("name", name, "a process of this name runs; kill it first, or take another name")
        with defer_interrupts():
            node = self.nodes[name] = NodeProcess(role, name, command, self.folder, ends=ends)
            self._all.append(node)
        if says:
            self.until(lambda: has_printed_line(node, says), f"{name} to say {says.strip()!r}")
            node.address = node.read_output().partition(says)[2].split()[0]
        return node

    # -- watching -----------------------------------------------------------------------------------------------

    def kill(self, name: str) -> NodeProcess:
        """SIGKILL, and reap."""
        self.nodes[name].kill()
        return self.nodes[name]

    def check_alive(self) -> None:
        """Raises `HarnessError` if somebody has ended whom nobody killed."""
        for name, node in self.nodes.items():
            if node.exit_code is not None and not node.expected and not (node.ends and node.exit_code == 0):
                raise HarnessError(f"{name} ended with {node.exit_code}; it said: {node.tail()}")

    def until(self, holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until `holds()`; raises `HarnessError` if it does not, or if somebody ends meanwhile."""
        end = time.monotonic() + patience_s
        while not holds():
            self.check_alive()
            if time.monotonic() > end:
                tails = "; ".join(f"{name} said: {node.tail()}" for name, node in sorted(self.nodes.items()))
                raise HarnessError(f"waited {patience_s:g} s for {what}; {tails}")
            time.sleep(POLL_S)


def has_printed_line(node: NodeProcess, text: str) -> bool:
    """Whether it has said the line in which `text` stands, to its end."""
    return "\n" in node.read_output().partition(text)[2]


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on and that the system gives to nobody: a node can come back to it.  Nobody else who
    asks here is given it either, as long as this process lives."""
    first, last = PORTS
    for _ in range(100):
        port = first + secrets.randbelow(last - first)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        if _reserve(port):
            return port
    raise HarnessError(f"no free port between {first} and {last} on {host}: 100 of them were taken")
