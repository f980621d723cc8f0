"""What a private subscription owes its application and the stream store, whatever it is told: SS-190 to SS-194."""

from __future__ import annotations

from typing import Any, Final

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
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.explorer.timing import Timing
from statemachines_spec.shared_subscriptions.timings import TICK_NS
from statemachines_spec.table_contract import Clock, NumberedContract, Owed, TableFacts

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


Next = tuple["PrivateFacts", Said]


class PrivateFacts(TableFacts, frozen=True, gc=False):
    """`n` of the last request; `found` by the listing that is under way, so far, and `after` which stream it goes on;
    `listed`: one was whole; `kept`: the progress that the application was told; `installed` streams."""

    n: int = 0
    after: str = ""
    found: Map[str, StreamInfo] = Map()
    listed: bool = False
    kept: Map[str, int] = Map()
    installed: Map[str, bool] = Map()


class PrivateCounterpart(NumberedContract):
    """an application that reads as it likes, and a store whose streams come and go, which fails and repeats itself"""

    owes, ends = "S19", "S1 ends"

    def can_say(self, known: PrivateFacts, word: Any) -> bool:
        """What is kept is read; the last request is answered, and the one before, behind where it goes on."""
        match word:
            case StreamProgress(stream):
                return stream in known.kept
            case StreamsListed(streams=streams) if streams and streams[0].stream <= known.after:
                return False
            case StreamsListed(n) | FetchFailed(n):
                return known.phase != "new" and n in (known.n - 1, known.n)
        return True

    def is_late(self, known: PrivateFacts) -> int:
        """As many listings as are counted are seen."""
        return super().is_late(known) if known.n < LISTINGS else 0


def is_answer(known: PrivateFacts, event: Any) -> bool:
    """To the request that is open."""
    return bool(event.n == known.n)


def ask(known: PrivateFacts, event: Any = None, after: str = "") -> Next:
    """It asks for the next page, from its start on until one listing was whole, and then from the beginning."""
    request = ListStreams(known.n + 1, FILTER, 0 if known.listed else FROM_NS, after, STREAMS_PER_PAGE)
    found = known.found if after else Map()
    return replace(known, phase="open", after=after, found=found), (Ask(SERVICE, request),)


def add_page(known: PrivateFacts, event: StreamsListed) -> Next:
    """It tells where streams begin that are new to the application."""
    begin = {one.stream: one.first for one in event.streams if one.stream not in known.kept}
    found = {one.stream: one for one in event.streams}
    told = tuple(Tell(ReadTo(ID, stream, first)) for stream, first in begin.items())
    return replace(known, kept=Map({**known.kept, **begin}), found=Map({**known.found, **found})), told


def list_page(known: PrivateFacts, event: StreamsListed) -> Next:
    """A page is gone on from."""
    then, told = add_page(known, event)
    then, asked = ask(then, event, event.streams[-1].stream)
    return then, (*told, *asked)


def list_whole(known: PrivateFacts, event: StreamsListed) -> Next:
    """A whole listing drops what is not there, and has the first of each shard read."""
    then, told = add_page(known, event)
    unread = [one for name, one in in_order(then.found) if then.kept[name] != END_OF_STREAM]
    turn = {(one.shard, min(other.generation for other in unread if other.shard == one.shard)) for one in unread}
    begun = [one.stream for one in unread if (one.shard, one.generation) in turn and one.stream not in known.installed]
    gone = [one for one, _ in in_order(known.installed) if known.listed and one not in then.found]
    installed = {**{one: True for one in known.installed if one not in gone}, **dict.fromkeys(begun, True)}
    kept = {one: at for one, at in in_order(then.kept) if not known.listed or one in then.found}
    installs = (Tell(Install(ID, one, 0, then.kept[one])) for one in begun)
    then = replace(then, phase="rest", after="", found=Map(), listed=True, kept=Map(kept), installed=Map(installed))
    return then, (*told, *(Tell(Uninstall(ID, one, 0)) for one in gone), *installs)


def advances(known: PrivateFacts, event: StreamProgress) -> bool:
    """Of what is read, and further."""
    return event.stream in known.installed and event.progress > known.kept[event.stream]


def pass_on(known: PrivateFacts, event: StreamProgress) -> Next:
    """Progress is told; what has ended is dropped."""
    known = replace(known, kept=known.kept.set(event.stream, event.progress))
    told = (Tell(ReadTo(ID, event.stream, event.progress)),)
    if event.progress != END_OF_STREAM:
        return known, told
    return replace(known, installed=known.installed.delete(event.stream)), (Tell(Uninstall(ID, event.stream, 0)), *told)


# fmt: off
ROWS: Final = (
    Owed("begins", "SS-190", "who begins lists streams, once", Start, "new", step=ask),
    Owed("begins", "", "", Start),
    Owed("lists", "SS-191, SS-192", "what is found is told of, page by page, and the first of each shard is read",
         StreamsListed, "open", when=lambda known, event: is_answer(known, event) and event.more, step=list_page),
    Owed("lists", "", "", StreamsListed, "open", when=is_answer, step=list_whole),
    Owed("lists", "", "", FetchFailed, "open", to="rest", when=is_answer,
         then=lambda known, event: replace(known, found=Map(), after="")),
    Owed("lists", "", "", StreamsListed | FetchFailed),
    Owed("renews", "SS-191", "a renew_streams after a listing the next one begins", RenewTimer, step=ask),
    Owed("progress", "SS-193", "progress is told on while it grows, and what has ended is dropped",
         StreamProgress, when=advances, step=pass_on),
    Owed("progress", "", "", StreamProgress),
    Owed("ends", "SS-194", "who leaves, or goes, ends at once",
         OnUnsubscribe | OnDisconnect, said=lambda known, event: (Tell(Destroyed(ID, False, 0)), Stop())),
)
CLOCKS: Final = (Clock(RenewTimer, "rest", RENEW, "renews"),)
WORDS: Final = (
    OnUnsubscribe(), OnDisconnect(), Start(),
    *(StreamProgress(one.stream, 0, at) for one in STORED for at in (1, END_OF_STREAM)),
    *(FetchFailed(n) for n in range(LISTINGS + 1)),
    *(StreamsListed(n, page, page[-1:] not in ((), STORED[-1:])) for n in range(LISTINGS + 1) for page in ((), *PAGES)),
)
# fmt: on

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
    counterpart = PrivateCounterpart(ROWS, CLOCKS, WORDS, PrivateFacts())
    return contract(name, ABOUT[name], machine, counterpart, TickClock(TICK_NS))
