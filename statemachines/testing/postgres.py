"""PostgresServer: a private PostgreSQL for tests and trials, made in a moment and gone afterwards.

    with PostgresServer() as server:
        open_stores(server.database("mine"))

A cluster of its own in a temporary directory: a unix socket there and a free TCP port on 127.0.0.1, fsync on.  The
server never runs as root: where we are root it runs as the user `postgres`.  It ends with the process that started it,
even by SIGKILL.

`shared_server(directory)` is one server for several processes (the workers of a test run): the first one starts it, and
it ends when the last one is gone, however it went: who uses it holds a lock, which the system takes back.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.testing.process_harness import free_port

USER: Final = "postgres"
"""Whom the server runs as where we are root: Debian's package makes this user."""

DEBIAN: Final = Path("/usr/lib/postgresql")
"""Where Debian puts the programs of each version; they are not on PATH."""

START_S: Final = 60.0
STOP_S: Final = 5.0
"""How long each way of stopping is given before a harder one."""

ATTEMPTS: Final = 5
"""Somebody else may take the free port before the server does."""

SETTINGS: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "recovery_init_sync_method": "syncfs",  # one call instead of one for each of a thousand files
    "listen_addresses": "127.0.0.1",
    "max_connections": "50",
    "shared_buffers": "32MB",
    "timezone": "UTC",
    "lc_messages": "C",
}


class PostgresServer:
    """A server of our own; use it as `with`.  Raises `ConfigurationError` where PostgreSQL is not installed."""

    def __init__(self) -> None:
        self.port = 0
        self._binaries = find_binaries()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PostgresServer:
        self.directory = Path(tempfile.mkdtemp(prefix="gapless-pg-"))
        try:
            self._own(self.directory)
            self._run(
                "initdb", "--no-sync", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C"
            )
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop(signal.SIGQUIT)  # what it would still write is deleted anyway
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def data(self) -> Path:
        """The directory of the cluster."""
        return self.directory / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.directory / "log"

    def url(self, database: str = "postgres") -> str:
        """Where a database of this server is, over TCP."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def database(self, name: str) -> str:
        """Make an empty database; its URL."""
        self.sql(f'CREATE DATABASE "{name}" TEMPLATE template0')
        return self.url(name)

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the server's superuser; its rows."""
        return run_sql(self.url(database), statement)

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, on the port it had; on a free one the first time.  It ends with the thread that calls this."""
        for attempt in range(1, ATTEMPTS + 1):
            port = self.port or free_port()
            self._process = self._launch(port)
            if self._wait_until_ready(port):
                self.port = port
                return
            self.stop(signal.SIGQUIT)
            if attempt == ATTEMPTS:
                said = self.log.read_text(errors="replace")[-2000:]
                raise GaplessError(f"PostgreSQL did not start in {self.directory}; it said:\n{said}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGTERM: wait for clients; SIGINT: cut them off; SIGQUIT: at once, as in a crash; SIGKILL: harder still."""
        process, self._process = self._process, None
        if process is None:
            return
        # A server that is just recovering from a crash may not take the polite ones.
        for number in dict.fromkeys((how, signal.SIGQUIT, signal.SIGKILL)):
            backends = children_of(process.pid)
            with suppress(ProcessLookupError):
                process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
                break
        end_all(backends)
        if (self.data / "postmaster.pid").exists():
            (self.data / "postmaster.pid").unlink()

    def crash(self) -> None:
        """Stop it as `pg_ctl stop -m immediate` does: nothing is written any more; the next start recovers."""
        self.stop(signal.SIGQUIT)

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        command = [
            *make_bound_command(),
            str(self._binaries / "postgres"),
            "-D",
            str(self.data),
            "-p",
            str(port),
            "-k",
            str(self.directory),
        ]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **run_as())

    def _wait_until_ready(self, port: int) -> bool:
        ready = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port), "-t", "3"]
        deadline = time.monotonic() + START_S
        assert self._process is not None
        while time.monotonic() < deadline and self._process.poll() is None:
            if subprocess.run(ready, check=False).returncode == 0:
                return True
            time.sleep(0.02)
        return False

    def _own(self, directory: Path) -> None:
        if os.geteuid() == 0:
            entry = pwd.getpwnam(USER)
            os.chown(directory, entry.pw_uid, entry.pw_gid)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments], capture_output=True, text=True, cwd="/", **run_as()
        )
        if done.returncode != 0:
            raise GaplessError(f"{program} failed: {done.stderr.strip() or done.stdout.strip()}")


def find_binaries() -> Path:
    """The directory of `initdb` and `postgres`: the newest of Debian's, else where PATH says."""
    found = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: _version(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not found and on_path is not None:
        found = [Path(on_path).resolve()]
    if not found or not (found[-1].parent / "postgres").exists():
        rule = "is not there; install the package 'postgresql' (Debian's name)"
        raise ConfigurationError("PostgreSQL", "initdb", rule)
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(USER)
        except KeyError as error:
            rule = "is no user here, and the server does not run as root; install the package 'postgresql'"
            raise ConfigurationError("PostgreSQL", USER, rule) from error
    return found[-1].parent


def _version(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return 0.0


def run_as() -> dict[str, Any]:
    """The arguments of Popen that make a process run as the server's user."""
    return {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}


def make_bound_command() -> list[str]:
    """What begins a command that is told to stop (SIGINT) when we are gone: `setpriv`, which every Linux has.  To the
    system "we" are the thread that starts it."""
    program = shutil.which("setpriv")
    return [] if program is None else [program, "--pdeathsig", "INT", "--"]


def children_of(pid: int) -> list[int]:
    """The processes that `pid` has started and that are still there."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def end_all(pids: list[int]) -> None:
    """What a killed server leaves behind holds its shared memory: end it, and wait until it is gone."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        left = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def run_sql(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement in a connection of its own; its rows."""
    import psycopg

    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


# -- one server for several processes -------------------------------------------------------------------------------


@contextmanager
def share_server(directory: Path) -> Iterator[str]:
    """The URL of a server that all processes with this `directory` share (of its database "postgres").

    `start.lock` is held while somebody decides whether to start it; `users.lock` is shared by those who use it, and
    the keeper, a process beside the server, waits for it alone: it gets it when all of them are gone.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "start.lock").open("w") as start, (directory / "users.lock").open("w") as users:
        fcntl.flock(start, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)  # a keeper that is stopping is waited for
        address = directory / "url"
        if not address.exists():
            launch_keeper(directory)
        url = address.read_text()
        fcntl.flock(start, fcntl.LOCK_UN)
        yield url


def launch_keeper(directory: Path) -> None:
    """Start the keeper, and wait until its server answers."""
    keeper = subprocess.Popen(
        [sys.executable, "-m", "statemachines.testing.postgres", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert keeper.stdout is not None
    assert keeper.stderr is not None
    ready = keeper.stdout.readline() == "ready\n"
    keeper.stdout.close()
    said = "" if ready else keeper.stderr.read()
    keeper.stderr.close()
    if not ready:
        raise GaplessError(f"the test server did not start: {said.strip()}")
    keeper.returncode = 0  # it outlives us: nothing here waits for it


def keep(directory: Path, users: IO[str]) -> None:
    """Run a server until nobody holds `users` any more."""
    with PostgresServer() as server:
        (directory / "url").write_text(server.url())
        print("ready", flush=True)
        fcntl.flock(users, fcntl.LOCK_EX)
        (directory / "url").unlink()


def main() -> None:
    """The keeper."""
    directory = Path(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with (directory / "users.lock").open("w") as users:
        try:
            keep(directory, users)
        except GaplessError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
