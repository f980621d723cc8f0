"""SessionConsumer: a process with one subscription as it is shipped: Subscription, Borrower and Session.

What a `Subscription` does with its machines is the shipped class's own work: who is told what, which borrower follows
which, last words.  Of the host only the mechanics are ours: events are fed in the order in which they were told, and a
timer that is armed for this moment fires before its machine takes anything else.

The application takes one message at a time, whenever something is there, and acknowledges what it was given one by one
in any order.  What it is told goes to the `Account`.  A fetch is answered at once, or later (`Answering`).

Numbers of fetches begin anew when none is open, and so do those of pings where no copies can be about; queues are
numbered from their head: nothing that the machines do later can tell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import (
    Answer,
    Ask,
    Event,
    Fsm,
    Node,
    Outgoing,
    Send,
    SetTimer,
    Stop,
    Tell,
    fresh,
    in_order,
    incarnation,
)
from statemachines.kernel.effect import Effect
from statemachines.shared_subscriptions.agent import Shared
from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    CONNECTED,
    CONNECTING,
    OnDisconnect,
    OnUnsubscribe,
)
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.message import Report, ToConsumer
from statemachines.shared_subscriptions.session import SESSION, Ack, PollTimer, Take
from statemachines.shared_subscriptions.session_record import WAITING, Acknowledged, Deliver, SessionRecord
from statemachines.shared_subscriptions.stream_store import SERVICE as STREAM_STORE
from statemachines.shared_subscriptions.stream_store import Fetch
from statemachines.shared_subscriptions.subscription import Subscription
from statemachines_spec.explorer.actor import Crash, Envelope, Reaction, Wake, Watch
from statemachines_spec.explorer.naming import rebase_queue
from statemachines_spec.explorer.party import Party, begin, firings, step_party
from statemachines_spec.shared_subscriptions.consumer import (
    CRASHED,
    ENDED,
    FILTER,
    GOING_ON,
    GROUP,
    HEARING,
    PAUSED,
    RUNNING,
    STANDING,
    Consumer,
    ConsumerLocal,
)

ACCOUNT = "account"
"""The component that is told what applications get and acknowledge."""


class Answering(Event, frozen=True, gc=False):
    """The stream store gets round to the fetch that is open."""


class Unheard(Event, frozen=True, gc=False):
    """The application acknowledges, and what is sent because of it is lost."""

    ack: Ack


class SessionLocal(ConsumerLocal, frozen=True, gc=False):
    """`party` is the borrower of the moment; `words`: what borrowers that are gone said last; `open`: the fetch that
    the store has not answered yet."""

    session: Party | None = None
    words: tuple[tuple[str, tuple[Report, ...]], ...] = ()
    open: Fetch | None = None


class SessionConsumer(Consumer):
    """`lives`, `pings` and `offsets` as for a `Consumer`; `pings` 0: any number, for networks that double nothing (a
    borrower beyond `lives` is then cut: nothing is claimed of what comes after).  `group`: a group store that knows the
    group; `buffer`: how far the session fetches ahead; `at_delivery`: messages are acknowledged when they are handed
    over; `fetches_wait`: a fetch is answered later; `losses`: what an acknowledgement sends may be lost."""

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        *,
        fsm: Fsm[Any] = BORROWER,
        registry: str = "leader-1",
        lives: int = 1,
        pings: int = 2,
        offsets: int = 1,
        faults: tuple[type[Event], ...] = (),
        silent: tuple[str, ...] = (),
        group: Any = None,
        topic_filter: str = FILTER,
        buffer: int = 256,
        at_delivery: bool = False,
        fetches_wait: bool = False,
        losses: bool = False,
    ) -> None:
        super().__init__(
            name,
            configuration,
            fsm=fsm,
            registry=registry,
            lives=lives,
            pings=pings,
            offsets=offsets,
            faults=faults,
            silent=silent,
        )
        self.group = group
        self.filter = topic_filter
        self.buffer = buffer
        self.at_delivery = at_delivery
        self.fetches_wait = fetches_wait
        self.losses = losses
        self.host = incarnation(name, 1)

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> SessionLocal:
        """Subscribed to a group that is declared, the first leader_wanted lost: the timer asks again."""
        life = Life(self, None)
        for party, effect in life.start(0):
            if isinstance(effect, Ask):
                _, answers = GroupStore().apply(self.group, effect.request, 0)
                for answer in answers:
                    life.answer(party, answer, 0)
        return life.local(RUNNING)

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return (*super().machines, SESSION)

    def inputs(self, local: ConsumerLocal) -> tuple[Any, ...]:
        assert isinstance(local, SessionLocal)
        if local.party is None or local.session is None:
            return ()
        if local.mode in STANDING:
            return tuple(self._passing(local))
        hears = local.mode is HEARING
        return (
            *((Wake(),) if hears else firings(self.fsm, local.party, self.silent)),
            *(() if hears else firings(SESSION, local.session, self.silent)),
            *((Answering(),) if local.open is not None else ()),
            *self._taking(local.session.record),
            *self._faults(local.party.record),
        )

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        assert isinstance(local, SessionLocal)
        event = envelope.event
        if isinstance(event, Crash):
            return Reaction(SessionLocal(CRASHED, local.number, 0, None))
        if local.mode in (*GOING_ON, ENDED):
            if isinstance(event, Answering):
                assert local.session is not None
                asked = Envelope(local.session.record.id, STREAM_STORE, local.open)
                return Reaction(replace(local, open=None), (), (asked,))
            if envelope.sender:
                return self._over(local, self._receive(local, envelope, watch), watch)
            if isinstance(event, Unheard):
                return replace(self._step(local, [event.ack], watch), sends=())
        return super().react(local, envelope, watch)

    def canonical(self, local: SessionLocal) -> SessionLocal:
        """Queues are numbered from 0; so are fetches where none is open, and pings where their number has no bound."""
        party, session = local.party, local.session
        if party is None or session is None:
            return local
        if not self.pings and not party.record.outstanding:
            party = replace(party, record=replace(party.record, ping_n=0, ping_at_ns=0))
        return replace(local, party=party, session=replace(session, record=renumber_session(session.record)))

    def within(self, local: ConsumerLocal) -> bool:
        if not self.pings:
            return local.number <= self.lives
        return super().within(local)

    def describe(self, local: ConsumerLocal) -> str:
        assert isinstance(local, SessionLocal)
        words = [super().describe(local)]
        readings = () if local.session is None else in_order(local.session.record.readings)
        for _, reading in readings:
            text = f"reading {reading.stream} under grant {reading.grant}: {reading.progress} acknowledged"
            if reading.acked:
                text += f" (and {', '.join(f'{first} to {last}' for first, last in in_order(reading.acked))})"
            text += f", {reading.delivered} delivered, {reading.fetched} fetched"
            words.append(text + (", ended" if reading.ended else "") + (", finishing" if reading.finishing else ""))
        return "; ".join(words)

    # -- reactions ----------------------------------------------------------------------------------------------

    def _receive(self, local: SessionLocal, envelope: Envelope, watch: Watch | None) -> Reaction:
        """What a leader says to one of the borrowers, living or gone; what a store answers."""
        life = Life(self, local, watch)
        event = envelope.event
        if isinstance(event, Answer):
            out = life.answer(envelope.to, event, 0)
        else:
            out = life.receive(envelope.sender, event, 0)
        return self._done(life, local, out)

    def _step(self, local: ConsumerLocal, events: list[Event], watch: Watch | None) -> Reaction:
        """Events of the borrower of the moment, of its session, or of the client."""
        assert isinstance(local, SessionLocal)
        life = Life(self, local, watch)
        name = "" if local.party is None else local.party.record.id
        out: list[Outgoing] = []
        for event in events:
            match event:
                case OnUnsubscribe():
                    out += life.unsubscribe(0)
                case OnDisconnect():
                    out += life.disconnect(0)
                case Take() | Ack() | PollTimer():
                    out += life.feed(life.session, event, 0)
                case _:
                    out += life.feed(name, event, 0)
        return self._done(life, local, out)

    def _done(self, life: Life, before: SessionLocal, out: list[Outgoing]) -> Reaction:
        sends: list[Envelope] = []
        calls: list[Envelope] = []
        asked = before.open
        for party, effect in out:
            match effect:
                case Send(to, message):
                    sends.append(Envelope(party, to, message))
                case Ask(_, Fetch() as fetch) if self.fetches_wait:
                    asked = fetch
                case Ask(service, request):
                    calls.append(Envelope(party, service, request))
                case Tell(Deliver() | Acknowledged() as event):
                    calls.append(Envelope(party, ACCOUNT, event))
        local = replace(life.local(before.mode), promised=before.promised)
        if local.mode is not ENDED:
            local = replace(local, open=asked)
        if self.pings and local.number > self.lives:
            sends = [one for one in sends if one.sender != fresh(self.host, local.number)]
            local = SessionLocal(ENDED, self.lives, 0, None, words=local.words)
        return Reaction(self._settled(local), tuple(sends), tuple(calls))

    def _overdue(self, local: ConsumerLocal) -> Iterator[Event]:
        """The poll, then the ping timeout."""
        assert isinstance(local, SessionLocal)
        if local.mode is not PAUSED and local.session is not None and local.session.timers:
            yield PollTimer()
        yield from super()._overdue(local)

    # -- what may happen ----------------------------------------------------------------------------------------

    def _taking(self, record: SessionRecord) -> Iterator[Event]:
        if record.to_take:
            yield Take(1)
        for _, reading in in_order(record.readings):
            known = [range(first, last + 1) for first, last in in_order(reading.acked)]
            for offset in range(reading.progress, reading.delivered):
                if not any(offset in one for one in known):
                    ack = Ack(reading.owner, reading.stream, reading.grant, offset, offset)
                    yield ack
                    if self.losses:
                        yield Unheard(ack)

    def _faults(self, record: Any) -> Iterator[Event]:
        for fault in self.faults:
            if fault in (OnUnsubscribe, OnDisconnect) and record.status not in (CONNECTING, CONNECTED):
                continue
            yield fault()


class Life(Subscription):
    """The shipped Subscription as one local state says it is, for one reaction."""

    def __init__(self, actor: SessionConsumer, local: SessionLocal | None, watch: Watch | None = None) -> None:
        self.actor = actor
        self.timers: dict[str, Party] = {}
        self.watch = watch
        super().__init__(
            actor.host,
            GROUP,
            actor.filter,
            actor.registry,
            actor.configuration,
            at_delivery=actor.at_delivery,
            buffer=actor.buffer,
        )
        if local is not None:
            self._restore(local)

    def _restore(self, local: SessionLocal) -> None:
        self.id = fresh(self.host, 1)
        self._number = local.number
        self._last_words = dict(local.words)
        if local.session is not None:
            self._put(SESSION, local.session)
        if local.party is not None:
            name = local.party.record.id
            self.shared[self.id] = self.wanted
            self.parties[name] = self.id
            self._party_of[self.id] = name
            self._put(BORROWER, local.party)

    def _hear(self, sender: str, message: ToConsumer, now_ns: int) -> list[Outgoing]:
        """Nobody lies here: whom the claim names is asked where somebody does (`doubting_consumer`)."""
        return self.feed(message.borrower, message, now_ns)

    def _highest_epoch(self, wanted: Shared, seen: int, now_ns: int) -> int:
        return seen

    def _put(self, fsm: Fsm[Any], party: Party) -> None:
        name = party.record.id
        self.nodes[name] = Node(fsm, party.record, name=name, now_ns=0)
        self.timers[name] = party

    def local(self, mode: Any) -> SessionLocal:
        """What there is now, as a local state."""
        words = tuple(self._last_words.items())
        borrower = self.borrower
        if not borrower:
            return SessionLocal(ENDED, self._number, 0, None, words=words)
        party, session = self.timers[borrower], self.timers[self.session]
        return SessionLocal(mode, self._number, 0, party, session=session, words=words)

    # -- the mechanics of a host --------------------------------------------------------------------------------

    def add(self, node: Node[Any]) -> None:
        super().add(node)
        self.timers[node.name] = begin(node.fsm, node.record)

    def fire(self, now_ns: int) -> list[Outgoing]:
        """Nothing is due: what fires is an event of its own."""
        return []

    def fire_first(self, now_ns: int) -> list[Outgoing]:
        return []

    def feed(self, party: str, event: Event, now_ns: int) -> list[Outgoing]:
        """The event, what the machines tell each other because of it, and the poll that is due at once."""
        out: list[Outgoing] = []
        queue: deque[tuple[str, Event]] = deque([(party, event)])
        due = False
        while queue or due:
            name, one = queue.popleft() if queue else (self.session, PollTimer())
            if due and name == self.session and not isinstance(one, PollTimer):
                queue.appendleft((name, one))
                one = PollTimer()
            node = self.nodes.get(name)
            if node is None:
                continue
            due = due and name != self.session
            for effect in self._stepped(node, one):
                match effect:
                    case SetTimer("poll", deadline):
                        due = deadline <= now_ns
                    case Stop():
                        self.remove(name)
                    case Tell(told):
                        inward = self.route_tell(name, told, now_ns)
                        if inward is None:
                            out.append((name, effect))
                        else:
                            queue.extend(inward)
                    case Send() | Ask():
                        out.append((name, effect))
        return out

    def _stepped(self, node: Node[Any], event: Event) -> tuple[Effect, ...]:
        fsm = self.actor.fsm if node.fsm is BORROWER else node.fsm
        party, effects = step_party(fsm, self.timers[node.name], event, node.name, self.watch)
        self.timers[node.name] = party
        node.record = party.record
        return effects


def renumber_session(record: SessionRecord) -> SessionRecord:
    """The same session with queues from 0 and, where no fetch is open, fetches from 0."""
    queues = {name: rebase_queue(getattr(record, name)) for name in ("to_fetch", "idle", "to_take")}
    record = replace(record, **queues)
    return replace(record, fetch_n=0) if record.status is WAITING else record
