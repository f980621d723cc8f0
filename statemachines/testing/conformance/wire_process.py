"""WireProcess: the command of an implementation over the wire: started, started again when it ends, ended for good."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from statemachines.drivers.tcp import Address
from statemachines.testing.conformance.started_process import StartedProcess

RESTART_S: Final = 0.2
"""A process that has ended is started again after so long."""


class WireProcess:
    """`command` with its words filled in: {address}, {host}, {port}, {configuration}, {config}, {store}, {database},
    {directory}, {life}, {seed}.

    Args:
        values: what is filled in besides the address, the files and the number of the start.
        configuration: the times, which `{configuration}` has as JSON and the file `{config}` as TOML.
        prepare: makes the store in the file `{database}` (None: there is none).
    """

    def __init__(self, command: tuple[str, ...], values: dict[str, str], configuration: Any, prepare: Any) -> None:
        self.starts = 0
        self._command = command
        self._values = values
        self._configuration = configuration
        self._prepare = prepare
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
            **self._make_files(),
        }
        words = list(self._command)
        for name, value in values.items():
            words = [word.replace(name, value) for word in words]
        return tuple(words)

    def _make_files(self) -> dict[str, str]:
        """The files that the command names; they are made before the first start."""
        names = [name for name in ("directory", "config", "database") if any(f"{{{name}}}" in w for w in self._command)]
        if not names:
            return {}
        is_first = self._directory is None
        self._directory = self._directory or tempfile.TemporaryDirectory(prefix="gapless-")
        folder = Path(self._directory.name)
        config, database = folder / "config.toml", folder / "messages.db"
        if is_first:
            fields = msgspec.to_builtins(self._configuration)
            lines = (f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in fields.items())
            config.write_text("".join(lines))
            if "database" in names and self._prepare is not None:
                self._prepare(database, self._configuration)
        return {"{directory}": str(folder), "{config}": str(config), "{database}": str(database)}
