"""The short way and the declared machines: the same accesses, the same outcome, the same memory.

Both begin with the same bytes; before the same access the same words are changed by somebody else, or the process dies.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statemachines.cursor_recovery.block import commit_word
from statemachines.cursor_recovery.memory import FREE, NONE, TICK_NS, CopyIn, token
from statemachines.drivers.cursor_recovery import CircularQueue, DamagedQueue, Instruments

NOW = 10**6 * TICK_NS
THRESHOLD_NS = 2 * 10**9
LIVING, DEAD = 40, 41
YOUNG = token(LIVING, 1, NOW - 1000)
AGED = token(LIVING, 1, NOW - 2 * THRESHOLD_NS)
STALE = token(DEAD, 1, NOW - 2 * THRESHOLD_NS)
REBORN = token(LIVING, 2, NOW - 2 * THRESHOLD_NS)
STATES = (FREE, YOUNG, AGED, STALE, REBORN, 5, token(LIVING, 1, NOW + 10**11))
PLACES = (NONE, 0, 20, 40, 100, 120, 128, 140, 160, 3)
HEADS = (0, 20, 40, 100, 120, 128, 140, 148, 160, 180, 400, 7)
CELLS = (*(word for at in (0, 20, 40, 100, 120) for word in commit_word(at)), 0, 4, 2**31 + 4, 2**31 + 9, 99)


class Crash(Exception):
    pass


class Track:
    """The hook: what was accessed; disturbs before some accesses, and crashes before one."""

    def __init__(self):
        self.begin(None, {}, None, None)

    def begin(self, queue, changes, crash, cells):
        self.queue, self.changes, self.crash, self.cells = queue, changes, crash, cells
        self.seen = []

    def __call__(self, request):
        if self.queue is None:
            return None
        number = len(self.seen)
        self.seen.append(request)
        for address, value in self.changes.get(number, ()):
            write(self.queue, address, value)
        if number == self.crash:
            if isinstance(request, CopyIn) and self.cells is not None:
                self.crash += 1
                return self.cells
            raise Crash
        return None


def write(queue, address, value):
    """Somebody else writes a word, or a cell."""
    words = queue._here.words
    if address.startswith("data/"):
        words.segment.words.store_u32(words.layout.data + int(address[5:]), value)
    else:
        words.plain(address).store(value)


class Twin:
    """One of two queues of one shape, with its track."""

    def __init__(self, name, kind):
        self.track = Track()
        hook = None if kind == "plain" else self.track
        instruments = Instruments(hook=hook, declared=kind == "declared", clock=lambda: NOW)
        self.queue = CircularQueue.create(
            f"{name}-{kind}", capacity=128, read_cursors=2, write_cursors=2, threshold=2.0, instruments=instruments
        )
        self.here = self.queue._here
        self.here.access.is_locked = lambda slot: slot in (0, LIVING)
        self.begin = self.queue._segment.layout.offset_of("read_head")
        write(self.queue, f"incarnation/{LIVING}", 1)
        self.blank = self.memory()

    def memory(self):
        return bytes(self.queue._segment.mapped[self.begin :])

    def play(self, setting, call, changes=None, crash=None, cells=None):
        """What came of it, the accesses, and the memory afterwards."""
        self.queue._segment.mapped[self.begin :] = self.blank
        for payload, messages in setting["written"]:
            self.here.write(payload, messages)
        for _ in range(setting["read"]):
            self.here.read()
        for address, value in setting["words"]:
            write(self.queue, address, value)
        self.track.begin(self.queue, changes or {}, crash, cells)
        try:
            before = self.here.skipped_bytes
            done = self.here.write(*call) if call else self.here.read()
            came = (done, self.here.skipped_bytes - before)
        except (Crash, DamagedQueue) as error:
            came = (type(error), getattr(error, "found", None))
        finally:
            seen = self.track.seen
            self.track.begin(None, {}, None, None)
        return came, seen, self.memory()

    def close(self):
        self.queue.__exit__()


@pytest.fixture
def twins(name):
    twins = {kind: Twin(name, kind) for kind in ("declared", "short", "plain")}
    yield twins
    for twin in twins.values():
        twin.close()


def compare(twins, setting, call, **disturbed):
    declared = twins["declared"].play(setting, call, **disturbed)
    short = twins["short"].play(setting, call, **disturbed)
    if declared[0][0] is DamagedQueue:
        # The short way looks into a word only where that is in its way, and into both heads at once.
        assert short[1][: len(declared[1])] == declared[1]
        return 0
    assert short[1] == declared[1]
    assert short[0] == declared[0]
    assert short[2] == declared[2]
    if not disturbed:
        came, _, memory = twins["plain"].play(setting, call)
        assert (came, memory) == (declared[0], declared[2])
    return len(declared[1])


PLAIN = {"written": (), "read": 0, "words": ()}
SETTINGS = {
    "empty": PLAIN,
    "one block": PLAIN | {"written": ((b"AAAA", 1),)},
    "several messages": PLAIN | {"written": ((b"AAAABBBB", 2),)},
    "empty message": PLAIN | {"written": ((b"", 1),)},
    "full": PLAIN | {"written": ((b"AAAA", 1),) * 6},
    "header across the end": PLAIN | {"written": ((b"AAAA", 1),) * 6, "read": 6},
    "data across the end": PLAIN | {"written": ((b"A" * 80, 1),), "read": 1},
    "header to the very end": PLAIN | {"written": ((b"A" * 96, 1),), "read": 1},
    "young cursors": PLAIN
    | {
        "written": ((b"AAAA", 1),),
        "words": (("read/0/state", YOUNG), ("write/0/state", YOUNG), ("write/0/position", 20)),
    },
    "stale cursors": PLAIN
    | {
        "written": ((b"AAAA", 1),) * 6,
        "words": (("read/1/state", STALE), ("read/1/position", 0), ("write/1/state", STALE), ("write/1/position", 0)),
    },
    "a block that is none": PLAIN | {"written": ((b"AAAA", 1), (b"BBBB", 1)), "words": (("data/8", 7),)},
    "broken data": PLAIN | {"written": ((b"AAAA", 1), (b"BBBB", 1)), "words": (("data/16", 7),)},
}  # fmt: skip
CALLS = {"read": None, "write": (b"CCCCcc", 1), "write nothing": (b"", 1), "write many": (b"CCCCCCcc", 2)}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_both_make_the_same_accesses_and_leave_the_same_with_a_crash_before_each(twins, setting, call):
    accesses = compare(twins, SETTINGS[setting], CALLS[call])
    for crash in range(accesses):
        compare(twins, SETTINGS[setting], CALLS[call], crash=crash)
        compare(twins, SETTINGS[setting], CALLS[call], crash=crash, cells=1)


WORDS = st.one_of(
    st.tuples(
        st.sampled_from([f"{pool}/{i}/state" for pool in ("read", "write") for i in (0, 1)]), st.sampled_from(STATES)
    ),
    st.tuples(
        st.sampled_from([f"{pool}/{i}/position" for pool in ("read", "write") for i in (0, 1)]), st.sampled_from(PLACES)
    ),
    st.tuples(st.sampled_from(["read_head", "write_head"]), st.sampled_from(HEADS)),
    st.tuples(st.integers(0, 31).map(lambda cell: f"data/{4 * cell}"), st.sampled_from(CELLS)),
)
BLOCKS = st.tuples(st.binary(max_size=40), st.integers(1, 2))
SETTING = st.fixed_dictionaries(
    {
        "written": st.lists(BLOCKS, max_size=6),
        "read": st.integers(0, 6),
        "words": st.lists(WORDS, max_size=3),
    }
)


@settings(max_examples=200)
@given(
    setting=SETTING,
    call=st.one_of(st.none(), BLOCKS),
    changes=st.dictionaries(st.integers(0, 30), st.lists(WORDS, min_size=1, max_size=2), max_size=3),
    crash=st.one_of(st.none(), st.integers(0, 40)),
)
def check(twins, setting, call, changes, crash):
    compare(twins, setting, call, changes=changes, crash=crash)
