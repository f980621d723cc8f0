"""Real words mean what the pure service says, and words that no machine wrote are named."""

import pytest
from hypothesis import strategies as st

from statemachines.cursor_recovery.memory import (
    LOST,
    CompareAndSwap,
    CopyIn,
    CopyOut,
    Load,
    Queue,
    Store,
    incarnation_of,
    messages_of,
    position_of,
    state_of,
    token,
)
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


def test_what_is_no_request_of_memory_is_refused(access):
    with pytest.raises(TypeError):
        access.perform(None)
