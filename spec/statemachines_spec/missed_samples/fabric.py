"""Fabric: the caches, and all that lies between them and a subscriber's queries, as one component.

A query waits in one of a few places of its source until it reaches the caches; then they have answered, and the replies
are on their way, in any order.  When the last has come the query ends; where the transport does not bring every reply
it may end before, and replies may be lost.  A network that is coming back ends a query at once, without a reply;
another never ends.  A query that takes the place of one that is still under way lets that one never end.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Fsm, Send, Tell
from statemachines.missed_samples.cache import (
    CACHE,
    CacheQuery,
    CacheRecord,
    CrowdedOver,
    LetGo,
    NotKept,
    Published,
    Reply,
)
from statemachines.missed_samples.message import EVERY_SOURCE, PARTLY, QUERY, Heartbeat, Query, Sample
from statemachines.missed_samples.properties import ObservedCache, judge_replies
from statemachines.missed_samples.properties.observed_cache import ObservedQueue
from statemachines.missed_samples.publisher import Stamped
from statemachines.missed_samples.selector import query_text
from statemachines.missed_samples.serial_number import wrap_number
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import Party, list_firings, step_party
from statemachines_spec.explorer.property import View
from statemachines_spec.missed_samples.violations import COUNT_OF_QUEUES, SampleViolation, name_violations

SUBSCRIBER = "subscriber"
KEY = "a"


class Asked(Event, frozen=True, gc=False):
    """A query takes a place."""

    place: int
    query: Query


class Reach(Event, frozen=True, gc=False):
    """The query in this place reaches the caches, which answer."""

    place: int


class Bring(Event, frozen=True, gc=False):
    """A reply to the query in this place comes."""

    place: int
    reply: int


class LoseReply(Event, frozen=True, gc=False):
    """A reply to the query in this place is lost."""

    place: int
    reply: int


class EndQuery(Event, frozen=True, gc=False):
    """The query in this place ends."""

    place: int


class EndEarly(Event, frozen=True, gc=False):
    """The query in this place ends before its replies have come."""

    place: int


class EndEmpty(Event, frozen=True, gc=False):
    """The query in this place has reached nobody, and ends."""

    place: int


class Vanish(Event, frozen=True, gc=False):
    """The query in this place never ends."""

    place: int


class Ended(Event, frozen=True, gc=False):
    """To the subscriber: the query in this place is over."""

    place: int
    source: str
    brought: int


class GoesOn(Event, frozen=True, gc=False):
    """To the subscriber: a reply to the query in this place has come."""

    place: int
    source: str


class Under(msgspec.Struct, frozen=True, gc=False):
    """A query under way; `reached`: the caches have answered it, `brought`: as in `QueryEnded`, so far; `lost`: a reply
    was; `ended`: before its replies came; `replies` that are still to come."""

    query: Query
    reached: bool = False
    brought: int = 0
    lost: bool = False
    ended: bool = False
    replies: tuple[Sample, ...] = ()


class FabricLocal(msgspec.Struct, frozen=True, gc=False):
    """`cache`: the record of the cache; `seen`: what it should have; `places`: queries under way; `turned`, `gone`: a
    source was turned away, a queue let go, once at least."""

    cache: Party
    seen: ObservedCache = ObservedCache()
    places: tuple[Under | None, ...] = ()
    turned: bool = False
    gone: bool = False
    broken: tuple[SampleViolation, ...] = ()


class Fabric(Actor):
    """`history` and `width` of the cache; `local`: it takes what publishers have stamped, else what the network brings;
    `sources` that there are; `stuck`: sources whose queries reach nobody, and never end; `reliable`: replies are
    not lost, nor overtaken by the end; `noticed`: a reply may be lost, and then the end says so; `single`: a
    reply brings one sample; `begin`: the first number; `queues`: so many the cache may have; `places`: so many
    queries of a source are under way at most."""

    def __init__(
        self,
        *,
        history: int,
        width: int,
        local: bool = True,
        sources: int = 1,
        reliable: bool = True,
        noticed: bool = False,
        stuck: tuple[str, ...] = (),
        single: bool = False,
        begin: int = 0,
        queues: int = 9,
        places: int = 2,
    ) -> None:
        super().__init__(QUERY)
        self.places = places
        self.queues = queues
        self.history = history
        self.width = width
        self.local = local
        self.sources = sources
        self.reliable = reliable
        self.noticed = noticed
        self.stuck = stuck
        self.single = single
        self.begin = begin

    # -- the component ------------------------------------------------------------------------------------------

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return (CACHE,)

    def initial(self) -> FabricLocal:
        cache = Party(CacheRecord(history=self.history, width=self.width, local=self.local, places=self.queues))
        return FabricLocal(cache, places=(None,) * (self.places * self.sources + 1))

    def inputs(self, local: FabricLocal) -> tuple[Any, ...]:
        found: list[Event] = list(list_firings(CACHE, local.cache, frozenset()))
        for place, under in enumerate(local.places):
            if under is None or under.query.source in self.stuck:
                continue
            if not under.reached:
                found += [Reach(place), EndEmpty(place), Vanish(place)]
                continue
            for number in range(len(under.replies)):
                found.append(Bring(place, number))
                found += [LoseReply(place, number)] if self.noticed or not self.reliable else []
            if not under.replies:
                found.append(EndQuery(place))
            elif not (self.reliable or under.ended):
                found.append(EndEarly(place))
        return tuple(found)

    def react(self, local: FabricLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Stamped(source, first, last):
                return Reaction(self._published(local, source, wrap_number(first, self.width), last - first, watch))
            case Sample(source, first, last):
                return Reaction(self._published(local, source, first, last - first, watch))
            case CrowdedOver():
                return Reaction(self._crowded_over(local, envelope.event, watch))
            case Heartbeat():
                return Reaction(local)
            case Asked(place, query):
                return Reaction(self._with(local, place, Under(query)))
            case Reach(place):
                return Reaction(self._reached(local, place, watch))
            case Vanish(place):
                return Reaction(self._with(local, place, None))
            case Bring(place, reply):
                return self._brought(local, place, reply)
            case LoseReply(place, reply):
                under = local.places[place]
                assert under is not None
                return Reaction(
                    self._without(self._with(local, place, replace(under, lost=self.noticed)), place, reply)
                )
            case EndQuery(place) | EndEarly(place) | EndEmpty(place):
                return self._end_query(local, place)
        raise TypeError(f"the fabric does not take a {type(envelope.event).__name__}")

    def _published(
        self, local: FabricLocal, source: str, first: int, more: int, watch: Watch | None
    ) -> FabricLocal:  # fmt: skip
        event = Published(KEY, source, first, first + more, self.local)
        seen = local.seen.observe_published(event, self._count(first), local.cache.record)
        cache, effects = step_party(CACHE, local.cache, event, "cache", watch)
        turned = local.turned or seen.not_kept > 0
        return self._judge_told(replace(local, cache=cache, seen=seen, turned=turned), effects)

    def _crowded_over(self, local: FabricLocal, event: Event, watch: Watch | None) -> FabricLocal:
        """Who was silent since somebody found no place goes."""
        seen = local.seen.observe_retention()
        cache, effects = step_party(CACHE, local.cache, event, "cache", watch)
        gone = local.gone or bool(seen.owed)
        return self._judge_told(replace(local, cache=cache, seen=seen, gone=gone), effects)

    def _judge_told(self, local: FabricLocal, effects: Any) -> FabricLocal:
        """Whether the cache told and counted what it should, and waits to see who is silent."""
        cache, seen = local.cache, local.seen
        broken = seen.judge_count(cache.record.not_kept)
        for one in effects:
            if isinstance(one, Tell) and isinstance(one.event, NotKept | LetGo):
                seen, wrong = seen.observe_told(one.event)
                broken += wrong
        broken += seen.judge_silence() + seen.judge_waiting(bool(cache.timers))
        uncounted = replace(cache, record=replace(cache.record, not_kept=0))
        found = tuple(name_violations(broken, COUNT_OF_QUEUES)) or local.broken
        return replace(local, cache=uncounted, seen=replace(seen, owed=(), not_kept=0), broken=found)

    def _count(self, sn: int) -> int:
        """Which number of the system it is."""
        return sn - self.begin if self.width == 64 else wrap_number(sn - self.begin, self.width)

    def _reached(self, local: FabricLocal, place: int, watch: Watch | None) -> FabricLocal:
        under = local.places[place]
        assert under is not None
        query = under.query
        text = query_text(query, self.width)
        asked = CacheQuery(SUBSCRIBER, 1, query.source, "**", text)
        cache, effects = step_party(CACHE, local.cache, asked, "cache", watch)
        replies = [one.message for one in effects if isinstance(one, Send) and isinstance(one.message, Reply)]
        found = tuple(Sample(one.source, first, last) for one in replies for first, last in self._parts(one))
        local = self._with(
            replace(local, cache=cache), place, Under(query, True, int(query.source == EVERY_SOURCE), replies=found)
        )
        said = [(one.source, self._count(sn)) for one in found for sn in range(one.first, one.last + 1)]
        wanted = [
            (source, one)
            for (source, _), queue in sorted(local.seen.queues.items())
            if query.source in (source, EVERY_SOURCE)
            for one in self._list_answer(queue, query)
        ]
        return replace(local, broken=tuple(name_violations(judge_replies(said, wanted))) or local.broken)

    def _list_answer(self, queue: ObservedQueue, query: Query) -> list[int]:
        """The numbers of a queue that a query is about."""
        first = 0 if query.source == EVERY_SOURCE else self._count(query.first)
        return queue.list_answer(first, first + query.last - query.first if query.has_end else None, query.newest)

    def _parts(self, reply: Reply) -> list[tuple[int, int]]:
        if not self.single:
            return [(reply.first, reply.last)]
        sns = [wrap_number(one, self.width) for one in range(reply.first, reply.last + 1)]
        return [(sn, sn) for sn in sns]

    def _brought(self, local: FabricLocal, place: int, reply: int) -> Reaction:
        under = local.places[place]
        assert under is not None
        sample, query = under.replies[reply], under.query
        brought = max(under.brought, query.reach_of(wrap_number(sample.last, self.width), self.width))
        local = self._with(local, place, replace(under, brought=brought))
        calls: tuple[Envelope, ...] = (Envelope(QUERY, SUBSCRIBER, sample),)
        if not under.ended:
            calls = (*calls, Envelope(QUERY, SUBSCRIBER, GoesOn(place, query.source)))
        return Reaction(self._without(local, place, reply), (), calls)

    def _without(self, local: FabricLocal, place: int, reply: int) -> FabricLocal:
        under = local.places[place]
        assert under is not None
        left = (*under.replies[:reply], *under.replies[reply + 1 :])
        gone = under.ended and not left
        return self._with(local, place, None if gone else replace(under, replies=left))

    def _end_query(self, local: FabricLocal, place: int) -> Reaction:
        """Its end comes; replies that have not come yet may follow, until another query takes the place."""
        under = local.places[place]
        assert under is not None
        brought = PARTLY if under.lost else under.brought
        call = Envelope(QUERY, SUBSCRIBER, Ended(place, under.query.source, brought))
        left = replace(under, ended=True) if under.replies else None
        return Reaction(self._with(local, place, left), (), (call,))

    @staticmethod
    def _with(local: FabricLocal, place: int, under: Under | None) -> FabricLocal:
        return replace(local, places=(*local.places[:place], under, *local.places[place + 1 :]))

    # -- reading it ---------------------------------------------------------------------------------------------

    def describe(self, local: FabricLocal) -> str:
        kept = [f"{source} {', '.join(map(str, queue.list_answer(0, None, 0)))}"
                for (source, _), queue in sorted(local.seen.queues.items())]  # fmt: skip
        under = [f"query {place} about {one.query.source} {'answered' if one.reached else 'on its way'}"
                 for place, one in enumerate(local.places) if one is not None]  # fmt: skip
        return "; ".join([f"kept: {', '.join(kept) or 'nothing'}", *under, *(one.value for one in local.broken)])

    def bounds(self) -> dict[str, str]:
        lines = {"history of the cache": str(self.history), "queues of the cache": str(self.queues)}
        lines["queries under way"] = f"{self.places} of each source"
        return {**lines, "reaches nobody": ", ".join(self.stuck)} if self.stuck else lines

    def is_broken(self, how: SampleViolation) -> View:
        """Whether this was broken by the cache."""
        return View(QUERY, 2, lambda local: int(how in local.broken))

    def has_turned_away(self) -> View:
        """Whether a source found no place."""
        return View(QUERY, 2, lambda local: int(local.turned))

    def has_let_go(self) -> View:
        """Whether a silent queue was let go."""
        return View(QUERY, 2, lambda local: int(local.gone))


def is_under_way(actor: str, local: Any) -> tuple[str, ...]:
    """The sources of which a query is under way (for `Due`)."""
    if not isinstance(local, FabricLocal):
        return ()
    return tuple(sorted({one.query.source for one in local.places if one is not None and not one.ended}))
