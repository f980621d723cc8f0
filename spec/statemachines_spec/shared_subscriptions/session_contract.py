"""What a session owes its application, its owners and the stream store, whatever it is told: SS-100 to SS-112, SS-290,
SS-291."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Map, Tell, in_order
from statemachines.shared_subscriptions.borrower import LeaseBegan, LeaseEnded
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.session import (
    SESSION,
    Ack,
    Acknowledged,
    Admit,
    Deliver,
    Dismiss,
    Ended,
    PollTimer,
    Progressed,
    ReadsFailed,
    ReadsSucceed,
    Ready,
    SessionRecord,
    Take,
    UnreadableTimer,
)
from statemachines.shared_subscriptions.stream import Finish, Install, Uninstall
from statemachines.shared_subscriptions.stream_store import SERVICE, Fetch, Fetched, FetchFailed, MessageBatch, Slice
from statemachines_spec.contract import COUNTERPART, Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.actor import Timing
from statemachines_spec.explorer.property import Eventually, View
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.shared_subscriptions.session_consumer import renumber_session
from statemachines_spec.shared_subscriptions.succession import TICK_NS

Said = tuple[Any, ...]
QUEUED: Final = 2
"""Turns that wait, those of readings that are gone included: without a bound they are tidied away late."""
Place = str
"""`OWNER STREAM`: what is read of a stream for an owner."""


class GrantFacts(msgspec.Struct, frozen=True, gc=False):
    """What is read for an owner: its grant; up to where it is `acknowledged` without a hole, `delivered`, `fetched`;
    `beyond`: acknowledged after a hole; to be finished, and whether the stream has ended there."""

    grant: int
    acknowledged: int
    delivered: int
    fetched: int
    beyond: tuple[int, ...] = ()
    finishing: bool = False
    ended: bool = False


class SessionFacts(msgspec.Struct, frozen=True, gc=False):
    """`leases`: owner -> whether its lease holds; `given` by place; of the last fetch its number `n`, the `places` and
    slices that were `asked`, and whether it is `open`; `ready`: the driver was told that something can be taken, and
    has found something ever since; `failing`: what the first read asked for that failed since one succeeded; `trial`:
    the same, from when the host was told so; `rested`: ticks since an answer that brought nothing (-1: none
    has, or time does not count)."""

    leases: Map[str, bool] = Map()
    given: Map[Place, GrantFacts] = Map()
    n: int = 0
    asked: tuple[Slice, ...] = ()
    places: tuple[Place, ...] = ()
    open: bool = False
    ready: bool = False
    failing: tuple[Slice, ...] = ()
    trial: tuple[Slice, ...] = ()
    rested: int = -1


class SessionCast(msgspec.Struct, frozen=True):
    """`owners`, the `streams` that are read for each, and under which `grants` (so that a slice says whose it is); the
    `messages` that each has, and whether it `ends` then; `at_delivery`: they are acknowledged when handed over;
    `buffer` of the session, and the `fetches` it makes; which owners `come` and go, and lose their leases; whether
    fetches `fail`, and streams are to `finish`; `idle`: rules that none of this meets (or not as the last thing in a
    transition); `sooner`: by the clock, something may come that is fetched sooner than after the interval; of
    the `kept` streams none is finished."""

    owners: tuple[str, ...] = ("x",)
    streams: tuple[str, ...] = ("a",)
    grants: tuple[tuple[int, ...], ...] = ((1,),)
    messages: int = 2
    ends: bool = False
    at_delivery: bool = False
    buffer: int = 2
    fetches: int = 2
    come: tuple[str, ...] = ("x",)
    fail: bool = True
    finish: bool = True
    idle: tuple[str, ...] = ()
    sooner: bool = False
    kept: tuple[str, ...] = ()


class SessionCounterpart(Counterpart):
    """an application, owners, and a stream store, each of whom says anything at any time"""

    owes, ends = "S19", "S1 ends"

    def __init__(self, cast: SessionCast) -> None:
        super().__init__(rules_of(cast), cast.idle)
        self.cast = cast

    def begins(self) -> SessionFacts:
        return SessionFacts()

    def says(self, known: SessionFacts) -> Iterator[Any]:
        for owner in self.cast.owners:
            yield from self._of_owner(known, owner)
            for stream in self.cast.streams:
                for grant in self._grants(owner):
                    yield Install(owner, stream, grant, 0)
                    if self.cast.finish and stream not in self.cast.kept:
                        yield from (Finish(owner, stream, grant), Uninstall(owner, stream, grant))
        yield Take(1)
        for place, given in in_order(known.given):
            yield from self._acknowledges(place, given)
        yield from self._answers(known)

    def _of_owner(self, known: SessionFacts, owner: str) -> Iterator[Any]:
        if owner in self.cast.come or owner not in known.leases:
            yield Admit(owner, False, self.cast.at_delivery)
        if owner in self.cast.come or not known.leases.get(owner, True):
            yield LeaseBegan(owner)
        if owner in self.cast.come:
            yield from (LeaseEnded(owner), Dismiss(owner), Dismiss(owner, "s"))

    def _grants(self, owner: str) -> tuple[int, ...]:
        return self.cast.grants[self.cast.owners.index(owner)]

    def _acknowledges(self, place: Place, given: GrantFacts) -> Iterator[Any]:
        """Whatever is in hand, in any order and in ranges; and what was delivered under other grants."""
        owner, stream = place.split()
        for first in range(given.delivered):
            for last in range(first, given.delivered):
                if any(one >= given.acknowledged and one not in given.beyond for one in range(first, last + 1)):
                    yield Ack(owner, stream, given.grant, first, last)
        if given.delivered:
            yield from (Ack(owner, stream, grant, 0, 0) for grant in self._grants(owner) if grant != given.grant)

    def _answers(self, known: SessionFacts) -> Iterator[Any]:
        batches = tuple(map(self._batch, known.asked))
        yield Fetched(known.n, batches)
        if not known.open:
            return
        yield Fetched(
            known.n, tuple(MessageBatch(one.stream, one.grant, one.first, one.first - 1, False) for one in known.asked)
        )
        if self.cast.fail:
            yield Fetched(known.n - 1, batches)
            yield from (FetchFailed(known.n), FetchFailed(known.n - 1), Fetched(known.n, ()))

    def _batch(self, one: Slice) -> MessageBatch:
        last = min(one.first + one.limit, self.cast.messages) - 1
        return MessageBatch(one.stream, one.grant, one.first, last, self.cast.ends and last + 1 == self.cast.messages)

    # -- what comes of it ---------------------------------------------------------------------------------------

    def learns(self, known: SessionFacts, event: Any, said: Said) -> SessionFacts:
        known = after(known, event, self.cast.buffer)
        for effect in said:
            match effect:
                case Ask(_, Fetch(n, slices)):
                    is_trial = slices == known.trial and not list_wanted(known, self.cast.buffer)
                    places = tuple("" if is_trial else place_of(known, one) for one in slices)
                    known = replace(known, n=n, asked=slices, places=places, open=True)
                case Tell(Ready()):
                    known = replace(known, ready=True)
                case Tell(ReadsFailed()):
                    known = replace(known, trial=known.failing, failing=())
                case Tell(Deliver(owner, stream, _, _, last)):
                    place = f"{owner} {stream}"
                    known = put(known, place, replace(known.given[place], delivered=last + 1))
                    if self.cast.at_delivery:
                        known = put(known, place, acknowledge_range(known.given[place], last, last))
        if isinstance(event, Take) and not said:
            known = replace(known, ready=False)
        return known


def put(known: SessionFacts, place: Place, given: GrantFacts) -> SessionFacts:
    """With what is read there as it is now."""
    return replace(known, given=known.given.set(place, given))


def place_of(known: SessionFacts, one: Slice) -> Place:
    """Whose slice it is: of those that it may be for, the first that is not asked for yet."""
    found = [
        place
        for place, given in in_order(known.given)
        if place.split()[1] == one.stream and (given.grant, given.fetched) == (one.grant, one.first)
    ]
    return found[0] if found else ""


def after(known: SessionFacts, event: Any, buffer: int = 0) -> SessionFacts:
    """What anybody knows who has seen the event."""
    match event:
        case Admit(owner) if owner not in known.leases:
            return replace(known, leases=known.leases.set(owner, False))
        case LeaseBegan(owner) | LeaseEnded(owner) if owner in known.leases:
            return replace(known, leases=known.leases.set(owner, isinstance(event, LeaseBegan)))
        case Dismiss(owner) if owner in known.leases:
            given = Map({place: one for place, one in in_order(known.given) if place.split()[0] != owner})
            return replace(known, leases=known.leases.delete(owner), given=given)
        case Install(owner, stream, grant, progress) if owner in known.leases:
            held = known.given.get(f"{owner} {stream}")
            if held is None or grant > held.grant:
                return put(known, f"{owner} {stream}", GrantFacts(grant, progress, progress, progress))
        case Finish() if is_given(known, event):
            return put(known, place_in(event), replace(known.given[place_in(event)], finishing=True))
        case Uninstall() if is_given(known, event):
            return replace(known, given=known.given.delete(place_in(event)))
        case Ack(first=first, last=last) if is_given(known, event):
            return put(known, place_in(event), acknowledge_range(known.given[place_in(event)], first, last))
        case Fetched(n) | FetchFailed(n) if known.open and n == known.n:
            return keep_arrived(replace(known, open=False), event, buffer)
    return known


def place_in(event: Any) -> Place:
    """What an event is about."""
    return f"{event.owner} {event.stream}"


def is_given(known: SessionFacts, event: Any) -> bool:
    """It is about the grant that is installed."""
    given = known.given.get(place_in(event))
    return given is not None and given.grant == event.grant


def acknowledge_range(given: GrantFacts, first: int, last: int) -> GrantFacts:
    """With `first`..`last` acknowledged."""
    done = {*given.beyond, *range(first, last + 1)}
    upto = given.acknowledged
    while upto in done:
        upto += 1
    return replace(given, acknowledged=upto, beyond=tuple(sorted(one for one in done if one > upto)))


def keep_arrived(known: SessionFacts, event: Any, buffer: int) -> SessionFacts:
    """With what of an answer may be kept: in order, for who is still there, wants it, and has a lease."""
    if isinstance(event, FetchFailed) or len(event.batches) != len(known.asked):
        failing = tuple(slice_of(known, place, buffer) for place in known.places if place in known.given)
        return known if known.trial or known.failing else replace(known, failing=failing)
    known = replace(known, failing=(), trial=())
    for place, one, batch in zip(known.places, known.asked, event.batches, strict=True):
        given = known.given.get(place)
        if (
            given is not None
            and (given.grant, given.fetched) == (one.grant, one.first)
            and may_read(known, place, given)
        ):
            known = put(known, place, replace(given, fetched=batch.last + 1, ended=batch.ended))
    return known


def may_read(known: SessionFacts, place: Place, given: GrantFacts) -> bool:
    """Its owner has a lease, and it is not to be finished."""
    return known.leases[place.split()[0]] and not given.finishing


def list_wanted(known: SessionFacts, buffer: int) -> list[Slice]:
    """What is to be fetched: of whom that may be read which has an end to come, and half of its room."""
    return [
        Slice(place.split()[1], given.grant, given.fetched, buffer - (given.fetched - given.acknowledged))
        for place, given in in_order(known.given)
        if may_read(known, place, given) and not given.ended and 2 * (given.fetched - given.acknowledged) <= buffer
    ]


def slice_of(known: SessionFacts, place: Place, buffer: int) -> Slice:
    """What a fetch would ask for there."""
    given = known.given[place]
    return Slice(place.split()[1], given.grant, given.fetched, buffer - (given.fetched - given.acknowledged))


def takeable(known: SessionFacts) -> list[Place]:
    """Of whom something can be handed over."""
    return [
        place for place, one in in_order(known.given) if may_read(known, place, one) and one.delivered < one.fetched
    ]


# -- what it owes ---------------------------------------------------------------------------------------------------


def without_ready(said: Said) -> Said:
    """All that was said but that something can be taken."""
    return tuple(one for one in said if one != Tell(Ready()))


def nothing_else(known: SessionFacts, event: Any, said: Said) -> bool:
    return without_ready(said) == ()


def tell_progress(known: SessionFacts, place: Place) -> Tell:
    """The progress, to its owner: of what is acknowledged without a hole, final where nothing more will come."""
    owner, stream = place.split()
    given = known.given[place]
    over = given.ended and given.acknowledged == given.fetched
    final = given.finishing and given.acknowledged == given.delivered
    return Tell(Progressed(owner, stream, given.grant, END_OF_STREAM if over else given.acknowledged, final))


def hands_over(known: SessionFacts, event: Take, said: Said, at_delivery: bool) -> bool:
    """One message of one of those that have any: the next."""
    told = without_ready(said)
    can = takeable(known)
    if not told or not can:
        return told == () and not can
    first = told[0].event
    if not isinstance(first, Deliver) or place_in(first) not in can:
        return False
    place, given = place_in(first), known.given[place_in(first)]
    deliver = Deliver(first.owner, first.stream, given.grant, given.delivered, given.delivered)
    if not at_delivery:
        return told == (Tell(deliver),)
    given = acknowledge_range(replace(given, delivered=given.delivered + 1), given.delivered, given.delivered)
    ack = Acknowledged(deliver.owner, deliver.stream, deliver.grant, deliver.first, deliver.last)
    return told == (Tell(deliver), Tell(ack), tell_progress(put(known, place, given), place))


def counts(known: SessionFacts, event: Ack, said: Said) -> bool:
    if not is_given(known, event):
        return said == ()
    place, then = place_in(event), after(known, event)
    grew = then.given[place].acknowledged > known.given[place].acknowledged
    ack = Acknowledged(event.owner, event.stream, event.grant, event.first, event.last)
    return without_ready(said) == (Tell(ack), *((tell_progress(then, place),) if grew else ()))


def finishes(known: SessionFacts, event: Finish, said: Said) -> bool:
    if not is_given(known, event):
        return said == ()
    place, then = place_in(event), after(known, event)
    idle = then.given[place].acknowledged == then.given[place].delivered
    return said == ((tell_progress(then, place),) if idle else ())


def takes_in(known: SessionFacts, event: Any, said: Said) -> bool:
    """Only that a stream is read to its end is told, and that reads succeed again."""
    then = after(known, event)
    ends = [place for place, given in in_order(then.given) if given.ended and given.acknowledged == given.fetched
            and not known.given[place].ended]  # fmt: skip
    told = [tell_progress(then, place) for place in ends]
    if known.trial and not then.trial:
        told.append(Tell(ReadsSucceed()))
    return sorted(map(repr, without_ready(said))) == sorted(map(repr, told))


def gives_up(known: SessionFacts, event: UnreadableTimer, said: Said) -> bool:
    """Where a read has failed, and none has succeeded since, a stream that could not be read is named."""
    return any(said == (Tell(ReadsFailed(one.stream)),) for one in known.failing) if known.failing else said == ()


def dismisses(known: SessionFacts, event: Dismiss, said: Said) -> bool:
    ends = event.owner in known.leases and event.subscription
    return said == ((Tell(Ended(event.subscription)),) if ends else ())


def fetches(known: SessionFacts, event: PollTimer, said: Said, buffer: int) -> bool:
    """All that is wanted, each once, or what could not be read; or nothing yet, where somebody has lost the right to a
    turn."""
    match said:
        case ():
            return True
        case (Ask(service, Fetch(n, slices)),) if service == SERVICE and n > known.n and slices and not known.open:
            if known.trial and not list_wanted(known, buffer):
                return slices == known.trial
            return sorted(map(repr, slices)) == sorted(map(repr, list_wanted(known, buffer)))
    return False


def is_told(known: SessionFacts, event: Any, said: Said) -> bool:
    """Whoever drives it knows when something can be taken, and is not told for nothing."""
    then = after(known, event)
    tells = Tell(Ready()) in said
    return (not tells or bool(takeable(then))) and (known.ready or tells or not takeable(then))


def rules_of(cast: SessionCast) -> tuple[Rule, ...]:
    """What is owed to such a cast."""
    return (
        Rule("turns", "SS-100 to SS-103", "what may be read and has room is fetched, each from where it is, once",
             lambda known, event: isinstance(event, PollTimer),
             lambda known, event, said: fetches(known, event, said, cast.buffer)),
        Rule("hands over", "SS-101, SS-106, SS-109", "the next message of somebody who may have it is handed over",
             lambda known, event: isinstance(event, Take),
             lambda known, event, said: hands_over(known, event, said, cast.at_delivery)),
        Rule("counts", "SS-107, SS-108", "an acknowledgement is told on; progress is what has no hole",
             lambda known, event: isinstance(event, Ack), counts),
        Rule("finishes", "SS-109", "what is to be finished is final as soon as nothing of it is in hand",
             lambda known, event: isinstance(event, Finish), finishes),
        Rule("takes in", "SS-104, SS-105", "of an answer nothing is told but the end of what is read to its end",
             lambda known, event: isinstance(event, Fetched | FetchFailed), takes_in),
        Rule("gives up", "SS-290", "where reads have failed for so long, that is told",
             lambda known, event: isinstance(event, UnreadableTimer), gives_up),
        Rule("dismisses", "SS-112", "the end of a subscription is told once",
             lambda known, event: isinstance(event, Dismiss), dismisses),
        Rule("quiet", "SS-100, SS-101, SS-110, SS-111", "what owners say of leases and streams is told to nobody",
             lambda known, event: isinstance(event, Admit | LeaseBegan | LeaseEnded | Install | Uninstall),
             nothing_else),
        Rule("ready", "SS-106", "whoever drives it is told when something can be taken, and only then",
             lambda known, event: not isinstance(event, Take), is_told),
    )  # fmt: skip


POLL: Final = 2
"""Ticks of the poll interval, where time is counted."""


class PolledCounterpart(SessionCounterpart):
    """an application and a stream store, whose fetches are counted by the clock"""

    def __init__(self, cast: SessionCast) -> None:
        super().__init__(cast)
        self.rules = (*self.rules, ASKS if cast.sooner else POLLS)

    def learns(self, known: SessionFacts, event: Any, said: Said) -> SessionFacts:
        then = super().learns(known, event, said)
        if then.trial and not known.trial:
            return replace(then, rested=0)
        if is_open_answer(known, event):
            return replace(then, rested=-1 if after(known, event).given != known.given else 0)
        return replace(then, rested=-1) if then.open else then

    def ages(self, known: SessionFacts, ticks: int) -> SessionFacts:
        if not self.is_waiting(known):
            return known
        late = POLL + 1  # what is not asked for at once, where nothing says that it should wait, is late at once
        return replace(known, rested=late if known.rested < 0 else min(known.rested + ticks, late))

    def is_late(self, known: SessionFacts) -> int:
        return len(self.rules) if self.is_waiting(known) and known.rested > POLL else 0

    def is_waiting(self, known: SessionFacts) -> bool:
        """Something is to be fetched, and is not."""
        return not known.open and known.n < self.cast.fetches and bool(list_wanted(known, self.cast.buffer))


def is_open_answer(known: SessionFacts, event: Any) -> bool:
    """To the fetch that is open."""
    return known.open and isinstance(event, Fetched | FetchFailed) and event.n == known.n


POLLS: Final = Rule("polls", "SS-103, SS-105", "after a fetch that brought nothing the next waits for the interval",
                    lambda known, event: isinstance(event, PollTimer) and not known.trial,
                    lambda known, event, said: known.rested in (-1, POLL))  # fmt: skip


ASKS: Final = Rule("asks", "SS-100 to SS-105", "what may be read is asked for at once, or after the interval at most",
                   lambda known, event: isinstance(event, PollTimer), lambda known, event, said: True)  # fmt: skip


# -- systems --------------------------------------------------------------------------------------------------------

CASTS: Final = {
    "session-told": SessionCast(grants=((1, 2),), messages=1, buffer=1, come=(), idle=("dismisses",)),
    "session-leases": SessionCast(fail=False, idle=("gives up",)),
    "session-owners": SessionCast(
        owners=("x", "y"), grants=((1,), (2,)), messages=1, buffer=1, fetches=1, finish=False, fail=False,
        idle=("finishes", "gives up"),
    ),
    "session-acks": SessionCast(
        messages=3, buffer=3, ends=True, fetches=1, come=(), finish=False, fail=False,
        idle=("dismisses", "finishes", "gives up"),
    ),
    "session-at-delivery": SessionCast(
        ends=True, at_delivery=True, fetches=1, come=(), fail=False, idle=("dismisses", "counts", "gives up"),
    ),
    "timed-session": SessionCast(
        messages=3, fetches=3, come=(), finish=False, idle=("dismisses", "finishes"),
    ),
}  # fmt: skip
ABOUT: Final = {
    "session-told": "a session of one owner, whose grants follow each other, and whose fetches fail",
    "session-leases": "a session of one owner, whose lease comes and goes, as it does itself",
    "session-acks": "a session whose application acknowledges in any order, to the end of the stream",
    "session-owners": "a session of two owners, one of whom comes and goes",
    "session-at-delivery": "a session whose messages are acknowledged when they are handed over",
    "timed-session": "a session fetches at once, or after the poll interval where the last fetch brought nothing",
}


OWED: Final = ("session-told", "session-acks")
"""Those in which it is judged that whatever may be read is asked for at last."""


def build(name: str) -> System:
    """A session, and everybody else."""
    cast = CASTS[name]
    built = build_system(name, ABOUT[name], cast, timed=name.startswith("timed-"))
    if name not in OWED:
        return built
    view = View(COUNTERPART, 2, lambda local: int(not local.known.open and bool(list_wanted(local.known, cast.buffer))))
    asked = Eventually("L5 asked", "what may be read and has room is asked for", (view,), bool)
    return replace(built, obligations=(asked,))


def build_system(name: str, about: str, cast: SessionCast, *, timed: bool) -> System:
    """A session among such a cast; `timed`: the clock counts how soon it fetches."""
    machine = Machine(
        SESSION,
        SessionRecord("session", POLL * TICK_NS, cast.buffer, retry_ns=POLL * TICK_NS),
        timing=Timing(TICK_NS, ("poll",)) if timed else None,
        kept=lambda record: replace(renumber_session(record), fetch_n=record.fetch_n),
        bound=lambda record: is_within(cast, record),
    )
    return contract(
        name, about, machine, *((PolledCounterpart(cast), TickClock(TICK_NS)) if timed else (SessionCounterpart(cast),))
    )


def is_within(cast: SessionCast, record: SessionRecord) -> bool:
    """So many fetches, and turns that wait."""
    return record.fetch_n <= cast.fetches and max(map(len, (record.to_fetch, record.idle, record.to_take))) <= QUEUED
