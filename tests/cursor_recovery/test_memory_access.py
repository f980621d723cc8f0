"""Real words mean what the pure service says, and words that no machine wrote are named."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statemachines.cursor_recovery.memory import (
    LOST,
    READ_HEAD,
    WRITE_HEAD,
    CompareAndSwap,
    CopyIn,
    CopyOut,
    Load,
    Loaded,
    Memory,
    Queue,
    Store,
    incarnation_of,
    lock_of,
    messages_of,
    position_of,
    state_of,
    token,
)
from statemachines.drivers.cursor_recovery import DamagedQueue
from statemachines.drivers.cursor_recovery.memory_access import MappedMemory, MemoryAccess
from statemachines.drivers.cursor_recovery.segment import attach_segment, create_segment, path_of

QUEUE = Queue(capacity=64)
NOW = 10**12
TOKEN = token(3, 1, NOW)
WORDS = (LOST, state_of("read", 0), state_of("write", 1), messages_of(1), incarnation_of(255))
REQUESTS = st.one_of(
    st.builds(Load, st.sampled_from((*WORDS, position_of("write", 0), "data/60", "data/0"))),
    st.builds(Store, st.sampled_from(WORDS), st.sampled_from((0, TOKEN, 2**63))),
    st.builds(Store, st.sampled_from(("data/60", "data/0", "data/4")), st.integers(0, 2**32 - 1)),
    st.builds(CompareAndSwap, st.sampled_from(WORDS), st.sampled_from((0, TOKEN)), st.sampled_from((0, TOKEN))),
    st.builds(CopyIn, st.integers(0, 40).map(lambda cells: 4 * cells), st.binary(max_size=64)),
    st.builds(CopyOut, st.integers(0, 40).map(lambda cells: 4 * cells), st.integers(0, 64)),
)


@pytest.fixture
def segment(name):
    create_segment(path_of(name), QUEUE)
    segment = attach_segment(path_of(name))
    yield segment
    segment.close()


@pytest.fixture
def access(segment):
    return MemoryAccess(MappedMemory(segment), lambda slot: slot == 7, lambda: NOW)


def test_each_access_is_answered_as_the_pure_service_answers(name):
    @settings(max_examples=100)
    @given(st.lists(REQUESTS, max_size=30))
    def check(requests):
        path = path_of(name)
        create_segment(path, QUEUE)
        segment = attach_segment(path)
        try:
            access = MemoryAccess(MappedMemory(segment), lambda slot: False, lambda: NOW)
            memory = Memory(QUEUE)
            state = memory.initial()
            for request in requests:
                state, (expected,) = memory.apply(state, clean(request), NOW)
                assert access.perform(clean(request)) == expected
            segment.check_guards()
        finally:
            segment.close()
            path.unlink()

    def clean(request):
        """The pure service fills a last cell that is not whole with zeros; a real copy leaves what was there."""
        return CopyIn(request.position, request.data.ljust(-(-len(request.data) // 4) * 4, b"\0")[:64]) if isinstance(
            request, CopyIn
        ) else request  # fmt: skip

    check()


def test_a_lock_is_asked_of_the_system(access):
    assert access.perform(Load(lock_of(7))) == Loaded(1, NOW)
    assert access.perform(Load(lock_of(8))) == Loaded(0, NOW)


def test_what_is_no_request_of_memory_is_refused(access):
    with pytest.raises(TypeError):
        access.perform(None)


@pytest.mark.parametrize(
    ("address", "value"),
    [
        (READ_HEAD, 3),
        (READ_HEAD, 2**63),
        (position_of("write", 0), 7),
        (state_of("read", 0), 1),
        (state_of("read", 0), 2**63 - 1),
        (state_of("write", 1), token(1, 1, NOW + 2 * 10**9)),
    ],
)
def test_a_word_that_no_machine_wrote_is_named(access, address, value):
    access.words.plain(address).store(value)
    with pytest.raises(DamagedQueue, match=address):
        access.perform(Load(address))


@pytest.mark.parametrize("written", [96, 164])
def test_heads_that_cannot_be_so_are_named(access, written):
    access.words.plain(READ_HEAD).store(100)
    access.words.plain(WRITE_HEAD).store(written + 4)
    access.perform(Load(READ_HEAD))
    if written == 164:
        with pytest.raises(DamagedQueue, match="write_head = 168, read_head = 100"):
            access.perform(Load(WRITE_HEAD))
    else:
        assert access.perform(Load(WRITE_HEAD)).value == 100
        access.words.plain(WRITE_HEAD).store(96)
        with pytest.raises(DamagedQueue, match="not behind"):
            access.perform(Load(WRITE_HEAD))


def test_who_slept_between_the_heads_is_told_what_is_there(access):
    access.perform(Load(READ_HEAD))
    access.words.plain(READ_HEAD).store(1000)
    access.words.plain(WRITE_HEAD).store(1064)
    assert access.perform(Load(WRITE_HEAD)).value == 1064


def test_a_hook_sees_every_access_before_it_is_made(segment):
    seen = []
    words = MappedMemory(segment, seen.append)
    access = MemoryAccess(words, lambda slot: False)
    requests = [
        Load(READ_HEAD), Store(LOST, 4), CompareAndSwap(LOST, 4, 5), Load(lock_of(3)), Load("data/8"),
        Store("data/8", 9), CopyIn(8, b"abcd"), CopyOut(8, 4),
    ]  # fmt: skip
    for request in requests:
        before = len(seen)
        access.perform(request)
        assert seen[before:] == [request]


def test_a_hook_may_cut_a_copy(segment):
    cells = iter([2, None])
    memory = []

    def hook(request):
        memory.append(bytes(segment.mapped[segment.layout.data :][:16]))
        return next(cells)

    MappedMemory(segment, hook).copy_in(60, b"aaaabbbbcccc")
    assert memory[1][:8] == b"bbbb" + bytes(4)
    assert segment.mapped[segment.layout.data :][:8] == b"bbbbcccc"
    assert segment.mapped[segment.layout.data + 60 :][:4] == b"aaaa"
    segment.check_guards()
