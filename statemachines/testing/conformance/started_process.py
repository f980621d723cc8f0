"""StartedProcess: an implementation over the wire that the kit starts, and ends with all that it has begun."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress

from statemachines.interrupts import defer_interrupts, not_interrupted
from statemachines.kernel import ConfigurationError
from statemachines.testing.conformance.child_process import quote_stderr


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
        said = quote_stderr(self._stderr)
        return f"was ended by signal {-code}{said}" if code < 0 else f"has ended with exit code {code}{said}"

    def close(self) -> None:
        """Kill it with all that it has begun, and reap it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._stderr.close()
