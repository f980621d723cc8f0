"""Systems of whole nodes: the shipped process `SESSION_HOST`, one session, and a client that goes from node to node.

A client connects at one node after the other, and listens to the last of them alone.  What a publisher hands over at a
node goes through the writer of that node.  Live messages between nodes keep their order; within a node they arrive at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, RemoteProtocolError, name_of, node_of
from statemachines.persistent_sessions.life_record import Accepted, Connect, SessionClosed
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import (
    Live,
    LiveMarker,
    MarkerWanted,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Written,
)
from statemachines.persistent_sessions.properties.delivered_messages import MessageProperty
from statemachines.persistent_sessions.properties.session_owners import SendingOwners, is_resuming, judge_end
from statemachines.persistent_sessions.request import CommitState
from statemachines.persistent_sessions.resume_record import NORMAL
from statemachines.persistent_sessions.session_host_parties import RESUMES, WRITERS, owner_of
from statemachines.persistent_sessions.session_host_process import SESSION_HOST
from statemachines.persistent_sessions.session_host_record import (
    WRITERS_MAX,
    CommitAcknowledged,
    ConnectClient,
    HandMessages,
    LoseClient,
    MatchedMessage,
    RoutedMessage,
    SessionHostRecord,
    TakeAcknowledgements,
    Undelivered,
)
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines.persistent_sessions.takeover_record import BeginTakeover, EndTakeover, FindOwner
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow import LinkLost, WriterDown
from statemachines.persistent_sessions.writer_record import IDLE, Hand, HandRange
from statemachines_spec.explorer.actor import Actor, Crash, Envelope, Reaction, Watch
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.process_actor import ProcessActor, ProcessActorLocal
from statemachines_spec.explorer.process_steps import ProcessParts
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.persistent_sessions.client import (
    CLIENT,
    Connected,
    ReconnectingClient,
    ReconnectingClientLocal,
    SessionPublisherActor,
    note_broken,
)
from statemachines_spec.persistent_sessions.clients import Carried
from statemachines_spec.persistent_sessions.node_database import CLUSTER, Break, Cluster, Lose, NodeDatabase
from statemachines_spec.persistent_sessions.systems import has_settled

HOUR_MS = 3_600_000
NODES = ("a", "b")
LIAR = "c"
MARKERS_MAX = 2
LIVE = (Live, LiveMarker)
"""Why a connection ends whose session another has."""


class NodeSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds such a system: the nodes that the client connects `at`, one after the other; `messages` handed over
    at each node; `slow` requests; `crashes` of nodes, `losses` of connections, `breaks` of paths; `later`: the client
    takes its time; `window`: what it receives at a time; `alive`: owners say that their sessions live, and may hear
    that they do not; `repeats`: what was not heard is said again; `lies` of a node that has no session; `cuts`: live
    messages that are not sent, and nobody is told; `clean`: each connection but the first discards the session;
    `writers_max` of a node, and the messages for which it has another session `beside` this one, or in its place."""

    at: tuple[str, ...]
    messages: tuple[int, int] = (1, 1)
    slow: tuple[type[Any], ...] = ()
    crashes: int = 0
    losses: int = 0
    breaks: int = 0
    later: bool = False
    window: int = 9
    alive: bool = False
    repeats: bool = False
    lies: int = 0
    writers_max: int = WRITERS_MAX
    beside: Mapping[str, tuple[str, ...]] = {}
    cuts: int = 0
    clean: bool = False

    @property
    def ids(self) -> dict[str, tuple[str, ...]]:
        """The messages that each node is handed over."""
        counts = zip(NODES, self.messages, strict=True)
        return {node: tuple(f"{node}{n}" for n in range(1, count + 1)) for node, count in counts}

    @property
    def coming(self) -> int:
        """How many of them are for the session."""
        return sum(SESSION in self.beside.get(message, (SESSION,)) for ids in self.ids.values() for message in ids)


SYSTEMS: dict[str, tuple[str, NodeSetting]] = {
    "node-alone": (
        "a client connects at one node, and again, while messages are handed over there",
        NodeSetting(at=("a", "a"), messages=(2, 0), slow=(CommitState,)),
    ),
    "node-to-node": (
        "a client goes from one node to another, which takes its session over, and acknowledges what it gets",
        NodeSetting(at=("a", "b"), messages=(1, 1), later=True),
    ),
    "node-there-and-back": (
        "a client goes from one node to another and back",
        NodeSetting(at=("a", "b", "a"), messages=(1, 0)),
    ),
    "node-dies": (
        "a client goes from a node, which dies at any step, to another",
        NodeSetting(at=("a", "b"), messages=(1, 1), crashes=1),
    ),
    "node-loses-client": (
        "a connection is lost at any step, and the client connects at another node",
        NodeSetting(at=("a", "b"), messages=(2, 0), losses=1, later=True),
    ),
    "node-superseded": (
        "an owner hears that another has its session, at any step of the takeover",
        NodeSetting(at=("a", "b"), messages=(1, 0), alive=True),
    ),
    "node-lies": (
        "a node claims a session that is live at another",
        NodeSetting(at=("a",), messages=(1, 1), lies=2),
    ),
    "node-claims": (
        "where a session is live is looked up slowly, while its client goes from one node to another",
        NodeSetting(at=("a", "b"), messages=(1, 0), slow=(FindOwner,), repeats=True),
    ),
}
"""Name -> (about, bounds)."""


class LieRefused(Event, frozen=True, gc=False):
    """A node refuses what the liar has said."""

    kind: str


class SessionNodeActor(ProcessActor):
    """A node.  What it sends to itself arrives within the same transition, as what it sends to its client.  `beside`:
    messages -> the sessions that they are for (else `SESSION`)."""

    def __init__(self, *given: Any, beside: Mapping[str, tuple[str, ...]] = {}, **named: Any) -> None:
        super().__init__(*given, **named)
        self.beside = beside

    def react(self, local: ProcessActorLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if isinstance(envelope.event, BeginTakeover | EndTakeover) and not self.is_reached(local):
            unsent = Undelivered(envelope.event.to, envelope.to, envelope.event)
            return Reaction(local, (), (Envelope("", node_of(unsent.sender), unsent),))
        try:
            reaction = super().react(local, self._translate(envelope), watch)
        except RemoteProtocolError:
            if node_of(envelope.sender) != LIAR:
                raise
            return Reaction(local, (), (Envelope(self.name, LIAR, LieRefused(name_of(type(envelope.event)))),))
        if reaction is None or not reaction.sends:
            return reaction
        near = tuple(one for one in map(self._near, reaction.sends) if one is not None)
        far = tuple(one for one in reaction.sends if self._near(one) is None)
        return replace(reaction, sends=far, calls=(*reaction.calls, *near))

    @staticmethod
    def is_reached(local: ProcessActorLocal) -> bool:
        """Whether other nodes have a link to it."""
        return local.parts is not None

    def _translate(self, envelope: Envelope) -> Envelope:
        """What the driver of a node makes of it."""
        match envelope.event:
            case Puback() | Pubrec() | Pubcomp() as message:
                return Envelope("", envelope.to, TakeAcknowledgements(envelope.to, (message,)))
            case Hand() as hand:
                return Envelope("", envelope.to, HandMessages((self._routed(hand),)))
            case HandRange(hands):
                return Envelope("", envelope.to, HandMessages(tuple(map(self._routed, hands))))
            case ConnectClient() | LinkLost() | WriterDown():
                return replace(envelope, sender="")
        return envelope

    def _routed(self, hand: Hand) -> RoutedMessage:
        sessions = self.beside.get(hand.message, (SESSION,))
        return RoutedMessage(
            hand.message, tuple(MatchedMessage(one, hand.filter, hand.qos, hand.until_ns) for one in sessions)
        )

    def _near(self, one: Envelope) -> Envelope | None:
        """The message as it is taken at once (None: it travels)."""
        if isinstance(one.event, Publish | Pubrel):
            return replace(one, to=CLIENT)
        if node_of(one.to) == self.name:
            return one
        return Envelope(self.name, CLUSTER, Carried(one.to, one.event)) if isinstance(one.event, LIVE) else None


class FalseClaim(Event, frozen=True, gc=False):
    """The node says this to that party."""

    to: str
    message: Any


class LyingLocal(msgspec.Struct, frozen=True, gc=False):
    """It remembers nothing."""


class LyingNode(Actor):
    """A node that has no session, and says that it has."""

    def __init__(self) -> None:
        super().__init__(LIAR)

    def initial(self) -> LyingLocal:
        return LyingLocal()

    def inputs(self, local: LyingLocal) -> tuple[Any, ...]:
        owner = f"{LIAR}~1/1"
        return (
            FalseClaim(NODES[0], MarkerWanted(SESSION, owner, 9, 1)),
            FalseClaim(f"{NODES[0]}~1/1", BeginTakeover(CLIENT, owner, 9)),
            FalseClaim(f"{NODES[0]}~1/1", EndTakeover(CLIENT, owner, 9)),
        )

    def react(self, local: LyingLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if not isinstance(event, FalseClaim):
            return Reaction(local)
        return Reaction(local, (Envelope(event.message.to, event.to, event.message),))

    def describe(self, local: LyingLocal) -> str:
        return "lies"


class GoOn(Event, frozen=True, gc=False):
    """The client connects at the next node."""


class MovingLocal(ReconnectingClientLocal, frozen=True, gc=False):
    """`connected` so often; the `owners` that it has something of; `accepted`: its last connection is."""

    connected: int = 0
    owners: SendingOwners = SendingOwners()
    accepted: bool = False


class MovingClient(ReconnectingClient):
    """A client that connects at these nodes `at`, one after the other; `clean`: with a fresh session each time."""

    def __init__(self, at: tuple[str, ...], *, clean: bool = False, **given: Any) -> None:
        super().__init__(NODES, NODES, **given)
        self.at = at
        self.clean = clean

    def initial(self) -> MovingLocal:
        return MovingLocal(*self.begin())

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor not in NODES:
            return super().sees(actor, before, event, after)
        is_taken = isinstance(event, ConnectClient) and after.parts is not None
        return Connected(after.parts.own.record.newest[CLIENT]) if is_taken else None

    def inputs(self, local: Any) -> tuple[Any, ...]:
        goes_on = (GoOn(),) if local.connected < len(self.at) else ()
        return (*goes_on, *super().inputs(local))

    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case GoOn():
                attempt = local.connected + 1
                connect = ConnectClient(
                    CLIENT, self.window, Connect(self.clean and attempt > 1, HOUR_MS, CLIENT, attempt)
                )
                call = Envelope(self.name, self.at[local.connected], connect)
                gone = replace(local, connected=attempt, owner="", due=(), accepted=False)
                return Reaction(gone, (), (call,))
            case Connected(owner):
                return Reaction(replace(local, owner=owner))
            case Accepted():
                return Reaction(replace(local, accepted=local.accepted or owner_of(envelope.sender) == local.owner))
            case SessionClosed(_, why):
                is_last = owner_of(envelope.sender) == local.owner and local.connected == len(self.at)
                return Reaction(note_broken(local, judge_end(local.owner, why) if is_last else ()))
            case Publish() | Pubrel():
                owners = local.owners.observe_sender(envelope.sender)
                local = note_broken(replace(local, owners=owners), owners.judge_sender(envelope.sender))
        return super().react(local, envelope, watch)

    def lacks_nothing(self) -> View:
        """Its last connection is not accepted, or everything that is stored has come."""
        accepted, all_is_there = self.is_accepted(), self.has_all()
        return View(self.name, 2, lambda local: int(not accepted.of(local) or bool(all_is_there.of(local))))

    def is_accepted(self) -> View:
        """Its last connection is accepted."""
        return View(self.name, 2, lambda local: int(local.accepted and local.connected == len(self.at)))


def rest_of(parts: ProcessParts) -> int:
    """0: something is under way; 1: nothing is; 2: and a session is in normal operation."""
    is_live = False
    for one in parts.parties:
        record = one.party.record
        if one.kind == WRITERS.name and record.status is not IDLE:
            return 0
        if one.kind == RESUMES.name:
            if record.status is not NORMAL or not has_settled(record) or record.delivery.state.queued:
                return 0
            is_live = True
    return 2 if is_live else 1


def is_complete(first: int, second: int, database: int, cluster: int, has_all: int) -> bool:
    """Where the client is connected and nobody has anything to do, all that is stored has come."""
    is_at_rest = first and second and max(first, second) == 2 and database and cluster
    return bool(has_all) or not is_at_rest


def build(name: str, about: str, one: NodeSetting, node: Callable[..., SessionNodeActor] = SessionNodeActor) -> System:
    """The system with these bounds, and `node` makes each node."""
    times, life_times = Times(receive_maximum=one.window), LifeTimes()

    def calls(record: SessionHostRecord) -> Iterable[Event]:
        lost = (LoseClient(owner) for owner in sorted(record.owners)) if one.losses else ()
        return (*lost, *((CommitAcknowledged(),) if record.acknowledged and one.later else ()))

    nodes = tuple(
        node(
            called,
            SESSION_HOST,
            lambda life: SessionHostRecord(life, times, life_times, writers_max=one.writers_max),
            faults=(Crash,) if one.crashes and called == NODES[0] else (),
            calls=calls,
            tells={Accepted: CLIENT, SessionClosed: CLIENT, Written: CLIENT},
            silent=tuple(timer for timer in SILENT if timer not in fires_in(one)),
            bound=asks_no_more,
            beside=one.beside,
        )
        for called in NODES
    )
    database = NodeDatabase(NODES, NODES, lag=0, slow=one.slow, hides=True)
    cluster = Cluster(NODES, NODES, places=2)
    client = MovingClient(one.at, clean=one.clean, later=one.later, window=one.window)
    return System(
        name,
        about,
        (
            *nodes,
            database,
            cluster,
            client,
            SessionPublisherActor(one.ids, together=bool(one.beside)),
            *((LyingNode(),) if one.lies else ()),
        ),
        Network(3, lossy=False, duplicating=False),
        properties=tuple(properties(nodes, database, cluster, client, one)),
        budgets=(
            at_most("crashes of nodes", one.crashes, Crash),
            at_most("connections that are lost", one.losses, LoseClient),
            at_most("broken paths", one.breaks, Break),
            at_most("live messages that are cut off", one.cuts, Lose),
            at_most("lies", one.lies, FalseClaim),
        ),
        obligations=tuple(obligations(nodes, database, client, one)),
    )


SILENT = ("deadline", "lock", "alive", "resume", "lull", "orphan", "repeat", "marker", "again", "begin", "end")


def fires_in(one: NodeSetting) -> tuple[str, ...]:
    """Timers that fire in such a system, besides those that do in every one."""
    return (*(("alive",) if one.alive else ()), *(("again", "repeat") if one.repeats else ()))


def asks_no_more(parts: ProcessParts) -> bool:
    """two markers of each writer are asked for, and no more"""
    resumes = (one.party.record for one in parts.parties if one.kind == RESUMES.name)
    return all(flow.n <= MARKERS_MAX for resume in resumes for flow in resume.flows.values())


def resumes_of(parts: ProcessParts) -> int:
    """A session is being resumed."""
    return int(any(one.kind == RESUMES.name and is_resuming(one.party.record) for one in parts.parties))


def obligations(
    nodes: tuple[SessionNodeActor, ...], database: NodeDatabase, client: MovingClient, one: NodeSetting
) -> Iterator[Eventually]:
    """What must be met sooner or later."""
    for node in nodes:
        yield Eventually(f"ENDS {node.name}", "a resume ends", (node.view(resumes_of),), bool)
    yield Eventually("MET", "an owner meets every writer that has rows", (database.finds(),), bool)
    if not (one.losses or one.crashes):
        yield Eventually("CONNECTS", "a connect ends", (waits_of(client),), bool)


def waits_of(client: MovingClient) -> View:
    """The client has connected for the last time, and is not accepted."""

    def read(local: MovingLocal) -> int:
        return int(local.connected == len(client.at) and not local.accepted)

    return View(client.name, 2, read)


def properties(
    nodes: tuple[SessionNodeActor, ...],
    database: NodeDatabase,
    cluster: Cluster,
    client: MovingClient,
    one: NodeSetting,
) -> list[Property]:
    """What must hold, and what must happen sometimes."""
    found: list[Property] = [
        Always(how.name, f"never: {how.value}", (client.has_broken(how.name),), lambda broken: not broken)
        for how in MessageProperty
        if how is not MessageProperty.AGED
    ]
    text = "once a new owner has sent something to the client, the one before sends nothing"
    found.append(Always("SPLIT", text, (client.has_broken("SPLIT"),), lambda split: not split))
    text = "the last connection of a client is not superseded: nobody else has made one"
    found.append(Always("SUPERSEDED", text, (client.has_broken("SUPERSEDED"),), lambda robbed: not robbed))
    rests = tuple(node.view(rest_of, 3, gone=1) for node in nodes)
    views = (*rests, database.rests(), cluster.rests(), client.lacks_nothing())
    text = "where the client is connected and nobody has anything to do, all that is stored has come"
    found.append(Always("COMPLETE", text, views, is_complete, quiet=True))
    found.append(Sometimes("all is delivered", "", (client.has_got(one.coming),), bool))
    found.append(Sometimes("connected at last", "", (client.is_accepted(),), bool))
    return found


def system(name: str) -> System:
    """The system called so."""
    return build(name, *SYSTEMS[name])
