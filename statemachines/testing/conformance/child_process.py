"""ChildProcess: an implementation that runs as a command, and answers one line for each line.

Whatever it does, the kit ends: each answer is waited for so long, a line has so many bytes, and the process group of
the command is killed when the run is over."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from types import TracebackType
from typing import IO, Final, Protocol

from statemachines.interrupts import defer_interrupts, not_interrupted
from statemachines.kernel import ConfigurationError
from statemachines.testing.conformance.interface import InterfaceError, quote_line

LINE_BYTES_MAX: Final = 1_000_000
"""An answer is no longer."""

PATIENCE_S: Final = 10.0
"""An answer is waited for so long, unless the user says otherwise."""

END_S: Final = 2.0
"""A command whose input was closed has so long to end by itself."""

READ_BYTES: Final = 1 << 16
STDERR_BYTES_MAX: Final = 1 << 20
"""So much of what the command writes to stderr is kept."""

SLICE_MS: Final = 200
"""So often it is looked at while an answer is waited for."""

LINES: Final = 1_024
"""And after so many lines."""

STDERR_BYTES: Final = 4_000
SAYS_WHY: Final = re.compile(r"\w*(Error|Exception)\b|panic|fatal|error", re.I)
"""How a line begins that says why a program ended; Node.js prints its version behind it."""


class NoAnswer(InterfaceError):
    """Nothing came in time: whether it would have, nobody knows."""


class ImplementationEnded(InterfaceError):
    """The implementation ended, or closed its output, where an answer was owed."""


def quote_stderr(file: IO[bytes]) -> str:
    """The end of a message: of the last lines on stderr the one that says why the program ended, else the last."""
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - STDERR_BYTES))
    lines = [line for line in file.read().decode(errors="backslashreplace").splitlines() if line.strip()]
    if not lines:
        return ""
    why = next((line for line in reversed(lines) if SAYS_WHY.match(line)), None)
    return f"; its last line on stderr: {lines[-1].strip()}" if why is None else f"; it says on stderr: {why}"


class Implementation(Protocol):
    """Anything that answers lines; lines stand without their ends.  While it answers, the kit reckons what the table
    does."""

    def say(self, line: bytes) -> None:
        """Say a line.  Raises `InterfaceError`."""

    def hear(self) -> bytes:
        """The answer to the line that was said.  Raises `InterfaceError`."""


class StartedProcess:
    """`command` with its arguments; of what it writes to stderr the end is kept.

    Raises `ConfigurationError` for a command that cannot be started.
    """

    def __init__(self, command: tuple[str, ...], pipes: int = subprocess.DEVNULL) -> None:
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        try:
            with defer_interrupts(), not_interrupted():
                self.process = subprocess.Popen(
                    command,
                    stdin=pipes,
                    stdout=pipes,
                    stderr=self.stderr,
                    start_new_session=True,
                    bufsize=0,
                )
        except OSError as error:
            self.stderr.close()
            rule = f"cannot be started: {error.strerror}; after -- stands a command with its arguments"
            raise ConfigurationError("command", command[0], rule) from None

    @property
    def exit_code(self) -> int | None:
        """How it has ended; None: it runs."""
        return self.process.poll()

    def describe_end(self) -> str:
        """How it has ended, with the last line that it wrote to stderr."""
        code = self.process.wait()
        said = quote_stderr(self.stderr)
        return f"was ended by signal {-code}{said}" if code < 0 else f"has ended with exit code {code}{said}"

    def close(self) -> None:
        """Kill it with all that it has begun, and reap it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.stderr.close()


class ChildProcess:
    """`command` with its arguments; `patience_s`: how long an answer is waited for.

    Raises `ConfigurationError` for a command that cannot be started.
    """

    def __init__(self, command: tuple[str, ...], patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._command = command
        self._buffer = bytearray()
        self._lines = 0
        self._started = StartedProcess(command, subprocess.PIPE)
        self._process, self._stderr = self._started.process, self._started.stderr
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self._room = select.poll()
        self._room.register(self._in, select.POLLOUT)

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def say(self, line: bytes) -> None:
        """Say a line.  Raises `NoAnswer`, `Died`, and `InterfaceError` for an answer that nobody asked for."""
        if self._buffer:
            raise InterfaceError(self._unasked())
        self._lines += 1
        if self._lines % LINES == 0:
            self._trim_stderr()
        self._write(line + b"\n")

    def hear(self) -> bytes:
        """The answer.  Raises `NoAnswer`, `Died`, and `InterfaceError` for a line that is too long."""
        buffer = self._buffer
        end = -1
        waits_until = 0.0
        while end < 0:
            if not self._poll.poll(0):
                waits_until = waits_until or time.monotonic() + self._patience_s
                left_ms = max(0.0, waits_until - time.monotonic()) * 1000
                if not self._poll.poll(min(left_ms, SLICE_MS)):
                    self._trim_stderr()
                    if left_ms <= SLICE_MS:
                        raise NoAnswer(self._late(buffer))
                    continue
            data = os.read(self._out, READ_BYTES)
            if not data:
                raise ImplementationEnded(self._describe_end("has closed its output"))
            begin = len(buffer)
            buffer += data
            end = buffer.find(b"\n", begin)
            if (end if end >= 0 else len(buffer)) > LINE_BYTES_MAX:
                raise InterfaceError(
                    f"answers with more than {LINE_BYTES_MAX:,} bytes on one line; an answer has fewer"
                )
        answer = bytes(buffer[:end])
        del buffer[: end + 1]
        return answer

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        until = time.monotonic() + self._patience_s
        while view:
            try:
                view = view[os.write(self._in, view) :]
            except BlockingIOError:
                if not self._room.poll(max(0.0, until - time.monotonic()) * 1000):
                    raise NoAnswer(
                        "does not read its input; an implementation reads one line, and answers it"
                    ) from None
            except BrokenPipeError:
                raise ImplementationEnded(self._describe_end("has closed its input")) from None

    def finish(self) -> None:
        """Close its input and let it end.  Raises `InterfaceError` for lines that nobody asked for."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        until = time.monotonic() + END_S
        while (left := until - time.monotonic()) > 0 and not self._buffer and self._poll.poll(left * 1000):
            data = os.read(self._out, READ_BYTES)
            if not data:
                break
            self._buffer += data
        if self._buffer:
            raise InterfaceError(self._unasked())

    def close(self) -> None:
        """Kill the command with all that it has begun, and reap it."""
        self._started.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _trim_stderr(self) -> None:
        """Drop what the command has written to stderr, where that is too much."""
        if os.fstat(self._stderr.fileno()).st_size > STDERR_BYTES_MAX:
            os.ftruncate(self._stderr.fileno(), 0)
            os.lseek(self._stderr.fileno(), 0, os.SEEK_SET)  # the command writes at the same place

    def _unasked(self) -> str:
        line = bytes(self._buffer.partition(b"\n")[0])
        return (
            f"says a line that nobody asked for: {quote_line(line)}; each line is answered once, and logs go to stderr"
        )

    def _late(self, buffer: bytearray) -> str:
        if buffer:
            line = quote_line(bytes(buffer))
            return f"has begun a line and not ended it after {self._patience_s:g} s: {line}; end it, and flush"
        rule = "answer each line, and flush the output, or give it longer with --patience"
        return f"has not answered after {self._patience_s:g} s; {rule}"

    def _describe_end(self, what: str) -> str:
        """How the command ended, with the last line that it wrote to stderr."""
        try:
            code: int | None = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            code = None
        if code is not None:
            what = f"was ended by signal {-code}" if code < 0 else f"has ended with exit code {code}"
        said = quote_stderr(self._stderr)
        return f"{what}; it must answer until its input is closed{said}"
