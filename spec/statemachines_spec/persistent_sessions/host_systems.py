"""Systems of whole nodes in which rare rows of the process `SESSION_HOST` are taken, one kind in each.

DepartingClient: a client of whole nodes that leaves, or is lost, and judges what its nodes make of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, name_of
from statemachines.persistent_sessions.life_record import LOCKING, SessionClosed
from statemachines.persistent_sessions.life_request import LockClient
from statemachines.persistent_sessions.message import Live, MarkerWanted, Publish, Pubrel, Queued, Written
from statemachines.persistent_sessions.properties.acknowledged_messages import AcknowledgedMessages
from statemachines.persistent_sessions.properties.delivered_messages import Copy, DeliveredMessages
from statemachines.persistent_sessions.request import DATABASE, LoadSession
from statemachines.persistent_sessions.session_host_parties import LIVES, WRITERS, owner_of
from statemachines.persistent_sessions.session_host_record import (
    LeaveClient,
    LoseClient,
    MeetWriter,
    TakeAcknowledgements,
)
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines.persistent_sessions.takeover_record import BeginTakeover, FindOwner, TakeoverRefused
from statemachines.persistent_sessions.writer_record import IDLE, Hand, HandRange
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.process_steps import ProcessParts
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, Stepwise, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.persistent_sessions.client import (
    CLIENT,
    PUBLISHER,
    Acknowledge,
    Changed,
    Connected,
    PublishTo,
    copy_of,
    note_broken,
)
from statemachines_spec.persistent_sessions.node_database import BESIDE, LookOut
from statemachines_spec.persistent_sessions.node_systems import (
    LIAR,
    NODES,
    FalseClaim,
    GoOn,
    LieRefused,
    LyingLocal,
    LyingNode,
    MovingClient,
    MovingLocal,
    NodeSetting,
    SessionNodeActor,
    build,
)


class StoredBeside(Event, frozen=True, gc=False):
    """These messages are stored for another session."""

    messages: tuple[str, ...]


class DepartingLocal(MovingLocal, frozen=True, gc=False):
    """`seen` of what it acknowledges; messages that are `in_flight` in the committed state;
    `standing`: owners of its connections that are not over, `left` of these; what is stored `beside` its session;
    messages that were `handed` over, and those whose publisher was `told` that they are stored."""

    seen: AcknowledgedMessages = AcknowledgedMessages()
    in_flight: tuple[tuple[Copy, int], ...] = ()
    standing: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    handed: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


class DepartingClient(MovingClient):
    """It sees when its nodes hear that it leaves, or is lost, and what the publishers are told of; where it
    `returns` it connects again only when it has left, or is lost."""

    def __init__(self, one: NodeSetting, *, returns: bool = False) -> None:
        super().__init__(one.at, later=one.later, window=one.window)
        self.sessions = one.beside
        self.returns = returns
        self.crashes = one.crashes

    def initial(self) -> DepartingLocal:
        return DepartingLocal(*self.begin())

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor in NODES and isinstance(event, LeaveClient | LoseClient):
            return event
        if actor == PUBLISHER and isinstance(event, PublishTo):
            return event
        if actor == DATABASE and before.beside != after.beside:
            return StoredBeside(after.beside)
        return super().sees(actor, before, event, after)

    def inputs(self, local: Any) -> tuple[Any, ...]:
        found = super().inputs(local)
        stays = self.returns and any(one not in local.left for one in local.standing)
        return tuple(one for one in found if not isinstance(one, GoOn)) if stays else found

    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case LeaveClient(owner) | LoseClient(owner) as event:
                if owner not in local.standing:
                    return Reaction(local)
                left = tuple(sorted({*local.left, owner}))
                return Reaction(observe_owner(replace(local, left=left), owner, event))
            case Connected(owner):
                local = replace(local, standing=tuple(sorted({*local.standing, owner})))
            case Changed(committed=committed):
                local = replace(local, in_flight=committed)
            case Acknowledge():
                local = observe_owner(local, local.owner, TakeAcknowledgements(local.owner, local.due[:1]))
            case Publish() as message:
                local = observe_owner(local, envelope.sender, message)
            case PublishTo(_, message, also):
                handed = tuple(sorted({*local.handed, message, also} - {""}))
                return Reaction(replace(local, handed=handed))
            case Written(message):
                return self._note_answers(local, (message,))
            case StoredBeside(messages):
                return Reaction(replace(local, beside=messages))
            case SessionClosed() as event:
                local = self._closed(local, owner_of(envelope.sender), event)
        return super().react(local, envelope, watch)

    def _note_answers(self, local: Any, messages: tuple[str, ...]) -> Reaction:
        """A message is stored for every session that it is for."""
        for message in messages:
            local = note_broken(local, self._stored(local, message).judge_answer(copy_of(message)))
        return Reaction(replace(local, told=tuple(sorted({*local.told, *messages}))))

    def _stored(self, local: Any, message: str) -> DeliveredMessages:
        """What is stored in its session, unless the message is for another one that has it not."""
        sessions = self.sessions.get(message, (SESSION,))
        if BESIDE in sessions and message not in local.beside:
            return DeliveredMessages()
        return local.delivered if SESSION in sessions else DeliveredMessages().observe_stored(BESIDE, copy_of(message))

    @staticmethod
    def _closed(local: DepartingLocal, owner: str, event: SessionClosed) -> DepartingLocal:
        standing, left = (tuple(one for one in some if one != owner) for some in (local.standing, local.left))
        return observe_owner(replace(local, standing=standing, left=left), owner, event)

    # -- reading it -------------------------------------------------------------------------------------------------

    def properties(self) -> Iterator[Property]:
        """What such a client is promised."""
        text = "what a client has acknowledged before it left or was lost does not come again once its node has said so"
        yield Always(
            "REDELIVERED",
            text,
            (self.has_broken("REDELIVERED"),),
            lambda again: not again,
        )

    def obligations(self) -> Iterator[Eventually]:
        """What its nodes owe it sooner or later."""
        text = "what a client that stays has acknowledged is committed"
        yield Eventually("COMMITS", text, (View(self.name, 2, waits_for_commit),), bool)
        if not self.crashes:
            text = "a message that is handed over is stored for every session that it is for, and its publisher told"
            untold = View(self.name, 2, lambda local: int(local.told != local.handed))
            yield Eventually("TELLS", text, (untold,), bool)
        text = "a connection ends whose client leaves it, is lost, or has made another"
        yield Eventually("CLOSES", text, (View(self.name, 2, waits_for_end),), bool)


def observe_owner(local: DepartingLocal, owner: str, event: Event) -> DepartingLocal:
    """Something happens to the owner of a connection."""
    seen, broken = local.seen.observe(owner, event)
    return note_broken(replace(local, seen=seen), broken)  # type: ignore[no-any-return]


def waits_for_commit(local: DepartingLocal) -> int:
    """Something that it has acknowledged over its connection is in flight in the committed state."""
    found = local.seen.connections.get(local.owner)
    if found is None or found.goes:
        return 0
    messages = {message for (_, message), _ in local.in_flight}
    return int(any(message in messages for message, _ in found.acknowledged))


def waits_for_end(local: DepartingLocal) -> int:
    """A connection that it does not have any more is not over."""
    return int(bool(local.left) or any(one != local.owner for one in local.standing))


DRIVER = "driver"


class HostCall(Event, frozen=True, gc=False):
    """The driver of the `node` calls this."""

    node: str
    call: Any


class DriverLocal(msgspec.Struct, frozen=True, gc=False):
    """It remembers nothing."""


class Driver(Actor):
    """What drivers say to their nodes: any of these `calls`, at any moment."""

    def __init__(self, calls: tuple[HostCall, ...]) -> None:
        super().__init__(DRIVER)
        self.calls = calls

    def initial(self) -> DriverLocal:
        return DriverLocal()

    def inputs(self, local: DriverLocal) -> tuple[Any, ...]:
        return self.calls

    def react(self, local: DriverLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        return Reaction(local, (), (Envelope("", event.node, event.call),))

    def describe(self, local: DriverLocal) -> str:
        return "calls"

    def bounds(self) -> dict[str, str]:
        return {"calls": "; ".join(f"{type(one.call).__name__} of {owner_of_call(one.call)}" for one in self.calls)}


def owner_of_call(call: Any) -> str:
    """The owner that it is about."""
    owner: str = call.party if isinstance(call, MeetWriter) else call.owner
    return owner


class StrangeLocal(LyingLocal, frozen=True, gc=False):
    """Kinds of its messages: `said` and not refused yet, and `refused`."""

    said: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def is_refused(kind: str, local: StrangeLocal) -> int:
    """Such a message was refused."""
    return int(kind in local.refused)


class StrangeNode(LyingNode):
    """A node that says these `lies`, each as the owner `c~1/1`."""

    def __init__(self, lies: tuple[FalseClaim, ...]) -> None:
        super().__init__()
        self.lies = lies

    def initial(self) -> StrangeLocal:
        return StrangeLocal()

    def inputs(self, local: Any) -> tuple[Any, ...]:
        return self.lies

    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case FalseClaim(to, message):
                said = tuple(sorted({*local.said, name_of(type(message))}))
                return Reaction(replace(local, said=said), (Envelope(STRANGER, to, message),))
            case LieRefused(kind):
                return Reaction(self._noted(local, kind))
            case TakeoverRefused():
                return Reaction(self._noted(local, name_of(BeginTakeover)))
        return Reaction(local)

    @staticmethod
    def _noted(local: StrangeLocal, kind: str) -> StrangeLocal:
        said = tuple(one for one in local.said if one != kind)
        return replace(local, said=said, refused=tuple(sorted({*local.refused, kind})))

    def properties(self) -> Iterator[Property]:
        """Each of its lies is refused."""
        for kind in sorted({name_of(type(one.message)) for one in self.lies}):
            yield Sometimes(f"is refused: {kind}", "", (View(self.name, 2, partial(is_refused, kind)),), bool)

    def obligations(self) -> Iterator[Eventually]:
        """What it says is refused, but an answer that nobody waits for."""
        answer = name_of(TakeoverRefused)
        waits = View(self.name, 2, lambda local: int(any(kind != answer for kind in local.said)))
        if self.lies:
            yield Eventually("REFUSES", "a node that speaks for another is refused", (waits,), bool)


STRANGER = f"{LIAR}~1/1"
LEAVES = tuple(HostCall(node, call(f"{node}~1/1")) for node in NODES for call in (LeaveClient, LoseClient))
ASKS_FOR_ANOTHER = (FalseClaim("a~1/1", BeginTakeover("stranger", STRANGER, 9)),)
SPEAKS_FOR_ANOTHER = (
    FalseClaim("a", Pubrel(1)),
    FalseClaim("a", MarkerWanted(SESSION, "b~1/1", 9, 1)),
    FalseClaim("a~1/1", Live(SESSION, "b", 1, Queued(1, "b9", "t", 1))),
    FalseClaim("b~1/1", TakeoverRefused("client", 2)),
)


class HostSystem(msgspec.Struct, frozen=True, kw_only=True):
    """`about` what it is; its bounds; what drivers may `call`; what a stranger may say (`lies`); `looks`: nodes look
    into the database for writers that they have not met; `returns`: the client connects where it has left alone."""

    about: str
    setting: NodeSetting
    calls: tuple[HostCall, ...] = ()
    lies: tuple[FalseClaim, ...] = ()
    looks: bool = True
    returns: bool = False


HOSTS: dict[str, HostSystem] = {
    "node-link-breaks": HostSystem(
        about="the path from a node to the owner at another breaks, and what is on it is lost",
        setting=NodeSetting(at=("a",), messages=(0, 2), breaks=1),
    ),
    "node-overtaken": HostSystem(
        about="a client connects again while its earlier connection waits for the lock",
        setting=NodeSetting(at=("a", "a"), messages=(1, 0), slow=(LockClient,)),
    ),
    "node-leaves": HostSystem(
        about="a client leaves a node or is lost, also when it has gone, and goes to another node",
        setting=NodeSetting(at=("a", "b"), messages=(1, 0), later=True),
        calls=LEAVES[:2],
    ),
    "node-left-for-good": HostSystem(
        about="a client leaves or is lost for good, also while its session is loaded",
        setting=NodeSetting(at=("a",), messages=(1, 0), slow=(LoadSession,), later=True),
        calls=(*LEAVES[:2], HostCall("a", MeetWriter("a~1/1", writer="a"))),
    ),
    "node-comes-back": HostSystem(
        about="a client that has left a node or is lost connects at another",
        setting=NodeSetting(at=("a", "b"), messages=(1, 0), later=True),
        calls=LEAVES[:2],
        returns=True,
    ),
    "node-moved-on": HostSystem(
        about="a client goes from one node to another and back, and its earlier connections end",
        setting=NodeSetting(at=("a", "b", "a"), messages=(0, 0)),
    ),
    "node-asks-twice": HostSystem(
        about="an owner asks twice to take over from a client that leaves, and is refused twice",
        setting=NodeSetting(at=("a", "b"), messages=(0, 0), later=True, repeats=True),
        calls=LEAVES[:2],
    ),
    "node-asked-for-another": HostSystem(
        about="a node asks an owner for the session of another client",
        setting=NodeSetting(at=("a",), messages=(1, 0), lies=1),
        lies=ASKS_FOR_ANOTHER,
    ),
    "node-speaks-for-another": HostSystem(
        about="a node speaks for a writer or an owner of another, and says what is not said between nodes",
        setting=NodeSetting(at=("a", "b"), messages=(0, 1), lies=1),
        lies=SPEAKS_FOR_ANOTHER,
    ),
    "node-writer-dies": HostSystem(
        about="a node dies whose messages the owner at another follows",
        setting=NodeSetting(at=("b",), messages=(1, 0), crashes=1),
    ),
    "node-never-looks": HostSystem(
        about="a writer that begins asks where its session is live, and no node looks for writers in the database",
        setting=NodeSetting(at=("a",), messages=(0, 1), slow=(FindOwner,), repeats=True),
        looks=False,
    ),
    "node-two-sessions": HostSystem(
        about="messages are for one of two sessions or for both, and the node has room for one writer",
        setting=NodeSetting(
            at=("b",),
            messages=(3, 0),
            writers_max=1,
            beside={"a1": (SESSION, BESIDE), "a2": (SESSION,), "a3": (BESIDE,)},
        ),
    ),
}
SYSTEMS: dict[str, tuple[str, HostSystem]] = {name: (one.about, one) for name, one in HOSTS.items()}
"""Name -> (about, what it is)."""

CALLS_MAX = 2


def system(name: str) -> System:
    """The system called so."""
    one = HOSTS[name]
    made = build(name, one.about, one.setting)
    client, stranger = DepartingClient(one.setting, returns=one.returns), StrangeNode(one.lies)
    others: dict[str, Actor] = {CLIENT: client, LIAR: stranger}
    actors = tuple(others.get(actor.name, actor) for actor in made.actors)
    if one.calls:
        made = replace(made, budgets=(*made.budgets, at_most("calls of drivers", CALLS_MAX, HostCall)))
        actors = (*actors, Driver(one.calls))
    if not one.looks:
        made = replace(made, budgets=(*made.budgets, at_most("looks for writers", 0, LookOut)))
    judged = (*waiting_properties(made), *room_properties(one.setting), *stranger.properties(), *client.properties())
    obligations = (*made.obligations, *stranger.obligations(), *client.obligations())
    if any(call.node == one.setting.at[-1] for call in one.calls):
        obligations = tuple(owed for owed in obligations if owed.name != "CONNECTS")  # it may leave before
    return replace(made, actors=actors, properties=(*made.properties, *judged), obligations=obligations)


def waiting_properties(made: System) -> Iterator[Property]:
    """PS-203 of each node."""
    text = "of the connections of one client at a node the last one alone waits for the lock"
    for node in made.actors:
        if isinstance(node, SessionNodeActor):
            yield Always(f"WAITS {node.name}", text, (node.view(count_waiting, 3),), lambda waiting: waiting < 2)


def count_waiting(parts: ProcessParts) -> int:
    """Connections that wait for the lock, 2 for more."""
    return min(2, sum(one.kind == LIVES.name and one.party.record.status is LOCKING for one in parts.parties))


def room_properties(one: NodeSetting) -> Iterator[Property]:
    """PS-148, where there is room for few writers."""

    def has_room(actor: str, before: Any, event: Any, after: Any) -> bool:
        if actor not in NODES or not isinstance(event, Hand | HandRange) or after.parts is None:
            return True
        writers = [party.party.record for party in after.parts.parties if party.kind == WRITERS.name]
        return len(writers) <= one.writers_max or all(writer.status is not IDLE for writer in writers)

    if one.beside:
        text = "a node that has more writers than it may has none that is idle, once it was handed something"
        yield Stepwise("ROOM", text, has_room)
