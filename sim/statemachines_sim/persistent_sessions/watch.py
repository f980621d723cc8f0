"""Watch: the properties of persistent sessions, judged in every run from what users and the database see.

Publishers say what they hand over and what is answered, subscribers what they are told and get; every transaction is
seen as it is committed.  No record of a machine is asked while faults go on.

Goals: what must become true once everything has healed: everybody is connected, everything has come, nothing is
left behind.

Ways that nothing heals are left (`Unreachable`).  A node that does not reach the database serves nobody, and what its
machines have asked stays open; all else holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from statemachines.kernel import Answer, BrokenProperty, Event, Request, in_order
from statemachines.kernel import Message as Said
from statemachines.persistent_sessions.message import Delivered, Publish, Pubrel
from statemachines.persistent_sessions.properties import PROPERTIES as JUDGED
from statemachines.persistent_sessions.properties.acknowledged_messages import AcknowledgedMessages
from statemachines.persistent_sessions.properties.delivered_messages import (
    Copy,
    CopyDelivered,
    PublishedMessages,
    judge_rest,
    judge_room,
)
from statemachines.persistent_sessions.properties.opened_sessions import judge_return, judge_route, judge_welcome
from statemachines.persistent_sessions.properties.session_owners import (
    SendingOwners,
    judge_count,
    judge_end,
    judge_losses,
    judge_takeover,
    list_unfinished,
)
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.resume_record import ResumeRecord
from statemachines.persistent_sessions.session_host_record import OwnerOpened
from statemachines.persistent_sessions.takeover_record import TakeoverBegun, TakeoverEnded
from statemachines_sim import cluster
from statemachines_sim.cluster import Missing, SimCluster
from statemachines_sim.judge import Judge
from statemachines_sim.persistent_sessions.books import ClientBook, SessionBook, matches
from statemachines_sim.persistent_sessions.database import statements_of
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.persistent_sessions.store_judge import StoreJudge
from statemachines_sim.units import MS, S


def find_missing(world: SimCluster, store: StoreJudge) -> Missing | None:
    """The first that is not true yet."""
    goals = (connects, complete, find_miscounted, ends, vanish)
    return next((found for goal in goals for found in goal(world, store)), None)


def connects(world: SimCluster, store: StoreJudge) -> Iterator[Missing]:
    """CONNECTS."""
    for node, one in sorted(world.processes.items()):
        process: Any = one
        if node.startswith("subscriber-") and not process.welcome:
            yield "CONNECTS", f"{node} is not connected"
        if node.startswith("publisher-") and process.unanswered:
            yield "CONNECTS", f"{node} is not answered: {len(process.unanswered)}"


def complete(world: SimCluster, store: StoreJudge) -> Iterator[Missing]:
    """COMPLETE."""
    for name, session in in_order(store.opened.current):
        book = store.sessions[session]
        for broken in judge_rest(book.delivered.find_outstanding(), (*sorted(book.packets), *book.queued)):
            yield broken.name, f"{name} ({session}): {broken.detail}"


def find_miscounted(world: SimCluster, store: StoreJudge) -> Iterator[Missing]:
    """COUNTED: where retention has removed nothing, no owner has counted anything as lost."""
    if store.retained:
        return
    for _, process in sorted(world.processes.items()):
        for party, machine in sorted(process.host.nodes.items()):
            for broken in judge_losses(party, getattr(machine.record, "delivery", None)):
                yield broken.name, broken.detail


def has_database(world: SimCluster, node: str) -> bool:
    """Whether nothing that lasts is between the node and the database, in either direction."""
    return not world.network.lasting & {(node, DATABASE), (DATABASE, node)}


def ends(world: SimCluster, store: StoreJudge) -> Iterator[Missing]:
    """ENDS, TAKES: an owner for each connected client, in normal operation, and no more than that."""
    owners = 0
    for node, process in sorted(world.processes.items()):
        if not has_database(world, node):
            continue
        for party, machine in sorted(process.host.nodes.items()):
            record = machine.record
            if not isinstance(record, ResumeRecord):
                continue
            owners += 1
            for broken in (*judge_takeover(party, record), *list_unfinished(party, record)):
                yield broken.name, broken.detail
    clients = [node for node, one in world.processes.items() if getattr(one, "has_session", False)]
    for broken in judge_count(owners, len(clients)):
        yield broken.name, broken.detail


def vanish(world: SimCluster, store: StoreJudge) -> Iterator[Missing]:
    """VANISH."""
    if not store.collects:
        return
    statements = statements_of(world)
    for table in ("session_rows", "messages"):
        ((count,),) = statements.rows(f"SELECT count(*) FROM @{table}")
        if count:
            yield "VANISH", f"{count} rows are left in {table}"


PROPERTIES = (*JUDGED, "CONNECTS", "VANISH")
COUNTED = (
    "published", "handed_again", "answered", "stored", "delivered", "again", "lost", "opened", "connected", "resumed",
    "taken_over", "fenced", "collected", "expired", "dropped",
)  # fmt: skip
NO_SESSION = SessionBook("", 0)
"""Of a client that has none nothing is stored."""
SLACK_NS = S
"""An expiry that ends within so long of a connect is neither here nor there."""


class SessionClient(Protocol):
    """What is judged of a client: its `node`, its `session`, `wanted` filters with their QoS, and `open`, what it has
    not acknowledged."""

    node: str
    session: str
    wanted: dict[str, int]
    receive_maximum: int
    open: set[int]


class SessionWatch(cluster.Watch):
    """The properties of `spec/persistent_sessions/properties.md`; `store`: the books."""

    def __init__(self, own: SessionSection, judge: Judge) -> None:
        super().__init__(judge)
        self.own = own
        self._counts = dict.fromkeys(COUNTED, 0)
        self.store = StoreJudge(own, self.report, self._counts)
        self._handed: dict[str, tuple[str, int]] = {}
        self._publications = PublishedMessages()
        self._owners = SendingOwners()
        self._opened: dict[str, str] = {}
        self._acknowledged: dict[str, AcknowledgedMessages] = {}

    def begin(self, world: SimCluster) -> None:
        self.world = world
        self.store.begin(world)
        kinds = {fault.kind for fault in world.schedule if fault.target == DATABASE}
        self._odd_clock = not kinds.isdisjoint(("jump", "drift", "set_back"))
        self._leaps = "leap_ahead" in kinds

    def check(self, name: str, holds: bool, detail: str) -> None:
        """The property breaks unless it holds."""
        if self.judging and not holds:
            self.judge.report_broken(name, detail)

    def report(self, broken: tuple[BrokenProperty, ...], who: str = "") -> None:
        """These properties break; `who` it is about."""
        if self.judging:
            for one in broken:
                self.judge.report_broken(one.name, f"{who}{one.detail}")

    def observe_request(
        self, service: str, party: str, request: Request, answers: tuple[Answer, ...], now_ns: int
    ) -> None:
        # A clock that leaps is no witness of how long something has lived.
        self.store.observe_request(request, answers, self.world.now if self._leaps else now_ns)

    # -- publishers -----------------------------------------------------------------------------------------------

    def observe_publish(self, name: str, topic: str, again: bool) -> None:
        """A message is handed over; `again`: what became of it before nobody knows."""
        self._handed[name] = (topic, self.world.now)
        self._publications = self._publications.observe_handed(name)
        self._counts["handed_again" if again else "published"] += 1

    def observe_answer(self, name: str) -> None:
        """A publisher hears that its message is stored: it is, for every session whose client has known for longer
        that it subscribes it."""
        topic, at_ns = self._handed[name]
        self._publications = self._publications.observe_answered(name)
        self._counts["answered"] += 1
        for session, book in self.store.sessions.items():
            if book.ended:
                continue
            for topic_filter, since_ns in book.subscribed.items():
                if since_ns <= at_ns and matches(topic, topic_filter):
                    self.report(book.delivered.judge_answer((topic_filter, name)), f"{session}: ")

    # -- subscribers ----------------------------------------------------------------------------------------------

    def connecting(self, client: SessionClient, clean: bool) -> None:
        """A client asks to be connected."""
        book = self.store.client(client.node)
        book.clean, book.begun, book.dialled_ns = clean, self._counts["opened"], self.world.now
        book.dropped = book.dropped or clean

    def observe_end(self, client: SessionClient, why: str) -> None:
        """A client is told that its connection is over, and why: nobody else has its client id, in any run.  The owner
        of a session that expired while it stood still has been superseded (PS-123)."""
        if not self.store.client(client.node).lapsed:
            self.report(judge_end(client.node, why))

    def observe_welcome(self, client: SessionClient, session: str, present: bool) -> None:
        """A client is told which session it has."""
        book, now_ns = self.store.client(client.node), self.world.now
        who, opened = f"{client.node}: ", self.store.opened
        self.report(opened.judge_given(session), who)
        was_there = opened.was_there(session, book.begun)
        self.report(judge_welcome(session, is_present=present, was_there=was_there, is_clean=book.clean), who)
        if self.own.expiry_ms >= 0 and not self._odd_clock:
            self._judge_expiry(client.node, session)
        elif self.own.expiry_ms < 0:
            self.report(judge_return(book.told, session, may_end=book.dropped), who)
        self._counts["connected"] += 1
        self._counts["resumed"] += present
        book.told, book.seen_ns, book.left_ns, book.dropped, book.lapsed = session, now_ns, -1, False, False

    def observe_heard(self, client: SessionClient) -> None:
        """A client with a session hears its node: the owner lives.  An owner that stood still for an expiry has lost
        the session: nobody has said meanwhile that it lives."""
        book = self.store.client(client.node)
        book.lapsed = book.lapsed or not self._is_fresh(book)
        book.seen_ns = self.world.now

    def leaving(self, client: SessionClient, discards: bool) -> None:
        """A client says good-bye; `discards`: for good."""
        book = self.store.client(client.node)
        book.dropped = book.dropped or discards

    def observe_left(self, client: SessionClient) -> None:
        """It hears that it has left."""
        self.store.client(client.node).left_ns = self.world.now

    def observe_subscription(self, client: SessionClient, topic_filter: str) -> None:
        """It hears that it subscribes."""
        self.store.sessions[client.session].subscribed[topic_filter] = self.world.now

    def unsubscribes(self, client: SessionClient, topic_filter: str) -> None:
        """It wants a subscription no more."""
        self.store.sessions[client.session].subscribed.pop(topic_filter, None)

    def _judge_expiry(self, client: str, session: str) -> None:
        """A session outlives the last that was heard of its client, and not by more than the expiry."""
        book, expiry_ns = self.store.clients[client], self.own.expiry_ms * MS
        is_safe = book.seen_ns >= 0 and not book.lapsed and self._is_fresh(book)
        is_over = book.left_ns >= 0 and book.dialled_ns - book.left_ns > expiry_ns + SLACK_NS and not self._leaps
        broken = judge_return(book.told, session, may_end=book.dropped or not is_safe, has_expired=is_over)
        self.report(broken, f"{client}: ")

    def _is_fresh(self, book: ClientBook) -> bool:
        """The session cannot have expired since its client last heard from the owner."""
        expiry_ms = self.own.expiry_ms
        return expiry_ms < 0 or self.world.now - book.seen_ns < expiry_ms * MS - SLACK_NS

    # -- messages -------------------------------------------------------------------------------------------------

    def observe_delivery(self, client: SessionClient, message: Delivered) -> None:
        """A message comes to a client."""
        key = (message.filter, message.payload.decode())
        who = f"{client.node} ({client.session}): "
        self._judge_route(client, key, who)
        book = self.store.sessions.get(client.session, NO_SESSION)
        self.report(judge_room(len(client.open), client.receive_maximum), who)
        stream, _, number = key[1].rpartition(":")
        event = CopyDelivered(
            key, message.packet, message.dup, key in book.done, f"{key[0]} {stream}", int(number or 0)
        )
        before = book.delivered
        after, broken = before.observe_delivery(event, self._publications)
        self.report(broken, who)
        book.delivered = after
        self._counts["again" if key in before.had else "delivered"] += 1

    def _judge_route(self, client: SessionClient, key: Copy, who: str) -> None:
        """It is stored for the session in which it comes, and not for another one of the client."""
        sessions = self.store.sessions
        if client.session in sessions and key in sessions[client.session].rows:
            return
        others = [name for name, one in sessions.items() if one.client == client.node and key in one.rows]
        self.report(judge_route(client.session, others), who)

    # -- owners ---------------------------------------------------------------------------------------------------

    def says(self, party: str, message: Said) -> None:
        """A machine sends this to another."""
        if isinstance(message, TakeoverBegun):
            self._owners = self._owners.observe_replaced(party)
        elif isinstance(message, TakeoverEnded):
            self._counts["taken_over"] += 1

    def observe_send(self, owner: str, message: Publish | Pubrel) -> None:
        """An owner sends something to its client: not after it has yielded."""
        self.report(self._owners.judge_sender(owner))
        self.observe_owner(owner, message)

    def observe_owner(self, owner: str, event: Event) -> None:
        """Something happens to an owner: what its client has acknowledged when it goes does not come again."""
        if isinstance(event, OwnerOpened):
            self._opened[owner] = event.session
        if not self.judging or owner not in self._opened:
            return
        session = self._opened[owner]
        seen = self._acknowledged.get(session, AcknowledgedMessages())
        self._acknowledged[session], broken = seen.observe(owner, event)
        self.report(broken)

    # -- the end --------------------------------------------------------------------------------------------------

    def missing(self, world: SimCluster) -> Missing | None:
        return find_missing(world, self.store)

    def tally(self) -> dict[str, int]:
        return dict(self._counts)


def watch_of(world: SimCluster) -> SessionWatch:
    """Who judges a world."""
    found: Any = world.watch
    return found  # type: ignore[no-any-return]
