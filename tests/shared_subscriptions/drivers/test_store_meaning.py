"""The stores of every database mean what the pure services mean: equal answers to equal requests at the same times."""

from __future__ import annotations

import asyncio
from functools import partial

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions import group_store, names, stream_store

MOVES_MAX = 25
WALL = st.integers(0, 60)
"""What the wall clock says at a move: it may stand still or go back."""

TRIALS = settings(deadline=None, max_examples=30)


class Clock:
    """A wall clock that a test sets, and the store's time that must follow from it."""

    def __init__(self) -> None:
        self.wall = 0
        self.last = 0

    def __call__(self) -> int:
        return self.wall

    def read(self) -> int:
        return max(self.wall, self.last)

    def next(self) -> int:
        return max(self.wall, self.last + 1)


# -- group store ----------------------------------------------------------------------------------------------------

NUMBERS = st.integers(0, 2**63 - 1)
CLAIMS = st.builds(group_store.Claim, st.sampled_from(["", "l~1/1"]), st.integers(1, 9), st.booleans())
PROPERTIES = st.builds(group_store.Properties, st.integers(0, 9), st.just(1), st.just(2), st.just(3), st.booleans())
ANYTHING = NUMBERS | CLAIMS | PROPERTIES
RECORDS = {
    "": ANYTHING,
    "/1.1/g/#:claim": CLAIMS,
    "/1.1/g/#:properties": PROPERTIES,
    "/1.1/g/#:progress:a": NUMBERS,
    "/1.1/g/#:progress:b": NUMBERS,
    "/1.1/g/#:progress:\U0010ffff": NUMBERS,
    "gé": ANYTHING,
    "h\0x": ANYTHING,
}
"""Records that are what their key says, if it says anything: others are refused (SS-225)."""

KEYS = st.sampled_from(list(RECORDS))
PUTS = st.lists(KEYS.flatmap(lambda key: st.tuples(st.just(key), RECORDS[key] | st.none())), max_size=3)
COMMITS = st.tuples(st.just("commit"), PUTS, st.lists(KEYS, max_size=2), st.sampled_from(["held", "held", "stale"]))
READS = st.tuples(st.just("read"), st.lists(KEYS, max_size=3))
PREFIXES = st.sampled_from(["", "g", "/1.1/g/#:", "/1.1/g/#:progress:", "/1.1/g/#:progress:\U0010ffff", "x"])
SCANS = st.tuples(st.just("scan"), PREFIXES, KEYS, st.integers(0, 3))


def group_request(n, move, state):
    match move:
        case ("commit", put, keys, kind):
            expect = [(key, state.get(key)) for key in keys]
            if kind == "stale" and keys:
                expect[-1] = (keys[-1], group_store.StoredRecord(3, 1))
            return group_store.Commit(n, tuple(expect), tuple(put))
        case ("read", keys):
            return group_store.Read(n, tuple(keys))
        case ("scan", prefix, after, limit):
            return group_store.Scan(n, prefix, after, limit)


@TRIALS
@given(moves=st.lists(st.tuples(WALL, COMMITS | READS | SCANS), max_size=MOVES_MAX))
def test_the_group_store_means_what_the_pure_one_means(database, moves):
    async def run():
        clock = Clock()
        store, pure = database.groups(clock), group_store.GroupStore()
        state = pure.initial()
        for n, (clock.wall, move) in enumerate(moves):
            request = group_request(n, move, state)
            now = clock.next() if isinstance(request, group_store.Commit) else clock.read()
            state, expected = pure.apply(state, request, now)
            answers = await store.ask(request)
            assert answers == expected
            if isinstance(answers[0], group_store.Committed):
                clock.last = now
        await store.close()

    database.empty()
    asyncio.run(run())


# -- stream store ---------------------------------------------------------------------------------------------------

TOPICS = ["a", "a/b", "a/b/c", "a/c", "ab", "b", "b/b", "$sys/a", "é", "a/\U0010ffff", "a//"]
FILTERS = ["#", "+", "+/#", "a", "a/#", "a/+", "a/b/#", "+/b", "a/+/c", "ab", "nothing", "$sys/#", "a/\U0010ffff"]
STREAMS = st.sampled_from([stream_store.stream_id(topic, 4, generation) for generation in (0, 1) for topic in TOPICS])
APPENDS = st.tuples(st.just("append"), st.sampled_from(TOPICS), st.integers(0, 4))
LISTS = st.tuples(st.just("list"), st.sampled_from(FILTERS), WALL, st.just("") | STREAMS, st.integers(0, 4))
FETCHES = st.tuples(st.just("fetch"), st.lists(st.tuples(STREAMS, st.integers(0, 6), st.integers(0, 9)), max_size=3))
MEASURES = st.tuples(st.just("measure"), st.lists(STREAMS, max_size=4, unique=True))
ENDS = st.tuples(st.just("end"), STREAMS)
ROTATIONS = st.tuples(st.just("rotate"))
DROPS = st.tuples(st.just("drop"), st.integers(0, 3))


MOVES = APPENDS | LISTS | MEASURES | FETCHES | ENDS | ROTATIONS | DROPS

THREE = [stream_store.stream_id(topic, 4, 0) for topic in "bac"]


class Streams:
    """Both stores side by side, and the payloads that were appended."""

    def __init__(self, database):
        self.clock = Clock()
        self.real = database.streams(self.clock)
        self.pure = stream_store.StreamStore()
        self.state = self.pure.initial()
        self.contents = {}

    async def append(self, n, topic, count):
        known = self.state.by_id.get(stream_store.stream_id(topic, 4, self.state.generation))
        if known is not None and known.ended:
            return
        payloads = [f"{topic}{n}.{number}".encode() for number in range(count)]
        self.clock.last = self.clock.next()
        self.state, (expected,) = self.pure.apply(self.state, stream_store.Append(0, topic, count), self.clock.last)
        assert await self.real.append(topic, payloads) == expected
        self.contents.setdefault(expected.stream, []).extend(payloads)

    async def list(self, n, topic_filter, start_ns, after, limit):
        request = stream_store.ListStreams(n, topic_filter, start_ns, after, limit)
        _, expected = self.pure.apply(self.state, request, 0)
        assert await self.real.ask(request) == expected

    async def fetch(self, n, slices):
        request = stream_store.Fetch(
            n, tuple(stream_store.Slice(stream, 7, first, limit) for stream, first, limit in slices)
        )
        _, expected = self.pure.apply(self.state, request, 0)
        answer, payloads = await self.real.fetch(request)
        assert (answer,) == expected
        assert await self.real.ask(request) == expected
        found = [[payload for payload, _ in one] for one in payloads]
        assert found == [self.contents.get(stream, [])[first : first + limit] for stream, first, limit in slices]

    async def measure(self, n, streams):
        request = stream_store.Measure(n, tuple(streams))
        _, expected = self.pure.apply(self.state, request, 0)
        assert await self.real.ask(request) == expected

    async def end(self, n, stream):
        streams = self.state.by_id
        if stream in streams:
            ended = replace(streams[stream], ended=True)
            self.state = replace(self.state, by_id=streams.set(stream, ended))
            await self.real.end(stream)

    async def rotate(self, n):
        self.state, (rotated,) = self.pure.apply(self.state, stream_store.Rotate(n), 0)
        assert await self.real.rotate() == rotated.generation

    async def drop(self, n, oldest):
        self.state, (dropped,) = self.pure.apply(self.state, stream_store.Drop(n, oldest), 0)
        assert await self.real.drop(oldest) == dropped.oldest
        gone = [stream for stream in self.contents if stream not in self.state.by_id]
        for stream in gone:
            del self.contents[stream]


@TRIALS
@given(
    moves=st.lists(st.tuples(WALL, APPENDS | LISTS | MEASURES | FETCHES | ENDS | ROTATIONS | DROPS), max_size=MOVES_MAX)
)
@example(moves=[(1, ("append", "b", 2)), (1, ("append", "a", 1)), (1, ("measure", THREE))])
@example(moves=[(50, ("append", "a", 2)), (9, ("append", "a", 1)), (60, ("list", "a", 51, "", 1))])
def test_the_stream_store_means_what_the_pure_one_means(database, moves):
    async def run():
        both = Streams(database)
        for n, (wall, (kind, *arguments)) in enumerate(moves):
            both.clock.wall = wall
            await getattr(both, kind)(n, *arguments)
        await both.real.close()

    database.empty()
    asyncio.run(run())


async def test_SS_414_what_a_group_has_not_read_is_not_dropped(database):
    """Read by nobody, in part, wholly; of a group that begins later, and of one that is being destroyed."""
    database.empty()
    groups, streams = database.groups(), database.streams()
    key = partial(group_store.record_key, "g", "a/#")
    declared = group_store.Properties(0, 1_000, 2_000, 3_000)

    async def put(name, value):
        (old,) = (await groups.ask(group_store.Read(1, (key(name),))))[0].records
        await groups.ask(group_store.Commit(1, ((key(name), old),), ((key(name), value),)))

    async def find_error():
        try:
            return await streams.drop(9)
        except ConfigurationError as error:
            return str(error).partition("read: ")[2].partition(";")[0]

    stream = (await streams.append("a/b", [b"1", b"2", b"3"])).stream
    await streams.append("c", [b"4"])
    await put(names.PROPERTIES, declared)
    assert await streams.drop(9) == 0, "the current generation is never dropped"
    await streams.rotate()
    assert await find_error() == f"3 of {stream} by $shared/g/a/#"
    await put(f"{names.PROGRESS}{stream}", 1)
    assert await find_error() == f"2 of {stream} by $shared/g/a/#"
    await put(f"{names.PROGRESS}{stream}", 3)
    assert await find_error() == 1
    await streams.append("a/b", [b"5"])
    await streams.rotate()
    assert (await find_error()).startswith("1 of ")
    await put(names.PROPERTIES, replace(declared, destroyed=True))
    assert await find_error() == 2
    await streams.append("a/b", [b"6"])
    await put(names.PROPERTIES, declared)
    await streams.rotate()
    assert (await find_error()).startswith("1 of ")
    assert await streams.drop(9, force=True) == 3
    await groups.close()
    await streams.close()
