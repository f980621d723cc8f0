"""WireRun: an implementation tested over real sockets, in real time.

    verdict = asyncio.run(WireRun(role, WireOptions(seconds=10)).judge(print))

The kit listens, and an implementation connects to it; or it dials one that listens.  The kit plays the peers: it
answers, proposes inputs of its own, steered to rows that were not taken, and loses, repeats, delays and reorders
messages in both directions.

WireProcess: the command of an implementation over the wire: started, started again when it ends, ended for good.

WireLink: how an implementation and the kit come together: the kit listens, or dials until somebody listens.

WireShrink: a run over the wire that failed is made shorter: inputs and faults are left out as long as it fails.

    shrunk = asyncio.run(shrink_run(role, options, command, verdict, bound_s=20.0))

Time is real, so a run need not fail again.  An attempt counts when it does; what is left is what it needed.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from statemachines.drivers.credentials import Credentials
from statemachines.drivers.tcp import Address, describe_failure
from statemachines.input_file import decode_input, read_input
from statemachines.kernel import ConfigurationError, incarnation
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.child_process import StartedProcess
from statemachines.testing.conformance.interface import InterfaceError
from statemachines.testing.conformance.role import ConformanceRole, WireRole
from statemachines.testing.conformance.wire_nodes import BEAT_S, WireNodes, WirePeer
from statemachines.testing.conformance.wire_verdict import LeftOut, WireCourse, WireOptions, WireVerdict
from statemachines.wire import Packet

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


REACH_S: Final = 15.0
"""An implementation that listens is there within so long."""

AGAIN_S: Final = 0.05


class WireLink(Protocol):
    """The way to the implementation."""

    address: Address

    async def open(self) -> None:
        """Begin; raises `ConfigurationError` for an address that cannot be used."""

    def close(self) -> None:
        """No further connection."""


class Listener:
    """The kit listens at `address`; each connection is a peer."""

    def __init__(self, address: Address, credentials: Credentials, accept: Callable[[], WirePeer]) -> None:
        self.address = address
        self._credentials = credentials
        self._accept = accept

    async def open(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        host, port = self.address
        try:
            tls = self._credentials.listening()
            self._server = await loop.create_server(self._accept, host, port, ssl=tls)
        except (OSError, UnicodeError) as error:
            rule = f"cannot be listened on: {getattr(error, 'strerror', None) or error}; choose another, or port 0"
            raise ConfigurationError("address", f"{host}:{port}", rule) from error
        self.address = self._server.sockets[0].getsockname()[:2]

    def close(self) -> None:
        """Listen no more."""
        self._server.close()


class Dialler:
    """The kit keeps connections to `address`; port 0: a free one, at which the implementation is to listen.

    Args:
        accept: makes the peer of a connection, by its place.
        count: so many connections are kept.
        give_up: called with what is wrong when nobody listens for `REACH_S`.
    """

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        accept: Callable[[int], WirePeer],
        give_up: Callable[[str], None],
        count: int,
    ) -> None:
        self.address = address
        self._credentials = credentials
        self._accept = accept
        self._give_up = give_up
        self._count = count

    async def open(self) -> None:
        """Dial, again and again."""
        self._tls = self._credentials.dialling()
        host, port = self.address
        if port == 0:
            self.address = (host, find_free_port(host))
        self._tasks = [asyncio.ensure_future(self._keep(place)) for place in range(self._count)]

    def close(self) -> None:
        """Dial no more."""
        for task in self._tasks:
            task.cancel()

    async def _keep(self, place: int) -> None:
        loop = asyncio.get_running_loop()
        host, port = self.address
        began = loop.time()
        why = ""
        while True:
            try:
                async with asyncio.timeout(max(0.1, began + REACH_S - loop.time())):
                    name = host if self._tls is not None else None
                    _, peer = await loop.create_connection(
                        lambda: self._accept(place), host, port, ssl=self._tls, server_hostname=name
                    )
            except (OSError, UnicodeError) as error:
                why = describe_failure(error, self._tls is not None)
                if loop.time() - began > REACH_S:
                    self._give_up(f"nobody can be reached at {host}:{port}: {why}; listen there")
                    return
            else:
                await peer.closed.wait()
                began = loop.time()
            await asyncio.sleep(AGAIN_S)


def find_free_port(host: str) -> int:
    """A port that nobody listens at.  Raises `ConfigurationError` for a host that is not here."""
    try:
        with socket.create_server((host, 0)) as one:
            port: int = one.getsockname()[1]
            return port
    except (OSError, UnicodeError) as error:
        rule = f"has no free port: {getattr(error, 'strerror', None) or error}; give HOST:PORT where it listens"
        raise ConfigurationError("address", f"{host}:0", rule) from error


KIT: Final = "kit"
"""The node that the kit is."""


class WireRun:
    """One run: for a while it judges every implementation that connects."""

    def __init__(self, role: ConformanceRole, options: WireOptions, command: tuple[str, ...] = ()) -> None:
        if role.wire is None:
            rule = "cannot be tested over the wire: its protocol declares no WireRole; test it in lockstep"
            raise ConfigurationError("role", role.fsm.full_name, rule)
        self.role = role
        self.wire: WireRole = role.wire
        self.options = options
        self.configuration = options.configuration or self.wire.configuration
        self.store = options.store
        self.credentials = options.credentials
        self._course = WireCourse(options, self.configuration)
        self._party = self.wire.party(self._course) if self.wire.party else WireNodes(role, self.wire, self._course)
        self._peers: set[WirePeer] = set()
        self._lives = 0
        values = {"{store}": self.store, "{seed}": str(options.seed)}
        self._process = WireProcess(command, values, self.configuration, self.wire.prepare)

    async def judge(self, announce: Callable[[Address], None]) -> WireVerdict:
        """The verdict, after the run; `announce` is called with the address when the kit listens or dials.

        Raises:
            InterfaceError: the peer does not speak the protocol of the wire.
            ConfigurationError: the address cannot be used, or the command cannot be started.
        """
        course, link = self._course, self._make_link()
        await link.open()
        try:
            await asyncio.to_thread(self._process.prepare)
            announce(link.address)
            course.begin()
            end_ns = course.started_ns + int(self.options.seconds * 1e9)
            while not course.is_decided and course.now_ns() < end_ns:
                ended = self._process.keep(link.address, course.now_ns())
                course.counts["processes"] = self._process.starts
                if ended is not None:
                    self._note_end(*ended)
                before_ns = course.now_ns()
                await asyncio.sleep(BEAT_S)
                self._party.beat(course.look_at_time(before_ns))
        finally:
            link.close()
            for peer in list(self._peers):
                peer.close()
            self._process.close()
        if course.error is not None:
            raise course.error
        course.conclude(self._find_missing())
        assert course.verdict is not None
        table, taken = self._party.list_table(), self._party.coverage
        cells, possible = table.intersection(taken.cells), table.intersection(taken.possible)
        return replace(
            course.verdict,
            table=table,
            cells=cells,
            possible=possible,
            pairs=len(taken.pairs),
            rules=self._party.list_rules(),
        )

    def _make_link(self) -> WireLink:
        if self.wire.dials:
            return Dialler(
                self.options.address, self.credentials, self._accept, self._course.give_up, self.wire.connections
            )
        return Listener(self.options.address, self.credentials, self._accept)

    def _note_end(self, code: int, said: str) -> None:
        """The process has ended: in good order where its exit code is 0."""
        course = self._course
        if code:
            course.fail(f"the implementation {said}; it must run until the kit ends it")
        elif not course.counts["connections"]:
            does = "listens at" if self.wire.dials else "dials"
            course.refuse(f"the implementation {said}, and has never connected; it {does} {{address}}")

    def _find_missing(self) -> str:
        """Why a run in which nothing was wrong shows nothing."""
        course = self._course
        if not course.counts["connections"]:
            does = "listen at" if self.wire.dials else "dial"
            tls = self.credentials.dialling() if self.wire.dials else self.credentials.listening()
            how = "" if tls is None else " with TLS"
            return f"nothing has connected within {self.options.seconds:g} s; {does} the address above{how}"
        if course.was_late:
            rule = "give the machine less to do, or --tolerance more"
            return f"the kit was late for more than half of the run; {rule}"
        return self._party.find_missing()

    # -- connections (WirePeer calls these) ---------------------------------------------------------------------

    def _accept(self, place: int = 0) -> WirePeer:
        if self.wire.dials or not self._lives:
            self._lives += 1
        name = f"{KIT}-{place}" if place else KIT
        peer = WirePeer(self, incarnation(name, self._lives), dialled=self.wire.dials, place=place)
        self._peers.add(peer)
        return peer

    def join(self, peer: WirePeer) -> str:
        """The greeting is over; why the peer may not stay."""
        assert peer.hello is not None
        if why := self._party.join(peer):
            return why
        self._course.counts["connections"] += 1
        self._course.note(f"{peer.hello.life} has connected")
        return ""

    def leave(self, peer: WirePeer, why: str) -> None:
        """A connection is gone."""
        self._peers.discard(peer)
        if why:
            who = peer.hello.life if peer.hello is not None else peer.name
            self._course.refuse(f"the implementation ({who}) {why}")
        if not self._course.is_decided:
            self._party.leave(peer)

    def receive(self, peer: WirePeer, packet: Packet[Any]) -> None:
        """A message has come."""
        if not self._course.is_decided:
            self._party.receive(peer, packet)


LONGER: Final = 1.5
"""An attempt takes at most so many times as long as the run that failed, and half a second."""

TOGETHER: Final = 4
"""So many attempts are made at a time, where the port is free to choose."""

TRIES: Final = 5
"""A script is played so often, until it fails."""


class WireScript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What repeats a run over the wire: what draws it, and what of that is left out."""

    role: str
    seed: int
    seconds: float
    rate: float
    faults: float
    without: LeftOut

    def apply(self, options: WireOptions) -> WireOptions:
        """The options of a run of this script."""
        return replace(
            options, seed=self.seed, seconds=self.seconds, rate=self.rate, faults=self.faults, without=self.without
        )


class ShrunkRun(msgspec.Struct, frozen=True):
    """The shortest run that failed, after so many `attempts`, of which so many `failed`."""

    verdict: WireVerdict
    options: WireOptions
    attempts: int
    failed: int


async def shrink_run(
    role: ConformanceRole, options: WireOptions, command: tuple[str, ...], verdict: WireVerdict, bound_s: float
) -> ShrunkRun:
    """Shorten a run that failed, for `bound_s` seconds."""
    ends = time.monotonic() + bound_s
    options = _narrow(options, verdict)
    attempts = failed = 0
    together = TOGETHER if options.address[1] == 0 else 1
    candidates = _list_shorter(options.without, verdict)
    while batch := [replace(options, without=without) for without in islice(candidates, together)]:
        if time.monotonic() + options.seconds > ends:
            break
        found = await asyncio.gather(*(_judge(role, tried, command) for tried in batch))
        attempts += len(batch)
        shorter = [pair for pair in zip(batch, found, strict=True) if _is_shorter(pair[1], verdict)]
        failed += len(shorter)
        for tried, after in shorter[:1]:
            assert after is not None
            verdict, options = after, _narrow(tried, after)
            candidates = _list_shorter(options.without, verdict)
    return ShrunkRun(verdict, options, attempts, failed)


async def replay_script(
    role: ConformanceRole, options: WireOptions, command: tuple[str, ...]
) -> tuple[WireVerdict, int]:
    """Play a script until it fails, `TRIES` times at most; the last verdict, and how often it was played."""
    played = 0
    while True:
        played += 1
        verdict = await WireRun(role, options, command).judge(lambda address: None)
        if verdict.outcome is ConformanceOutcome.FAIL or played == TRIES:
            return verdict, played


def _is_shorter(found: WireVerdict | None, verdict: WireVerdict) -> bool:
    """Whether a run failed in the same way, and with less."""
    return found is not None and _sign(found) == _sign(verdict) and _size(found) < _size(verdict)


def _sign(verdict: WireVerdict) -> tuple[Any, ...] | None:
    """What tells a failure from others: what came, and the clause that was broken last."""
    found = verdict.violation
    if found is None:
        return None
    return tuple(one.name for one in found.came), found.expected[0][1][-1:], found.wrong.partition(":")[0]


def _size(verdict: WireVerdict) -> int:
    return len(verdict.inputs) + len(verdict.faults)


def _narrow(options: WireOptions, verdict: WireVerdict) -> WireOptions:
    """The run ends soon after it failed, and nothing is drawn that was not needed."""
    without = replace(
        options.without,
        inputs_from=max(verdict.inputs, default=-1) + 1,
        faults_from=max(verdict.faults, default=-1) + 1,
    )
    return replace(options, seconds=min(options.seconds, verdict.at_ns / 1e9 * LONGER + 0.5), without=without)


def _list_shorter(without: LeftOut, verdict: WireVerdict) -> Iterator[LeftOut]:
    """What else may be left out: all faults, then inputs and faults, halves first."""
    if verdict.faults:
        yield replace(without, faults_from=0)
    for part in _list_parts(verdict.inputs):
        yield replace(without, inputs=without.inputs | part)
    for part in _list_parts(verdict.faults):
        yield replace(without, faults=without.faults | part)


def _list_parts(numbers: tuple[int, ...]) -> Iterator[frozenset[int]]:
    size = (len(numbers) + 1) // 2
    while size:
        for first in range(0, len(numbers), size):
            yield frozenset(numbers[first : first + size])
        size = size // 2


async def _judge(role: ConformanceRole, options: WireOptions, command: tuple[str, ...]) -> WireVerdict | None:
    try:
        return await WireRun(role, options, command).judge(lambda address: None)
    except InterfaceError:
        return None


# -- files ----------------------------------------------------------------------------------------------------------


def save_script(path: Path, role: str, options: WireOptions) -> None:
    """Write what repeats a run."""
    script = WireScript(role, options.seed, options.seconds, options.rate, options.faults, options.without)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(script, order="sorted") + b"\n")


def load_script(path: Path, role: str) -> WireScript:
    """Read it.  Raises `ConfigurationError` for a file that is none, or of another role."""

    def decode(data: Any) -> WireScript:
        script = msgspec.json.decode(data, type=WireScript)
        if script.role != role:
            raise msgspec.ValidationError(f"is of the role {script.role}; test that one, or give a script of {role}")
        return script

    return decode_input(path, "--script", "a script of a run over the wire", read_input(path, "--script"), decode)
