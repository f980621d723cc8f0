"""WireProcess: the command of an implementation over the wire: started, started again when it ends, ended for good."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from statemachines.drivers.tcp import Address
from statemachines.testing.conformance.started_process import StartedProcess

RESTART_S: Final = 0.2
"""A process that has ended is started again after so long."""


FILES: Final = {"{directory}": "", "{config}": "config.toml", "{database}": "messages.db"}
"""What a command may name -> the file in the directory of the run."""

Prepare = Callable[[Path, Any], None]


class WireProcess:
    """`command` with its words filled in: {address}, {host}, {port}, {configuration}, {config}, {store}, {database},
    {directory}, {life}, {seed}.

    Args:
        values: what is filled in besides the address, the files and the number of the start.
        configuration: the times, which `{configuration}` has as JSON and the file `{config}` as TOML.
        make_store: makes the store in the file `{database}` (None: there is none).
    """

    def __init__(
        self, command: tuple[str, ...], values: dict[str, str], configuration: Any, make_store: Prepare | None
    ) -> None:
        self.starts = 0
        self._command = command
        self._values = values
        self._configuration = configuration
        self._make_store = make_store
        self._files: dict[str, str] = {}
        self._process: StartedProcess | None = None
        self._starts_ns = 0
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def keep(self, address: Address, now_ns: int) -> tuple[int, str] | None:
        """Start it where it does not run; how a process has ended since: its exit code, and words for it."""
        if not self._command:
            return None
        if self._process is None:
            if now_ns >= self._starts_ns:
                self.starts += 1
                self._process = StartedProcess(self._fill_in(address))
            return None
        code = self._process.exit_code
        if code is None:
            return None
        end = self._process.describe_end()
        self._process.close()
        self._process, self._starts_ns = None, now_ns + int(RESTART_S * 1e9)
        return code, end

    def close(self) -> None:
        """Kill it with all that it has begun, and remove its files."""
        if self._process is not None:
            self._process.close()
            self._process = None
        if self._directory is not None:
            self._directory.cleanup()

    def _fill_in(self, address: Address) -> tuple[str, ...]:
        values = {
            **self._values,
            "{address}": "{}:{}".format(*address),
            "{host}": address[0],
            "{port}": str(address[1]),
            "{life}": str(self.starts),
            "{configuration}": msgspec.json.encode(self._configuration).decode(),
            **self._files,
        }
        words = list(self._command)
        for name, value in values.items():
            words = [word.replace(name, value) for word in words]
        return tuple(words)

    def prepare(self) -> None:
        """Make the files that the command names; it takes a while, and needs no event loop."""
        names = [name for name in FILES if any(name in word for word in self._command)]
        if not names:
            return
        self._directory = tempfile.TemporaryDirectory(prefix="gapless-")
        folder = Path(self._directory.name)
        self._files = {name: str(folder / file) for name, file in FILES.items()}
        said = msgspec.to_builtins(self._configuration).items()
        lines = (f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in said if value is not None)
        Path(self._files["{config}"]).write_text("".join(lines))
        if "{database}" in names and self._make_store is not None:
            self._make_store(Path(self._files["{database}"]), self._configuration)
