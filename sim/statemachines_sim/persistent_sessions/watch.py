"""Watch: the properties of persistent sessions, judged in every run from what users and the database see.

Publishers say what they hand over and what is answered, subscribers what they are told and get; every transaction is
seen as it is committed.  No record of a machine is asked while faults go on.
"""

from __future__ import annotations

from typing import Any, Protocol

from statemachines.kernel import Answer, Event, Request
from statemachines.kernel import Message as Said
from statemachines.persistent_sessions.acknowledged_messages import AcknowledgedMessages
from statemachines.persistent_sessions.client_message import Delivered
from statemachines.persistent_sessions.message import Publish, Pubrel
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.session_host_record import OwnerOpened
from statemachines.persistent_sessions.takeover_message import TakeoverBegun, TakeoverEnded
from statemachines_sim import cluster
from statemachines_sim.cluster import Missing, SimCluster
from statemachines_sim.judge import Judge
from statemachines_sim.persistent_sessions.books import ClientBook, Key, SessionBook, matches
from statemachines_sim.persistent_sessions.goals import missing
from statemachines_sim.persistent_sessions.section import Section
from statemachines_sim.persistent_sessions.store_judge import StoreJudge
from statemachines_sim.units import MS, S

PROPERTIES = (
    "GAP", "TWICE", "UNCOMMITTED", "UNSTORED", "MAXIMUM", "STRANGER", "ORDER", "AGED", "COUNTED", "KEPT", "OLD",
    "REUSED", "FORGOTTEN", "EXPIRED", "PRESENT", "STOLEN", "SPLIT", "SUPERSEDED", "REDELIVERED", "CONNECTS",
    "COMPLETE", "ENDS", "TAKES", "VANISH",
)  # fmt: skip
COUNTED = (
    "published", "handed_again", "answered", "stored", "delivered", "again", "lost", "opened", "connected", "resumed",
    "taken_over", "fenced", "collected", "expired", "dropped",
)  # fmt: skip
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

    def __init__(self, own: Section, judge: Judge) -> None:
        super().__init__(judge)
        self.own = own
        self._counts = dict.fromkeys(COUNTED, 0)
        self.store = StoreJudge(own, self.check, self._counts)
        self._handed: dict[str, tuple[str, int]] = {}
        self._answered: dict[str, int] = {}
        self._yielded: set[str] = set()
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

    def observe_request(
        self, service: str, party: str, request: Request, answers: tuple[Answer, ...], now_ns: int
    ) -> None:
        # A clock that leaps is no witness of how long something has lived.
        self.store.observe_request(request, answers, self.world.now if self._leaps else now_ns)

    # -- publishers -----------------------------------------------------------------------------------------------

    def observe_publish(self, name: str, topic: str, again: bool) -> None:
        """A message is handed over; `again`: what became of it before nobody knows."""
        self._handed[name] = (topic, self.world.now)
        self._counts["handed_again" if again else "published"] += 1

    def observe_answer(self, name: str) -> None:
        """A publisher hears that its message is stored: it is, for every session whose client has known for longer
        that it subscribes it."""
        topic, at_ns = self._handed[name]
        self._answered[name] = self.world.now
        self._counts["answered"] += 1
        for session, book in self.store.sessions.items():
            if book.ended:
                continue
            for topic_filter, since_ns in book.subscribed.items():
                if since_ns <= at_ns and matches(topic, topic_filter):
                    stored = (topic_filter, name) in book.rows
                    self.check("UNSTORED", stored, f"{name} is answered, and {session} has no row of it")

    # -- subscribers ----------------------------------------------------------------------------------------------

    def connecting(self, client: SessionClient, clean: bool) -> None:
        """A client asks to be connected."""
        book = self.store.client(client.node)
        book.clean, book.begun, book.dialled_ns = clean, self._counts["opened"], self.world.now
        book.dropped = book.dropped or clean

    def observe_end(self, client: SessionClient, why: str) -> None:
        """A client is told that its connection is over, and why: nobody else has its client id, in any run.  The owner
        of a session that expired while it stood still has been superseded (PS-123)."""
        is_own = why not in ("superseded", "discarded") or self.store.client(client.node).lapsed
        self.check("SUPERSEDED", is_own, f"{client.node} is told that it is {why}")

    def observe_welcome(self, client: SessionClient, session: str, present: bool) -> None:
        """A client is told which session it has."""
        book, now_ns = self.store.client(client.node), self.world.now
        found = self.store.sessions.get(session)
        known = list(self.store.sessions).index(session) < book.begun if found is not None else False
        self.check("STRANGER", found is not None, f"{client.node} is told of {session}, which nobody has opened")
        self.check("PRESENT", present == known, f"{client.node} is told present = {present} of {session}")
        self.check("PRESENT", not (present and book.clean), f"{client.node} begins clean, and is given {session}")
        if self.own.expiry_ms >= 0 and not self._odd_clock:
            self._judge_expiry(client.node, session)
        elif self.own.expiry_ms < 0:
            self._judge_forgotten(client.node, session)
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

    def _judge_forgotten(self, client: str, session: str) -> None:
        """It has the session of before, unless it has ended that itself."""
        book = self.store.clients[client]
        same = book.told in ("", session) or book.dropped
        self.check("FORGOTTEN", same, f"{client} had {book.told}, and is given {session}")

    def _judge_expiry(self, client: str, session: str) -> None:
        """A session outlives the last that was heard of its client, and not by more than the expiry."""
        book, expiry_ns = self.store.clients[client], self.own.expiry_ms * MS
        if book.seen_ns >= 0 and not book.lapsed and self._is_fresh(book):
            self._judge_forgotten(client, session)
        if book.left_ns >= 0 and book.dialled_ns - book.left_ns > expiry_ns + SLACK_NS and not self._leaps:
            self.check("EXPIRED", session != book.told, f"{client} is given {session}, which had expired")

    def _is_fresh(self, book: ClientBook) -> bool:
        """The session cannot have expired since its client last heard from the owner."""
        expiry_ms = self.own.expiry_ms
        return expiry_ms < 0 or self.world.now - book.seen_ns < expiry_ms * MS - SLACK_NS

    # -- messages -------------------------------------------------------------------------------------------------

    def observe_delivery(self, client: SessionClient, message: Delivered) -> None:
        """A message comes to a client."""
        key = (message.filter, message.payload.decode())
        book = self._book_of(client, key)
        if book is None:
            return
        who = f"{client.node} ({client.session})"
        packet, had = message.packet, book.had.get(key)
        most = client.receive_maximum
        self.check("MAXIMUM", len(client.open) <= most, f"{who} receives {most}, and has {len(client.open)}")
        self.check("AGED", key not in book.over, f"{who} is given {key}, which had expired before it was sent")
        if packet:
            carried = key in book.carried.get(packet, ())
            self.check("UNCOMMITTED", carried, f"{who} is given {key} under {packet}, which nobody has committed")
        if had is None:
            self._take_first(who, book, key, packet)
            return
        same = message.dup and packet == had and packet > 0
        self.check("TWICE", same, f"{who} has had {key} under {had}, and has it under {packet}, dup = {message.dup}")
        self.check("TWICE", key not in book.done, f"{who} is given {key}, which it has acknowledged")
        self._counts["again"] += 1

    def _book_of(self, client: SessionClient, key: Key) -> SessionBook | None:
        """The session in which it comes."""
        book = self.store.sessions.get(client.session)
        if book is not None and key in book.rows:
            return book
        others = [name for name, one in self.store.sessions.items() if one.client == client.node and key in one.rows]
        self.check("OLD", not others, f"{client.node} ({client.session}) is given {key}, which was for {others}")
        self.check("STRANGER", False, f"{client.node} ({client.session}) is given {key}, which nobody has stored")
        return None

    def _take_first(self, who: str, book: SessionBook, key: Key, packet: int) -> None:
        missed = book.find_missed_before(key)
        self.check("GAP", missed is None, f"{who} is given {key}, and has not had {missed}")
        self.check("GAP", not book.is_overtaken(key), f"{who} is given {key} after what was stored later")
        topic_filter, name = key
        publisher, _, number = name.rpartition(":")
        last = book.orders.get((topic_filter, publisher), 0)
        self.check("GAP", int(number) > last, f"{who} is given {key} after number {last}")
        book.orders[topic_filter, publisher] = int(number)
        first = self._find_earlier(book, key)
        self.check(
            "ORDER", first is None, f"{who} is given {key} before {first}, which was answered before that was sent"
        )
        book.take(key, packet)
        self._counts["delivered"] += 1

    def _find_earlier(self, book: SessionBook, key: Key) -> Key | None:
        """What its publisher knew to be stored when it handed this over, and has not come."""
        sent_ns = self._handed[key[1]][1]
        never = self.world.now
        return next((one for one in book.find_awaited(key) if self._answered.get(one[1], never) < sent_ns), None)

    # -- owners ---------------------------------------------------------------------------------------------------

    def says(self, party: str, message: Said) -> None:
        """A machine sends this to another."""
        if isinstance(message, TakeoverBegun):
            self._yielded.add(party)
        elif isinstance(message, TakeoverEnded):
            self._counts["taken_over"] += 1

    def observe_send(self, owner: str, message: Publish | Pubrel) -> None:
        """An owner sends something to its client: not after it has yielded."""
        self.check("SPLIT", owner not in self._yielded, f"{owner} has yielded, and sends {message}")
        self.observe_owner(owner, message)

    def observe_owner(self, owner: str, event: Event) -> None:
        """Something happens to an owner: what its client has acknowledged when it goes does not come again."""
        if isinstance(event, OwnerOpened):
            self._opened[owner] = event.session
        if not self.judging or owner not in self._opened:
            return
        session = self._opened[owner]
        seen = self._acknowledged.get(session, AcknowledgedMessages())
        if isinstance(event, Publish):
            again = seen.is_redelivered(event)
            self.check("REDELIVERED", not again, f"{owner} sends {event.message}, which its client has acknowledged")
        self._acknowledged[session] = seen.observe(owner, event)

    # -- the end --------------------------------------------------------------------------------------------------

    def missing(self, world: SimCluster) -> Missing | None:
        return missing(world, self.store)

    def tally(self) -> dict[str, int]:
        return dict(self._counts)


def watch_of(world: SimCluster) -> SessionWatch:
    """Who judges a world."""
    found: Any = world.watch
    return found  # type: ignore[no-any-return]
