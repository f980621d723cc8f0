"""Stream store: topics -> shards -> generations -> streams (source: "General Idea", the DS for messages).

A stream is an append-only sequence of (offset, payload), offsets from 0 without holes, of one topic in one generation
of one shard; it may end.  When the store rotates, a new generation begins, and every stream of those before has ended;
the oldest generations may be dropped with all that is in them.  The machines see numbers only: a driver keeps the
payloads that came with `Fetched` and hands them out when a session delivers the range.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, ConfigurationError, Event, Map, Request, TraceColumns, in_order
from statemachines.shared_subscriptions.dead_letter import LetterStored, StoreLetter
from statemachines.shared_subscriptions.names import SHARED_LEVELS, check_group, record_key
from statemachines.shared_subscriptions.names import check_filter as check_filter

SERVICE = "stream_store"


class StreamInfo(msgspec.Struct, frozen=True, gc=False):
    """A stream that exists: its id, its rank (shard, generation), `first`, the offset of its first message at or after
    the start time asked for, `count`, how many messages it has, and whether it has `ended`."""

    stream: str
    shard: int
    generation: int
    first: int
    count: int
    ended: bool = False


class StreamSize(msgspec.Struct, frozen=True, gc=False):
    """How many messages a stream has, and whether it has ended."""

    stream: str
    count: int
    ended: bool


class Slice(msgspec.Struct, frozen=True, gc=False):
    """At most `limit` messages of `stream` from offset `first` on; `grant` comes back with the answer."""

    stream: str
    grant: int
    first: int
    limit: int


class MessageBatch(msgspec.Struct, frozen=True, gc=False):
    """Messages `first`..`last` of a stream are there (last = first - 1: none); `ended`: and nothing ever follows;
    `count`: so many messages the stream had by then."""

    stream: str
    grant: int
    first: int
    last: int
    ended: bool
    count: int = 0


# -- requests and answers -------------------------------------------------------------------------------------------


class ListStreams(Request, frozen=True, gc=False):
    """At most `limit` streams whose topic matches `filter`, by id, after the id `after`; answer: `StreamsListed`."""

    n: int
    filter: str
    start_ns: int
    after: str
    limit: int


class StreamsListed(Answer, frozen=True, gc=False):
    """One page; `more`: ask again after its last id.  `generation`: the one that is appended to; `oldest`: all before
    it have been dropped."""

    n: int
    streams: tuple[StreamInfo, ...]
    more: bool
    generation: int = 0
    oldest: int = 0


class Measure(Request, frozen=True, gc=False):
    """How far do these streams go?  Answered by `Measured`."""

    n: int
    streams: tuple[str, ...]


class Measured(Answer, frozen=True, gc=False):
    """The streams that were asked for, in the order of their ids; those that are not there are left out.  All
    generations before `oldest` have been dropped."""

    n: int
    sizes: tuple[StreamSize, ...]
    oldest: int = 0


class Fetch(Request, frozen=True, gc=False):
    """Some slices, in one go; answered by `Fetched`."""

    n: int
    slices: tuple[Slice, ...]


class Fetched(Answer, frozen=True, gc=False):
    """A batch for each slice, in order; a driver keeps the payloads."""

    n: int
    batches: tuple[MessageBatch, ...]


class FetchFailed(Answer, frozen=True, gc=False):
    """The store did not answer request `n`."""

    n: int


class Append(Request, frozen=True, gc=False):
    """Append `count` messages to the topic's current stream; answered by `Appended`."""

    n: int
    topic: str
    count: int


class Appended(Answer, frozen=True, gc=False):
    """The messages are durable as `first`..`last` of `stream`."""

    columns: ClassVar = TraceColumns(key="stream")

    n: int
    stream: str
    first: int
    last: int


class Rotate(Request, frozen=True, gc=False):
    """Begin a new generation: every stream so far has ended; answered by `Rotated`."""

    n: int


class Rotated(Answer, frozen=True, gc=False):
    """`generation` is appended to from now on."""

    n: int
    generation: int


class Drop(Request, frozen=True, gc=False):
    """Drop every generation before `oldest` (which is at most the current one); answered by `Dropped`."""

    n: int
    oldest: int


class Dropped(Answer, frozen=True, gc=False):
    """All before `oldest` is gone."""

    n: int
    oldest: int


class Published(Event, frozen=True, gc=False):
    """To whoever keeps account: messages `first`..`last` of `stream` are in the store."""

    columns: ClassVar = TraceColumns(key="stream")

    stream: str
    first: int
    last: int


# -- filters --------------------------------------------------------------------------------------------------------


def parse_filter(subscription: str) -> tuple[str, str]:
    """(group, filter) of `$shared/GROUP/FILTER`, `$share/GROUP/FILTER` or `$queue/GROUP/FILTER`, which mean the same.

    Raises `ConfigurationError` for anything else: nothing is created for a malformed one.
    """
    head, _, rest = subscription.partition("/")
    group, _, topic_filter = rest.partition("/")
    if head not in SHARED_LEVELS or not group or not topic_filter or set(group) & set("+#$"):
        rule = "must be $shared/GROUP/FILTER ($share or $queue instead); GROUP is not empty and has no '+', '#' or '$'"
        raise ConfigurationError("subscription", subscription, rule)
    check_group(group, "subscription")
    check_filter(topic_filter, subscription)
    return group, topic_filter


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic matches a filter, by MQTT's rules for '+' and '#'."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


# -- meaning --------------------------------------------------------------------------------------------------------


class StoredStream(msgspec.Struct, frozen=True, gc=False):
    """The pure store's view of a stream: its place, the commit time of each append as (first offset, time), its end."""

    topic: str
    shard: int
    generation: int
    count: int = 0
    times: tuple[tuple[int, int], ...] = ()
    ended: bool = False

    def first_since(self, start_ns: int) -> int:
        """The offset of the first message appended at or after `start_ns`."""
        return next((first for first, time_ns in self.times if time_ns >= start_ns), self.count)


class StoredStreams(msgspec.Struct, frozen=True):
    """The pure store: its streams by id; `generation` is appended to, all before `oldest` are gone; `letters`: of each
    group and stream, what is behind the last message that has a dead letter."""

    by_id: Map[str, StoredStream] = Map()
    generation: int = 0
    oldest: int = 0
    letters: Map[str, int] = Map()


class StreamStore:
    """The pure service: streams by id, messages counted, payloads left to the driver."""

    name = SERVICE

    def __init__(self, shards: int = 4) -> None:
        self.shards = shards

    def initial(self) -> StoredStreams:
        """No streams."""
        return StoredStreams()

    def apply(self, state: StoredStreams, request: Request, now_ns: int) -> tuple[StoredStreams, tuple[Answer, ...]]:
        """The store's meaning; `now_ns` is its own time."""
        match request:
            case ListStreams():
                return state, (self._list(state, request),)
            case Measure(n, streams):
                known = ((stream, state.by_id.get(stream)) for stream in sorted(streams))
                sizes = tuple(StreamSize(stream, one.count, one.ended) for stream, one in known if one is not None)
                return state, (Measured(n, sizes, state.oldest),)
            case Fetch(n, slices):
                return state, (Fetched(n, tuple(self._batch(state, one) for one in slices)),)
            case Append():
                return self._append(state, request, now_ns)
            case StoreLetter():
                return self._store_letter(state, request, now_ns)
            case Rotate(n):
                ended = state.by_id.mutate()
                for stream, stored in in_order(state.by_id):
                    ended[stream] = replace(stored, ended=True)
                state = replace(state, by_id=ended.finish(), generation=state.generation + 1)
                return state, (Rotated(n, state.generation),)
            case Drop(n, oldest):
                oldest = min(oldest, state.generation)
                kept = Map({id_: stored for id_, stored in in_order(state.by_id) if stored.generation >= oldest})
                state = replace(state, by_id=kept, oldest=max(oldest, state.oldest))
                return state, (Dropped(n, state.oldest),)
        raise TypeError(f"{self.name} does not take a {type(request).__name__}")

    @staticmethod
    def _list(state: StoredStreams, request: ListStreams) -> StreamsListed:
        found = tuple(
            StreamInfo(
                stream,
                stored.shard,
                stored.generation,
                stored.first_since(request.start_ns),
                stored.count,
                stored.ended,
            )
            for stream, stored in in_order(state.by_id)
            if stream > request.after and matches(request.filter, stored.topic)
        )
        more = len(found) > request.limit
        return StreamsListed(request.n, found[: request.limit], more, state.generation, state.oldest)

    def _append(self, state: StoredStreams, request: Append, now_ns: int) -> tuple[StoredStreams, tuple[Answer, ...]]:
        topic, generation = request.topic, state.generation
        stream = stream_id(topic, self.shards, generation)
        stored = state.by_id.get(stream) or StoredStream(topic, shard_of(topic, self.shards), generation)
        first, times = stored.count, (*stored.times, (stored.count, now_ns))
        grown = replace(stored, count=first + request.count, times=times)
        state = replace(state, by_id=state.by_id.set(stream, grown))
        return state, (Appended(request.n, stream, first, first + request.count - 1),)

    def _store_letter(
        self, state: StoredStreams, request: StoreLetter, now_ns: int
    ) -> tuple[StoredStreams, tuple[Answer, ...]]:
        letter = request.letter
        key = record_key(letter.group, letter.filter, letter.stream)
        if letter.offset < state.letters.get(key, 0):
            return state, (LetterStored(request.n, False),)
        state, _ = self._append(state, Append(request.n, request.topic, 1), now_ns)
        return replace(state, letters=state.letters.set(key, letter.offset + 1)), (LetterStored(request.n, True),)

    @staticmethod
    def _batch(state: StoredStreams, one: Slice) -> MessageBatch:
        stored = state.by_id.get(one.stream)
        count = 0 if stored is None else stored.count
        last = min(count, one.first + one.limit) - 1
        ended = stored is not None and stored.ended and last + 1 == count
        return MessageBatch(one.stream, one.grant, one.first, max(last, one.first - 1), ended, count)


def shard_of(topic: str, shards: int) -> int:
    """The shard of a topic: FNV-1a over its bytes, the same in every process."""
    value = 0xCBF29CE484222325
    for byte in topic.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value % shards


def stream_id(topic: str, shards: int, generation: int) -> str:
    """`SHARD.GENERATION/TOPIC`."""
    return f"{shard_of(topic, shards)}.{generation}/{topic}"


def rank_of(stream: str) -> tuple[int, int]:
    """(shard, generation) of the stream with this id."""
    shard, _, generation = stream.partition("/")[0].partition(".")
    return int(shard), int(generation)
