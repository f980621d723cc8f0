"""What a private subscription owes its application and the stream store, whatever it is told: SS-190 to SS-194."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Map, Stop, Tell, in_order
from statemachines.shared_subscriptions.borrower import Destroyed, OnDisconnect, OnUnsubscribe, Start
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.private_subscription import (
    PRIVATE,
    STREAMS_PER_PAGE,
    PrivateRecord,
    ReadTo,
    RenewTimer,
)
from statemachines.shared_subscriptions.stream import Install, StreamProgress, Uninstall
from statemachines.shared_subscriptions.stream_store import (
    SERVICE,
    FetchFailed,
    ListStreams,
    StreamInfo,
    StreamsListed,
)
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.actor import Timing
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.shared_subscriptions.succession import TICK_NS

ID: Final = "consumer-1~1/1"
FILTER: Final = "a"
FROM_NS: Final = 7
LISTINGS: Final = 3
RENEW: Final = 2
"""Ticks between two listings."""
FIRST, OTHER, SECOND = "0.0/a", "1.0/a", "0.1/a"
STORED: Final = (StreamInfo(FIRST, 0, 0, 1, 2), StreamInfo(SECOND, 0, 1, 0, 2), StreamInfo(OTHER, 1, 0, 0, 2))
"""Two generations of a shard, and a stream of another, in the order of their ids."""
PAGES: Final = (STORED[:1], (STORED[0], STORED[1]), STORED[1:])
Said = tuple[Any, ...]


class PrivateFacts(msgspec.Struct, frozen=True, gc=False):
    """`begun`; `n` of the last request, and whether it is `open`; `found` by the listing that is under way, so far, and
    `after` which stream it goes on; `listed`: one was whole; `kept`: the progress that the application was told;
    `installed` streams; `rested`: ticks since a listing was over; `ended`."""

    begun: bool = False
    n: int = 0
    open: bool = False
    after: str = ""
    found: Map[str, StreamInfo] = Map()
    listed: bool = False
    kept: Map[str, int] = Map()
    installed: Map[str, bool] = Map()
    rested: int = 0
    ended: bool = False


class PrivateCounterpart(Counterpart):
    """an application that reads as it likes, and a store whose streams come and go, which fails and repeats itself"""

    owes, ends = "S19", "S1 ends"

    def __init__(self) -> None:
        super().__init__(RULES)

    def begins(self) -> PrivateFacts:
        return PrivateFacts()

    def says(self, known: PrivateFacts) -> Iterator[Any]:
        if known.ended:
            return
        yield from (OnUnsubscribe(), OnDisconnect())
        yield Start()
        for stream, _ in in_order(known.kept):
            yield from (StreamProgress(stream, 0, at) for at in (1, END_OF_STREAM))
        for n in {known.n - 1, known.n} if known.begun else ():
            yield FetchFailed(n)
            for page in PAGES:
                if page[0].stream > known.after:
                    yield StreamsListed(n, page, page[-1] is not STORED[-1])
            yield StreamsListed(n, (), False)

    def learns(self, known: PrivateFacts, event: Any, said: Said) -> PrivateFacts:
        known = replace(known, begun=known.begun or isinstance(event, Start))
        if is_answer(known, event):
            known = add_answer(known, event)
        if isinstance(event, StreamProgress) and advances(known, event):
            known = replace(known, kept=known.kept.set(event.stream, event.progress))
        for effect in said:
            match effect:
                case Ask(_, ListStreams(n=n, after=after)):
                    found = known.found if after else Map()
                    known = replace(known, n=n, open=True, after=after, found=found, rested=0)
                case Tell(ReadTo(_, stream, progress)):
                    known = replace(known, kept=known.kept.set(stream, progress))
                case Tell(Install(_, stream)):
                    known = replace(known, installed=known.installed.set(stream, True))
                case Tell(Uninstall(_, stream)):
                    known = replace(known, installed=known.installed.delete(stream))
                case Tell(Destroyed()):
                    return PrivateFacts(ended=True)
        if not known.open and known.found:
            known = replace(known, found=Map(), after="")
        return known

    def ages(self, known: PrivateFacts, ticks: int) -> Any:
        waits = known.begun and not known.open and not known.ended
        return replace(known, rested=min(RENEW + 1, known.rested + ticks)) if waits else known

    def is_late(self, known: PrivateFacts) -> int:
        late = known.rested > RENEW and known.n < LISTINGS
        return RULES.index(RENEWS) + 1 if late else 0


def is_answer(known: PrivateFacts, event: Any) -> bool:
    """To the request that is open."""
    return known.open and isinstance(event, StreamsListed | FetchFailed) and event.n == known.n


def add_answer(known: PrivateFacts, event: Any) -> PrivateFacts:
    """With what an answer to the open request adds; what a whole listing did not find is not kept any more."""
    known = replace(known, open=False, rested=0)
    if isinstance(event, FetchFailed):
        return replace(known, found=Map(), after="")
    found = known.found
    for info in event.streams:
        found = found.set(info.stream, info)
    known = replace(known, found=found)
    if event.more:
        return known
    if known.listed:
        known = replace(known, kept=Map({one: at for one, at in in_order(known.kept) if one in found}))
    return replace(known, listed=True)


def advances(known: PrivateFacts, event: StreamProgress) -> bool:
    """Of what is read, and further."""
    return event.stream in known.installed and event.progress > known.kept[event.stream]


def asks(known: PrivateFacts, effect: Any, after: str) -> bool:
    """It asks for the next page, from its start on until one listing was whole, and then from the beginning."""
    match effect:
        case Ask(service, ListStreams(n=n) as asked) if n > known.n:
            wanted = ListStreams(n, FILTER, 0 if known.listed else FROM_NS, after, STREAMS_PER_PAGE)
            return service == SERVICE and asked == wanted
    return False


def begins(known: PrivateFacts, event: Start, said: Said) -> bool:
    return said == () if known.begun else len(said) == 1 and asks(known, said[0], "")


def renews(known: PrivateFacts, event: RenewTimer, said: Said) -> bool:
    return known.rested == RENEW and not known.open and len(said) == 1 and asks(known, said[0], "")


def tell_begins(known: PrivateFacts, event: StreamsListed) -> Said:
    """Where streams begin that are new to the application."""
    return tuple(Tell(ReadTo(ID, one.stream, one.first)) for one in event.streams if one.stream not in known.kept)


def lists(known: PrivateFacts, event: Any, said: Said) -> bool:
    """A page is gone on from; a whole listing drops what is not there, and has the first of each shard read."""
    if not is_answer(known, event) or isinstance(event, FetchFailed):
        return said == ()
    told = tell_begins(known, event)
    if event.more:
        return said[:-1] == told and bool(said) and asks(known, said[-1], event.streams[-1].stream)
    then = add_answer(known, event)
    kept = {**dict(then.kept), **{one.event.stream: one.event.progress for one in told}}
    unread = [one for name, one in in_order(then.found) if kept[name] != END_OF_STREAM]
    turn = {
        shard: min(one.generation for one in unread if one.shard == shard) for shard in (one.shard for one in unread)
    }
    drops = [Tell(Uninstall(ID, one, 0)) for one, _ in in_order(known.installed) if one not in then.found]
    begun = [
        Tell(Install(ID, one.stream, 0, kept[one.stream]))
        for one in unread
        if one.generation == turn[one.shard] and one.stream not in known.installed
    ]
    return said == (*told, *(drops if known.listed else ()), *begun)


def passes_on(known: PrivateFacts, event: StreamProgress, said: Said) -> bool:
    if not advances(known, event):
        return said == ()
    ends = (Tell(Uninstall(ID, event.stream, 0)),) if event.progress == END_OF_STREAM else ()
    return said == (*ends, Tell(ReadTo(ID, event.stream, event.progress)))


RENEWS: Final = Rule("renews", "SS-191", "a renew_streams after a listing the next one begins",
                     lambda known, event: isinstance(event, RenewTimer), renews)  # fmt: skip
RULES: Final = (
    Rule("begins", "SS-190", "who begins lists streams, once",
         lambda known, event: isinstance(event, Start), begins),
    Rule("lists", "SS-191, SS-192", "what is found is told of, page by page, and the first of each shard is read",
         lambda known, event: isinstance(event, StreamsListed | FetchFailed), lists),
    RENEWS,
    Rule("progress", "SS-193", "progress is told on while it grows, and what has ended is dropped",
         lambda known, event: isinstance(event, StreamProgress), passes_on),
    Rule("ends", "SS-194", "who leaves, or goes, ends at once",
         lambda known, event: isinstance(event, OnUnsubscribe | OnDisconnect),
         lambda known, event, said: said == (Tell(Destroyed(ID, False, 0)), Stop())),
)  # fmt: skip

NAME: Final = "timed-private"
ABOUT: Final = {NAME: "a private subscription lists streams that come and go, and reads them in turn"}


def build(name: str) -> System:
    """A private subscription, its application, and the store."""
    machine = Machine(
        PRIVATE,
        PrivateRecord(ID, FILTER, FROM_NS, RENEW * TICK_NS),
        timing=Timing(TICK_NS, ("renew",)),
        bound=lambda record: record.list_n <= LISTINGS,
    )
    return contract(name, ABOUT[name], machine, PrivateCounterpart(), TickClock(TICK_NS))
