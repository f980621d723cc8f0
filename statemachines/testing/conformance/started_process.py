"""StartedProcess: an implementation over the wire that the kit starts, and ends with all that it has begun."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import Final

from statemachines.interrupts import defer_interrupts, not_interrupted
from statemachines.kernel import ConfigurationError

STDERR_BYTES: Final = 400


class StartedProcess:
    """`command` with its arguments; its output goes nowhere, but for the last line that it writes to stderr.

    Raises `ConfigurationError` for a command that cannot be started.
    """

    def __init__(self, command: tuple[str, ...]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        try:
            with defer_interrupts(), not_interrupted():
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._stderr,
                    start_new_session=True,
                )
        except OSError as error:
            self._stderr.close()
            rule = f"cannot be started: {error.strerror}; after -- stands a command with its arguments"
            raise ConfigurationError("command", command[0], rule) from None

    @property
    def exit_code(self) -> int | None:
        """How it has ended; None: it runs."""
        return self._process.poll()

    def describe_end(self) -> str:
        """How it has ended, with the last line that it wrote to stderr."""
        code = self._process.wait()
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - STDERR_BYTES))
        lines = self._stderr.read().decode(errors="backslashreplace").strip().splitlines()
        said = f"; its last line on stderr: {lines[-1]}" if lines else ""
        return f"was ended by signal {-code}{said}" if code < 0 else f"has ended with exit code {code}{said}"

    def close(self) -> None:
        """Kill it with all that it has begun, and reap it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._stderr.close()
