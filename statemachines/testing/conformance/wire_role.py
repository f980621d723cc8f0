"""WireRole: what a protocol says about testing implementations of a role over the wire.

    WIRE = WireRole(plays=SERVER, peer="holder", takes=Acquire | Renew, begin=begin_record, unseen=find_unseen, ...)

Over the wire the kit sees the messages of an implementation, and neither its application nor its timers.  The protocol
names the calls that an application may make unseen, and how peers behave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, Protocol

import msgspec

from statemachines.drivers.role import NodeRole
from statemachines.kernel import Answer, Call, Event, Message, Request
from statemachines.testing.conformance.relation import Output


class PeerPlayer(Protocol):
    """The other parties of an implementation: answers to its messages, and messages of their own."""

    def greet(self) -> Iterable[Message]:
        """What the peers say where no instance is known; it is said again until one is."""

    def answer(self, record: Any, message: Any) -> Iterable[Message]:
        """What the peers say to this message; `record`: the likeliest state of the implementation after it."""

    def propose(self, record: Any) -> Iterable[Message]:
        """What else the peers may say in this state, sensible or not."""

    def probe(self, record: Any) -> Message | None:
        """A message that is answered whatever came before it (None: none is, in this state)."""

    def sender(self, message: Any) -> str:
        """The party of the kit's node that says this message."""


def no_answer(record: Any, request: Request) -> Answer | None:
    """No request is answered."""
    return None


class EarlierInstance(msgspec.Struct, frozen=True):
    """An earlier instance of the same node."""

    first: Any
    """The message that began it."""
    ends: tuple[tuple[Any, tuple[Output, ...]], ...]
    """Each state that it may be in: the record, and what it told its application last where it has ended."""


class BegunRecord(msgspec.Struct, frozen=True):
    """A record that a new instance may begin with."""

    record: Any
    goes_on: bool = False
    """This is so only if the instance before it has not ended."""


def begins_nothing(
    to: str, message: Any, configuration: Any, earlier: tuple[EarlierInstance, ...]
) -> tuple[BegunRecord, ...]:
    """No instance begins."""
    return ()


def calls_nothing(record: Any, came: Output | None) -> Iterable[Event]:
    """The application calls nothing unseen."""
    return ()


class WireParty(Protocol):
    """What the kit is in one run, where no table judges: its connections, its messages, its rules."""

    coverage: Any

    def join(self, peer: Any) -> str:
        """A greeting is over; why the peer may not stay."""

    def leave(self, peer: Any) -> None:
        """A connection is gone."""

    def receive(self, peer: Any, packet: Any) -> None:
        """A message has come."""

    def beat(self, now_ns: int) -> None:
        """Time has passed."""

    def find_missing(self) -> str:
        """Why a run in which nothing was wrong shows nothing."""

    def list_table(self) -> frozenset[tuple[str, int, str]]:
        """The rows of the table, state by state."""

    def list_rules(self) -> dict[str, int]:
        """How often each rule was applied, by its clause."""


class WireRole(msgspec.Struct, frozen=True):
    """How the kit plays the peers of one role, and judges it by its messages alone."""

    plays: NodeRole
    """The role that the kit has on its connections."""
    peer: str
    """The name of the role under test, as a hello says it."""
    takes: Any
    """The union of messages that the implementation may send."""
    configuration: Any = {}
    """The default times: short ones, since a run is real time."""
    begin: Callable[[str, Any, Any, tuple[EarlierInstance, ...]], tuple[BegunRecord, ...]] = begins_nothing
    """(`to`, first message, configuration, earlier instances) -> records that a new instance may have before it."""
    opening: tuple[Call, ...] = ()
    """What an application calls first; the first message is an answer to it."""
    unseen: Callable[[Any, Output | None], Iterable[Event]] = calls_nothing
    """(record, message that has come) -> calls of the application that may have been before it (None: at any time)."""
    player: Callable[[str, Random], PeerPlayer] | None = None
    """(life of the kit, chance) -> the peers of one node."""
    speaker: str = ""
    """The field of its messages that holds its id ("": none does)."""
    addressee: str = ""
    """The field of its messages that holds the party of the kit that they are for ("": none does)."""
    after_end: tuple[str, ...] = ()
    """Names of messages that an instance may repeat when it has ended."""
    dials: bool = False
    """The kit dials the implementation, which listens; else the implementation dials the kit."""
    host: str = ""
    """The name under which the kit writes to a node of which it knows no instance."""
    node_says: tuple[str, ...] = ()
    """Names of messages that the node says itself, where the instance that they are about is gone."""
    reply: Callable[[Any, Request], Answer | None] = no_answer
    """(record, request) -> what a store behind the implementation answers; the kit does not see it."""
    prepare: Callable[[Path, Any], None] | None = None
    """(file, configuration): makes the store that the implementation works on (None: it needs none)."""
    connections: int = 1
    """The kit keeps so many connections, each as a node of its own, where it dials."""
    party: Callable[[Any], WireParty] | None = None
    """Course of a run -> what judges it by rules (None: the table judges each instance)."""
