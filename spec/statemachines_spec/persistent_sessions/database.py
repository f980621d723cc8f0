"""Database: rows, markers, epochs and the session state; what is stored becomes visible to readers only later.

Writes, fences and the state are one order for everybody; reads of pending rows come from a replica, on which the
entries of a writer appear in their order (unless the system says otherwise) and no more than `lag` of them are
missing.  What is slow is carried out some time after it was asked, and answered some time after that; what one party
asks is done in turn.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Event, Request, name_of
from statemachines.persistent_sessions.request import (
    DATABASE,
    BeginEpoch,
    PutMarker,
    PutRows,
    RowUnclear,
    SubscribedLive,
    SubscribeLive,
    UnsubscribeLive,
)
from statemachines.persistent_sessions.session_tables import (
    SessionService,
    SessionTables,
    find_shelf,
    put_shelf,
)
from statemachines.persistent_sessions.writer_record import LiveGone, LiveKnown
from statemachines_spec.explorer.actor import Crash, Envelope, Observer, Reaction, Restart, Watch
from statemachines_spec.explorer.property import View


class Appear(Event, frozen=True, gc=False):
    """An entry of this writer becomes visible on the replica."""

    writer: str
    place: int


class CarryOut(Event, frozen=True, gc=False):
    """What this party has asked is done."""

    party: str


class Reply(Event, frozen=True, gc=False):
    """This party gets its answer."""

    party: str


class Blur(Event, frozen=True, gc=False):
    """What this party has asked is done, and it does not learn so."""

    party: str


class Fail(Event, frozen=True, gc=False):
    """What this party has asked is not done, and it does not learn so."""

    party: str


class Spread(Event, frozen=True, gc=False):
    """This writer learns where the session is live."""

    writer: str


class TimePasses(Event, frozen=True, gc=False):
    """The clock of the database goes on."""


class Lives(Event, frozen=True, gc=False):
    """This writer has begun, or this process has died: what it has asked, and is not done, is lost."""

    who: str
    up: bool


class OpenRequest(msgspec.Struct, frozen=True, gc=False):
    """`party` waits: for its request to be carried out, or for its answer; `kind` of either, since two kinds may have
    the same fields.  `number` that its transaction has taken, which is open until it is carried out (0: none)."""

    party: str
    kind: str
    request: Request | None = None
    answer: Answer | None = None
    number: int = 0


class DatabaseLocal(SessionTables, frozen=True, gc=False):
    """What is `owed` to parties, besides the tables."""

    owed: tuple[OpenRequest, ...] = ()

    @property
    def open_numbers(self) -> tuple[int, ...]:
        return tuple(one.number for one in self.owed if one.number)


class DatabaseService(Observer):
    """`lag`: so many entries of a writer may be invisible at most; `ordered`: they appear in their order; `slow`
    requests; `unclear`: answers to rows may get lost; `hides`: rows that are marked are not read any more; `spreads`:
    a subscription is known everywhere when it is answered; its clock goes on so often (`ages`); `stamps`: rows have the
    number of their commit as their time; `opens`: a transaction that stores rows takes its number when it begins."""

    def __init__(
        self,
        writers: tuple[str, ...],
        owners: tuple[str, ...],
        *,
        lag: int = 0,
        ordered: bool = True,
        slow: tuple[type[Request], ...] = (),
        unclear: bool = False,
        hides: bool = True,
        spreads: bool = True,
        begun: int = 0,
        absent: bool = False,
        ages: int = 0,
        stamps: bool = False,
        opens: bool = False,
    ) -> None:
        super().__init__(DATABASE)
        self.service = SessionService(writers, lag=lag, hides=hides, stamps=stamps, begun=begun, is_absent=absent)
        self.opens = opens
        self.writers = writers
        self.owners = owners
        self.ordered = ordered
        self.slow = slow
        self.unclear = unclear
        self.spreads = spreads
        self.ages = ages

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> DatabaseLocal:
        return DatabaseLocal(self.service.initial().shelves)

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor in self.writers and isinstance(event, Restart):
            return Lives(actor, True)
        return Lives(actor, False) if isinstance(event, Crash) else None

    def inputs(self, local: DatabaseLocal) -> tuple[Any, ...]:
        found: list[Any] = [TimePasses()] if local.time_ns < self.ages else []
        for shelf in local.shelves:
            hidden = [place for place, one in enumerate(shelf.entries) if not one.visible]
            found += [Appear(shelf.writer, place) for place in (hidden[:1] if self.ordered else hidden)]
            found += [Spread(shelf.writer)] if shelf.unspread else []
        for party in dict.fromkeys(one.party for one in local.owed):
            first = next(one for one in local.owed if one.party == party)
            if first.answer is not None:
                found.append(Reply(party))
                continue
            found.append(CarryOut(party))
            if self.unclear and isinstance(first.request, PutRows | PutMarker):
                found += [Blur(party), Fail(party)]
        return tuple(found)

    def react(self, local: DatabaseLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case Appear(writer, place):
                return Reaction(_show_entry(local, writer, place))
            case TimePasses():
                return Reaction(replace(local, time_ns=local.time_ns + 1))
            case Lives(who, up):
                local = local if up else replace(local, owed=_without(local.owed, who))
                return Reaction(
                    put_shelf(local, replace(find_shelf(local, who), up=up)) if who in self.writers else local
                )
            case Spread(writer):
                shelf = replace(find_shelf(local, writer), unspread=False)
                known = (self._make_known(local, writer),) if local.owner else ()
                return Reaction(put_shelf(local, shelf), (), known)
            case CarryOut(party) | Blur(party) | Fail(party) | Reply(party):
                return self._go_on(local, party, event)
        if isinstance(event, self.slow):
            number = local.commits + 1 if self.opens and isinstance(event, PutRows) else 0
            asked = OpenRequest(envelope.sender, name_of(type(event)), request=event, number=number)
            local = replace(local, commits=max(local.commits, number))
            return Reaction(replace(local, owed=tuple(sorted((*local.owed, asked), key=lambda one: one.party))))
        local, answers, calls = self.apply(local, event)
        back = tuple(Envelope(self.name, envelope.sender, answer) for answer in answers)
        return Reaction(local, (), (*calls, *back))

    def describe(self, local: DatabaseLocal) -> str:
        words = [f"token {local.token}"]
        for shelf in local.shelves:
            entries = " ".join(
                ("" if one.visible else "(hidden)")
                + (f"{one.epoch}.{one.queued.number}" if one.queued else f"marker{one.token}.{one.n}")
                for one in shelf.entries
            )
            words.append(f"{shelf.writer} epoch {shelf.epoch}: {entries or 'nothing'}")
        words += [f"{one.party} waits for {one.kind}" for one in local.owed]
        return "; ".join(words)

    def bounds(self) -> dict[str, str]:
        order = "in their order" if self.ordered else "in any order"
        lines = {"replica": f"at most {self.service.lag} entries of a writer are not visible yet; they appear {order}"}
        if self.ages:
            lines["clock"] = f"goes on {self.ages} times, at any moment"
        if self.slow:
            lines["carried out and answered later"] = ", ".join(name_of(kind) for kind in self.slow)
        return lines

    # -- reading it ---------------------------------------------------------------------------------------------

    def rests(self) -> View:
        """Nobody waits for it."""
        return View(self.name, 2, lambda local: int(not local.owed and not any(one.unspread for one in local.shelves)))

    # -- what is slow -------------------------------------------------------------------------------------------

    def _go_on(self, local: DatabaseLocal, party: str, event: Event) -> Reaction:
        one = next(owed for owed in local.owed if owed.party == party)
        rest = tuple(owed for owed in local.owed if owed is not one)
        if isinstance(event, Reply):
            assert one.answer is not None
            return Reaction(replace(local, owed=rest), (), (Envelope(self.name, party, one.answer),))
        assert one.request is not None
        local = replace(local, owed=rest)
        answers: tuple[Answer, ...] = (RowUnclear(),)
        calls: tuple[Envelope, ...] = ()
        if not isinstance(event, Fail):
            if one.number:
                assert isinstance(one.request, PutRows)
                local, done = self.service.put_rows(local, one.request, one.number)
            else:
                local, done, calls = self.apply(local, one.request)
            answers = answers if isinstance(event, Blur) else done
        owed = tuple(OpenRequest(party, name_of(type(answer)), answer=answer) for answer in answers)
        local = replace(local, owed=tuple(sorted((*owed, *rest), key=lambda one: one.party)))
        return Reaction(local, (), calls)

    # -- what it does -------------------------------------------------------------------------------------------

    def apply(
        self, local: DatabaseLocal, request: Request
    ) -> tuple[DatabaseLocal, tuple[Answer, ...], tuple[Envelope, ...]]:
        """The next state, the answers, and what others learn at once."""
        after, answers = self.service.apply(local, request)
        match request:
            case BeginEpoch(_, writer) if after.owner and self.spreads:
                return after, answers, (self._make_known(after, writer),)
            case BeginEpoch(_, writer):
                return put_shelf(after, replace(find_shelf(after, writer), unspread=bool(after.owner))), answers, ()
            case SubscribeLive() if isinstance(answers[0], SubscribedLive) and self.spreads:
                return after, answers, tuple(self._make_known(after, writer) for writer in self.writers)
            case SubscribeLive() if isinstance(answers[0], SubscribedLive):
                shelves = tuple(replace(shelf, unspread=True) for shelf in after.shelves)
                return replace(after, shelves=shelves), answers, ()
            case UnsubscribeLive(token=token) if token >= local.token:
                return after, answers, tuple(Envelope(self.name, one, LiveGone(token)) for one in self.writers)
        return after, answers, ()

    def _make_known(self, local: DatabaseLocal, writer: str) -> Envelope:
        return Envelope(self.name, writer, LiveKnown(local.owner, local.token))


def _without(owed: tuple[OpenRequest, ...], who: str) -> tuple[OpenRequest, ...]:
    """What a process that has died waited for."""
    return tuple(one for one in owed if one.party.partition("~")[0] != who)


def _show_entry(local: DatabaseLocal, writer: str, place: int) -> Any:
    shelf = find_shelf(local, writer)
    entries = tuple(replace(one, visible=True) if at == place else one for at, one in enumerate(shelf.entries))
    return put_shelf(local, replace(shelf, entries=entries))
