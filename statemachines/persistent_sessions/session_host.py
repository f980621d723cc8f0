"""SessionHost: the machines of one node: a writer for each session that something is published to, and for each client
that is connected a session life and a resume.  Without input and output: a driver, or a simulator, does what comes out.

    connect            -> SessionLife --SessionOpened--> Resume --Resumed--> Attach -> SessionLife --Accepted--> told
    publish            -> the Writer of each session --Written, the last of them--> told
    MarkerWanted       -> the Writer of the session, which begins where there is none, and learns who the owner is; of
                          another node when the database says the same (`claims`), as BeginTakeover
    Live, LiveMarker   -> the Resume that it is sent to, if it is of its session
    BeginTakeover, ... -> the same; where there is none, `TakeoverRefused`
    the Resume ends    -> the SessionLife ends; it says how (`SessionClosed`), and both are gone
    the Resume yields  -> the SessionLife ends, superseded; the Resume stays until it has handed over what it has
    and a Collector    -> told `RoundEnded`, `MessageLost`

A writer is called by the name of its node, an owner by an id of its own, under which live messages come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from statemachines.kernel import (
    Answer,
    Ask,
    Event,
    Host,
    Message,
    Node,
    Outgoing,
    RemoteProtocolError,
    Send,
    fresh,
    life_of,
    name_of,
    node_of,
)
from statemachines.kernel.host import Inward
from statemachines.kernel.node import Observer
from statemachines.persistent_sessions.claims import Claim, Claims
from statemachines.persistent_sessions.collector import COLLECTOR
from statemachines.persistent_sessions.collector_record import CollectorRecord
from statemachines.persistent_sessions.delivery_actions import with_receipts
from statemachines.persistent_sessions.graces import Graces
from statemachines.persistent_sessions.life_record import (
    CLOSED,
    KEEP,
    LOCKING,
    Attach,
    Connect,
    Disconnect,
    LifeRecord,
    SessionClosed,
    SessionOpened,
)
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import (
    Live,
    LiveMarker,
    MarkerWanted,
    Puback,
    Pubcomp,
    Pubrec,
    Written,
)
from statemachines.persistent_sessions.owner_request import FindOwner, OwnerFound
from statemachines.persistent_sessions.request import DATABASE, CommitState, NotOwner
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.resume_record import (
    YIELDING,
    ConnectionLost,
    Discarded,
    Resumed,
    ResumeEnded,
    ResumeRecord,
    ResumeSession,
    Yielded,
)
from statemachines.persistent_sessions.session_life import SESSION_LIFE
from statemachines.persistent_sessions.takeover_message import (
    BeginTakeover,
    EndTakeover,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
)
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer import WRITER
from statemachines.persistent_sessions.writer_flow_record import DONE, LinkLost, WriterDown, WriterFlowRecord, WriterUp
from statemachines.persistent_sessions.writer_record import IDLE, Hand, LiveGone, LiveKnown, Start, WriterRecord

WRITERS_MAX: Final = 100_000
"""Sessions that a node has a writer for; beyond it one that is idle goes, and begins a new epoch if it is needed."""


class Handed(NamedTuple):
    """A message is for this session, by this subscription; from `until_ns` on, by the clock of the database, it is over
    (0: it does not expire)."""

    session: str
    filter: str
    qos: int
    until_ns: int = 0


class Owner(NamedTuple):
    """A client that is connected here, and how long its parties wait."""

    client: str
    times: Times


class SessionHost(Host):
    """`life` of the node; `times`, `life_times`: how long its parties wait; `graces`: those of its collector (None: it
    has none), and `now_ns`, when it begins; `writers_max`: sessions that it has a writer for;
    `sessions_max`: beyond so many that the store keeps it opens none for a client without one (0: any number).

    The application is told `Accepted` and `SessionClosed` by the session life of an owner (see `owner_of`), and
    `Written` once a message, when its last row is stored.
    """

    def __init__(
        self, life: str, times: Times | None = None, life_times: LifeTimes | None = None, *,
        graces: Graces | None = None, now_ns: int = 0, observe: Observer | None = None, writers_max: int = WRITERS_MAX,
        sessions_max: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.life = life
        self.node = node_of(life)
        self.times = times or Times()
        self.life_times = life_times or LifeTimes()
        self.owners: dict[str, Owner] = {}
        self.writers: dict[str, str] = {}
        """Session -> the party that is its writer."""
        self._observe = observe
        self._writers_max = writers_max
        self._sessions_max = sessions_max
        self._made = 0
        self._unwritten: dict[str, set[tuple[str, str]]] = {}
        """Message -> (writer, filter) of its rows that are not stored yet."""
        self._claims = Claims()
        self._newest: dict[str, str] = {}
        """Client -> the newest owner of it that is here."""
        self._looks = f"{life}/owner of "
        """Before the session: who asks for its owner."""
        self._closed: list[tuple[str, str]] = []
        """Owners whose session lives have ended, and why."""
        self._handed_over: list[str] = []
        """Owners that had yielded, and have ended."""
        self._acknowledged: dict[str, None] = {}
        """Owners whose clients have acknowledged something since the last `commit_acknowledged`."""
        if graces is not None:
            self.add(Node(COLLECTOR, CollectorRecord(graces), name=f"{life}/collector", now_ns=now_ns, observe=observe))

    # -- clients --------------------------------------------------------------------------------------------------

    def new_owner(self, client: str, receive_maximum: int) -> str:
        """The id of the next owner, for a `client` that receives so many messages at a time."""
        owner = self._fresh()
        times = Times(**{**_fields(self.times), "receive_maximum": min(receive_maximum, self.times.receive_maximum)})
        self.owners[owner] = Owner(client, times)
        return owner

    def connect(
        self, owner: str, *, clean: bool, expiry_ms: int, now_ns: int, instance: str = "", attempt: int = 0
    ) -> list[Outgoing]:
        """Connect the client of a new owner."""
        client = self.owners[owner].client
        life = LifeRecord(owner, client, self.life_times, most=self._sessions_max)
        name = life_of_owner(owner)
        self.add(Node(SESSION_LIFE, life, name=name, now_ns=now_ns, observe=self._observe))
        out = self._overtake(client, now_ns)
        self._newest[client] = owner
        return out + self.feed(name, Connect(clean, expiry_ms, instance, attempt), now_ns)

    def _overtake(self, client: str, now_ns: int) -> list[Outgoing]:
        """An earlier connection of this client that still waits for its lock would be superseded as soon as it had it;
        thousands that wait would keep the database from whoever has it."""
        earlier = life_of_owner(self._newest.get(client, ""))
        node = self.nodes.get(earlier)
        if node is None or node.record.status is not LOCKING:
            return []
        return self.feed(earlier, NotOwner(), now_ns)

    def leave(self, owner: str, now_ns: int, expiry_ms: int = KEEP) -> list[Outgoing]:
        """The client says good-bye; its session outlives that by `expiry_ms`, if it may.  What it has acknowledged
        since the last commit is committed, and does not come again."""
        out = self._commit_of(owner)
        out += self.feed(owner, ConnectionLost(), now_ns)
        return out + self.feed(life_of_owner(owner), Disconnect(expiry_ms), now_ns)

    def lose(self, owner: str, now_ns: int) -> list[Outgoing]:
        """The client is gone without a word, or has to go.  What it has acknowledged does not come again either."""
        out = self._commit_of(owner) if owner in self._acknowledged else []
        out += self.feed(owner, ConnectionLost(), now_ns)
        return out + self.feed(life_of_owner(owner), ConnectionLost(), now_ns)

    def acknowledge(self, owner: str, messages: Iterable[Puback | Pubrec | Pubcomp], now_ns: int) -> list[Outgoing]:
        """The client has messages, or has done with them."""
        self._acknowledged[owner] = None
        return [one for message in messages for one in self.feed(owner, message, now_ns)]

    def commit_acknowledged(self, now_ns: int) -> list[Outgoing]:
        """What was acknowledged since this was called last: when the next commit comes nobody knows."""
        owners, self._acknowledged = self._acknowledged, {}
        return [one for owner in owners for one in self._commit_of(owner)]

    def _commit_of(self, owner: str) -> list[Outgoing]:
        """Commit the state as it is, beside the machine, which hears of no answer: it has asked before for all of it
        but what the client has acknowledged."""
        resume = self.resume_of(owner)
        if resume is None or resume.delivery is None or resume.status is YIELDING:
            return []
        request = CommitState(resume.session, resume.token, with_receipts(resume.delivery))
        return [(f"{owner}/acknowledged", Ask(DATABASE, request))]

    def resume_of(self, owner: str) -> ResumeRecord | None:
        """What the owner has in its hands; None: nothing yet, or nothing any more."""
        node = self.nodes.get(owner)
        return None if node is None or not isinstance(node.record, ResumeRecord) else node.record

    # -- messages -------------------------------------------------------------------------------------------------

    def publish(self, message: str, handed: Iterable[Handed], now_ns: int) -> list[Outgoing]:
        """Hand a message that is stored to the writer of each session that it is for; there must be one."""
        out: list[Outgoing] = []
        hands = [(self._writer(one.session, now_ns, out), one) for one in handed]
        self._unwritten[message] = {(party, one.filter) for party, one in hands}
        for party, one in hands:
            out += self.feed(party, Hand(message, one.filter, one.qos, one.until_ns), now_ns)
        return out

    def receive(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """A message of a node; raises `RemoteProtocolError` where it speaks for another."""
        if isinstance(message, MarkerWanted):
            _check(sender, message.to == sender, message)
            if life_of(sender) == self.life or self._is_known(message):
                return self._mark(message, now_ns)
            return self._look(message.session, Claim(to, message))
        if isinstance(message, Live | LiveMarker):
            _check(sender, message.writer == node_of(sender), message)
            resume = self.resume_of(to)
            if resume is None or resume.session != message.session:
                return []
            return self.feed(to, message, now_ns)
        if isinstance(message, BeginTakeover | EndTakeover):
            _check(sender, message.to == sender, message)
            resume = self.resume_of(to)
            if resume is None or resume.client != message.client:
                return [(self._fresh(), Send(sender, TakeoverRefused(message.client, message.token)))]
            if isinstance(message, EndTakeover) or life_of(sender) == self.life or message.token == resume.claim:
                return self.feed(to, message, now_ns)
            return self._look(resume.session, Claim(to, message))
        if isinstance(message, TakeoverBegun | TakeoverEnded | TakeoverRefused):
            resume = self.resume_of(to)
            if resume is None:
                return []
            _check(sender, node_of(sender) == node_of(resume.old), message)
            return self.feed(to, message, now_ns)
        raise RemoteProtocolError("session_host", "-", name_of(type(message)), "", "is not between nodes")

    def route_answer(self, party: str, answer: Answer, now_ns: int) -> list[Outgoing]:
        """An answer of the database."""
        if not isinstance(answer, OwnerFound):
            return self.feed(party, answer, now_ns)
        if party.startswith(self._looks):
            return self._judge(party.removeprefix(self._looks), answer, now_ns)
        return self.feed(party, LiveKnown(answer.owner, answer.token), now_ns) if answer.owner else []

    # -- what others claim ----------------------------------------------------------------------------------------

    def _is_known(self, message: MarkerWanted) -> bool:
        """The writer knows the session to be live at who asks."""
        party = self.writers.get(message.session)
        record = None if party is None else self.nodes[party].record
        return record is not None and (record.to, record.token) == (message.to, message.token)

    def _look(self, session: str, claim: Claim) -> list[Outgoing]:
        """Hear the claim when the database says the same."""
        asks = self._claims.hold(session, claim)
        return [(self._looks + session, Ask(DATABASE, FindOwner(session)))] if asks else []

    def _judge(self, session: str, found: OwnerFound, now_ns: int) -> list[Outgoing]:
        out: list[Outgoing] = []
        for to, message in self._claims.judge(session, found):
            if isinstance(message, MarkerWanted):
                out += self._mark(message, now_ns)
            elif self.resume_of(to) is not None:
                out += self.feed(to, message, now_ns)
        return out

    def _mark(self, message: MarkerWanted, now_ns: int) -> list[Outgoing]:
        """Who asks has the session live, and wants a marker."""
        out: list[Outgoing] = []
        party = self._writer(message.session, now_ns, out)
        out += self.feed(party, LiveKnown(message.to, message.token), now_ns)
        return out + self.feed(party, message, now_ns)

    # -- other nodes ----------------------------------------------------------------------------------------------

    def lose_link(self, writer: str, now_ns: int) -> list[Outgoing]:
        """What was on its way from this node is lost."""
        return self._feed_followers(writer, LinkLost(writer), now_ns)

    def lose_writer(self, writer: str, now_ns: int) -> list[Outgoing]:
        """The node is dead: its rows are read from the database."""
        return self._feed_followers(writer, WriterDown(writer), now_ns)

    def meet_writer(self, owner: str, writer: str, now_ns: int) -> list[Outgoing]:
        """The node has begun to write for the session of the owner, unless that knows it already."""
        resume = self.resume_of(owner)
        known = resume is None or writer in resume.flows
        return [] if known else self.feed(owner, WriterUp(writer), now_ns)

    def supersede(self, owner: str, now_ns: int) -> list[Outgoing]:
        """Somebody else has its session."""
        return self.feed(owner, NotOwner(), now_ns)

    def _feed_followers(self, writer: str, event: Event, now_ns: int) -> list[Outgoing]:
        out: list[Outgoing] = []
        for owner in sorted(self.owners):
            resume = self.resume_of(owner)
            flow = None if resume is None else resume.flows.get(writer)
            if flow is not None and not is_read_out(flow):
                out += self.feed(owner, event, now_ns)
        return out

    # -- the host -------------------------------------------------------------------------------------------------

    def feed(self, party: str, event: Event, now_ns: int) -> list[Outgoing]:
        return self._end_closed(super().feed(party, event, now_ns), now_ns)

    def fire(self, now_ns: int) -> list[Outgoing]:
        return self._end_closed(super().fire(now_ns), now_ns)

    def fire_first(self, now_ns: int) -> list[Outgoing]:
        return self._end_closed(super().fire_first(now_ns), now_ns)

    def route_tell(self, party: str, event: Event, now_ns: int) -> Inward | None:
        match event:
            case SessionOpened(_, token, present, live):
                owner = owner_of(party)
                self._begin_resume(owner, token, live if present and live != owner else "", now_ns)
                return ((owner, ResumeSession()),)
            case Resumed():
                return ((life_of_owner(party), Attach()),)
            case Yielded():
                return ((life_of_owner(party), NotOwner()),) if self._is_open(party) else ()
            case ResumeEnded(_, why):
                if not self._is_open(party):
                    self._handed_over.append(party)
                    return ()
                end = WHY_LIFE_ENDS.get(why)
                return () if end is None else ((life_of_owner(party), end),)
            case SessionClosed(_, why):
                self._closed.append((owner_of(party), why))
            case Written(message, topic_filter):
                return None if self._is_last(party, message, topic_filter) else ()
        return None

    def _is_open(self, owner: str) -> bool:
        """Whether its session life has not ended."""
        node = self.nodes.get(life_of_owner(owner))
        return node is not None and node.record.status is not CLOSED

    def _begin_resume(self, owner: str, token: int, live: str, now_ns: int) -> None:
        """`live`: the owner that has the session now ("": none)."""
        client, times = self.owners[owner]
        record = ResumeRecord(owner, client, token, times, live)
        self.add(Node(RESUME, record, name=owner, now_ns=now_ns, observe=self._observe))

    def _is_last(self, party: str, message: str, topic_filter: str) -> bool:
        rows = self._unwritten[message]
        rows.discard((party, topic_filter))
        if rows:
            return False
        del self._unwritten[message]
        return True

    def _end_closed(self, out: list[Outgoing], now_ns: int) -> list[Outgoing]:
        """Where a session life has ended its resume ends, or yields to the owner that comes after."""
        while self._closed or self._handed_over:
            if self._closed:
                owner, why = self._closed.pop()
                resume = self.resume_of(owner)
                if resume is not None and resume.status is not YIELDING:
                    end = NotOwner() if why == "superseded" else ConnectionLost()
                    out += super().feed(owner, end, now_ns)
                    resume = self.resume_of(owner)
                self.remove(life_of_owner(owner))
                found = self.owners.pop(owner, None)
                if found is not None and self._newest.get(found.client) == owner:
                    del self._newest[found.client]
                if resume is None or resume.status is not YIELDING:
                    self._handed_over.append(owner)
            else:
                out += self._forget(self._handed_over.pop(), now_ns)
        return out

    def _forget(self, owner: str, now_ns: int) -> list[Outgoing]:
        """Nothing is left of the owner, and the writer here sends nothing live to it any more."""
        resume = self.resume_of(owner)
        self.remove(owner)
        if resume is None or resume.session not in self.writers:
            return []
        return super().feed(self.writers[resume.session], LiveGone(resume.token), now_ns)

    def _writer(self, session: str, now_ns: int, out: list[Outgoing]) -> str:
        """The writer of the session; one that begins asks for its epoch, and then where the session is live."""
        party = self.writers.get(session)
        if party is not None:
            return party
        if len(self.writers) >= self._writers_max:
            self._forget_idle()
        party = self.writers[session] = self._fresh()
        record = WriterRecord(session, self.node)
        self.add(Node(WRITER, record, name=party, now_ns=now_ns, observe=self._observe))
        out += self.feed(party, Start(), now_ns)
        out.append((party, Ask(DATABASE, FindOwner(session))))
        return party

    def _forget_idle(self) -> None:
        """The first that is idle; if it is needed again it has the next epoch."""
        session = next((one for one, party in self.writers.items() if self.nodes[party].record.status is IDLE), None)
        if session is not None:
            self.remove(self.writers.pop(session))

    def _fresh(self) -> str:
        self._made += 1
        return fresh(self.life, self._made)


WHY_LIFE_ENDS: Final[dict[str, Event]] = {
    "superseded": NotOwner(),
    "absent": Discarded(),
    "timeout": ConnectionLost(),
}
"""Why a resume has ended -> what its session life makes of it; where the host has ended it, nothing."""


def life_of_owner(owner: str) -> str:
    """The party that is the session life of an owner."""
    return f"{owner}/life"


def owner_of(party: str) -> str:
    """The owner whose session life or resume this is."""
    return party.removesuffix("/life")


def is_read_out(flow: WriterFlowRecord) -> bool:
    """The writer was fenced because it was gone, everything of it is read, and nothing was heard of it since."""
    return flow.status is DONE and flow.gone


def _fields(times: Times) -> dict[str, int]:
    return {name: getattr(times, name) for name in Times.__struct_fields__}


def _check(sender: str, holds: bool, message: Message) -> None:
    if not holds:
        why = f"{sender} speaks for another"
        raise RemoteProtocolError("session_host", "-", name_of(type(message)), "", why)
