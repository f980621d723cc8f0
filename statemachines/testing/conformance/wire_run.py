"""WireRun: an implementation tested over real sockets, in real time.

    verdict = asyncio.run(WireRun(role, WireOptions(seconds=10)).judge(print))

The kit listens, and an implementation connects to it; or it dials one that listens.  The kit plays the peers: it
answers, proposes inputs of its own, steered to rows that were not taken, and loses, repeats, delays and reorders
messages in both directions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from statemachines.drivers.tcp import Address
from statemachines.kernel import ConfigurationError, incarnation
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.wire_course import WireCourse
from statemachines.testing.conformance.wire_link import Dialler, Listener, WireLink
from statemachines.testing.conformance.wire_nodes import BEAT_S, WireNodes
from statemachines.testing.conformance.wire_peer import WirePeer
from statemachines.testing.conformance.wire_process import WireProcess
from statemachines.testing.conformance.wire_role import WireRole
from statemachines.testing.conformance.wire_verdict import WireOptions, WireVerdict
from statemachines.wire import Packet

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
