"""HeldPublisher: a publisher of one subject that keeps what it sent, and answers queries, as a component.

A message may be lost when it is sent.  A reply may be lost, a query may end without an answer, and another may never
end.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Message
from statemachines.missed_samples.message import QUERY, Query, QueryEnded
from statemachines.sequence_windows.held_stream_record import stream_of
from statemachines.sequence_windows.message import Numbered
from statemachines.sequence_windows.sequence import number_of
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.environment import Environment

HOST = "host"
FRAME = 2
"""Of the first stream; the next has the next one."""


class SendOrdinal(Event, frozen=True, gc=False):
    """The next message is published; `lost`: on the way; `begins`: it begins another frame."""

    lost: bool
    begins: bool


class BringReply(Event, frozen=True, gc=False):
    """A reply to the query of this run comes: the message with this ordinal."""

    run: str
    ordinal: int


class LoseHeldReply(Event, frozen=True, gc=False):
    """A reply to the query of this run is lost."""

    run: str
    ordinal: int


class EndHeldQuery(Event, frozen=True, gc=False):
    """No reply to the query of this run is on its way any more, and it ends."""

    run: str


class EndUnanswered(Event, frozen=True, gc=False):
    """The query of this run ends, and nobody knows whether all replies have come."""

    run: str


class NeverEnd(Event, frozen=True, gc=False):
    """The query of this run never ends."""

    run: str


class OrdinalMessage(Message, frozen=True, gc=False):
    """A message on its way.  Its `ordinal`, from 0 on, is for the judge alone."""

    ordinal: int
    event: Numbered


class OrdinalReply(Message, frozen=True, gc=False):
    """A reply that has come."""

    ordinal: int
    number: int


class UnansweredQuery(msgspec.Struct, frozen=True, gc=False):
    """A query; `left`: the ordinals of the replies that have not come; `whole`: none was lost."""

    query: Query
    left: tuple[int, ...]
    whole: bool = True


class HeldPublisherLocal(msgspec.Struct, frozen=True, gc=False):
    """`sent`: how many messages; `cuts`: the ordinals that begin a frame; `queries`: those that are open, by run."""

    sent: int = 0
    cuts: tuple[int, ...] = (0,)
    queries: tuple[UnansweredQuery, ...] = ()


class HeldPublisher(Actor):
    """`messages` in `frames`; of those it keeps the newest `history`."""

    def __init__(self, *, messages: int, frames: int, history: int) -> None:
        super().__init__(QUERY)
        self.messages = messages
        self.frames = frames
        self.history = history

    def initial(self) -> HeldPublisherLocal:
        return HeldPublisherLocal()

    def inputs(self, local: HeldPublisherLocal) -> tuple[Any, ...]:
        found: list[Event] = []
        if local.sent < self.messages:
            begins = (False, True) if local.sent > 0 and len(local.cuts) < self.frames else (False,)
            found += [SendOrdinal(lost, new) for lost in (False, True) for new in begins]
        for one in local.queries:
            run = one.query.source
            for ordinal in one.left:
                found += [BringReply(run, ordinal), LoseHeldReply(run, ordinal)]
            found += [EndUnanswered(run), NeverEnd(run), *(() if one.left else (EndHeldQuery(run),))]
        return tuple(found)

    def react(self, local: HeldPublisherLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case SendOrdinal(lost, begins):
                return self._send(local, lost, begins)
            case Query() as query:
                others = tuple(one for one in local.queries if one.query.source != query.source)
                opened = UnansweredQuery(query, self._find(local, query))
                ordered = sorted((*others, opened), key=lambda one: one.query.source)
                return Reaction(replace(local, queries=tuple(ordered)))
            case BringReply(run, ordinal):
                reply = OrdinalReply(ordinal, self._number(local, ordinal))
                return Reaction(self._without(local, run, ordinal), (), (Envelope(QUERY, HOST, reply),))
            case LoseHeldReply(run, ordinal):
                return Reaction(self._without(local, run, ordinal, whole=False))
            case EndHeldQuery(run):
                return self._end(local, run, by_itself=True)
            case EndUnanswered(run):
                return self._end(local, run, by_itself=False)
            case NeverEnd(run):
                return Reaction(replace(local, queries=self._others(local, run)))
        raise TypeError(f"a publisher does not take a {type(envelope.event).__name__}")

    # -- what it does -------------------------------------------------------------------------------------------

    def _send(self, local: HeldPublisherLocal, lost: bool, begins: bool) -> Reaction:
        ordinal = local.sent
        cuts = (*local.cuts, ordinal) if begins else local.cuts
        chain = self._number(local, ordinal - 1) if begins else 0
        local = replace(local, sent=ordinal + 1, cuts=cuts)
        frame, base = FRAME + len(cuts) - 1, ordinal - cuts[-1] + 1
        message = OrdinalMessage(ordinal, Numbered(frame, base, base, 0, chain))
        return Reaction(local, () if lost else (Envelope(QUERY, HOST, message),))

    def _number(self, local: HeldPublisherLocal, ordinal: int) -> int:
        place = max(place for place, cut in enumerate(local.cuts) if cut <= ordinal)
        return number_of(FRAME + place, ordinal - local.cuts[place] + 1)

    def _find(self, local: HeldPublisherLocal, query: Query) -> tuple[int, ...]:
        """What it keeps of what is asked for."""
        kept = range(max(0, local.sent - self.history), local.sent)
        return tuple(one for one in kept if query.first <= self._number(local, one) <= query.last)

    def _end(self, local: HeldPublisherLocal, run: str, *, by_itself: bool) -> Reaction:
        """It ends well where it does so by itself, and every reply has come."""
        one = next(one for one in local.queries if one.query.source == run)
        query, well = one.query, by_itself and one.whole
        ended = QueryEnded(run, query.n, query.last - query.first + 1 if well else 0)
        return Reaction(replace(local, queries=self._others(local, run)), (), (Envelope(QUERY, stream_of(run), ended),))

    @staticmethod
    def _others(local: HeldPublisherLocal, run: str) -> tuple[UnansweredQuery, ...]:
        return tuple(one for one in local.queries if one.query.source != run)

    @staticmethod
    def _without(local: HeldPublisherLocal, run: str, ordinal: int, *, whole: bool = True) -> HeldPublisherLocal:
        queries = tuple(
            replace(one, left=tuple(other for other in one.left if other != ordinal), whole=one.whole and whole)
            if one.query.source == run
            else one
            for one in local.queries
        )
        return replace(local, queries=queries)

    # -- reading it ---------------------------------------------------------------------------------------------

    def describe(self, local: HeldPublisherLocal) -> str:
        asked = [
            f"query {one.query.n} of {one.query.source} waits for {one.left or 'its end'}" for one in local.queries
        ]
        return "; ".join([f"{local.sent} sent", *asked])

    def bounds(self) -> dict[str, str]:
        return {"history": str(self.history)}


HeldPublisher.environments = (
    Environment(
        "the publisher and its cache",
        "messages are sent and lost, queries are answered from the history, end without an answer, or never end",
        (HeldPublisher,),
    ),
)


def runs_asked(actor: str, local: Any) -> tuple[str, ...]:
    """The runs of which a query is under way (for `Due`)."""
    return tuple(one.query.source for one in local.queries) if isinstance(local, HeldPublisherLocal) else ()
