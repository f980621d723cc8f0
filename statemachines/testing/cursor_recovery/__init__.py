"""What cursor recovery gives to tests: a shared memory, and processes that write into it meanwhile."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from statemachines.cursor_recovery import memory
from statemachines.cursor_recovery.cursor import Taken
from statemachines.cursor_recovery.memory import Memory, Queue
from statemachines.cursor_recovery.reader import Read, new_reader
from statemachines.cursor_recovery.writer import Write, new_writer
from statemachines.kernel import Event
from statemachines.testing.protocol import Environment, TestProtocol, Values

VALUES = Values(
    choices={Queue: (Queue(), Queue(capacity=32, read_cursors=1, write_cursors=1), Queue(threshold_only=True))}
)

QUEUE = Queue(capacity=64)
WORDS = (memory.READ_HEAD, memory.WRITE_HEAD, *(
    word for cursor in (0, 1) for pool in ("read", "write")
    for word in (memory.state_of(pool, cursor), memory.position_of(pool, cursor))
), memory.lock_of(0), memory.lock_of(1), memory.incarnation_of(1))  # fmt: skip
WRITTEN = (0, 1, 16, 64, memory.NONE, memory.token(1, 1, 0), memory.token(0, 1, 10**12), memory.token(1, 2, 10**12))


def other_processes(record: Any) -> st.SearchStrategy[memory.Store]:
    """Somebody else writes a word."""
    return st.builds(memory.Store, st.sampled_from(WORDS), st.sampled_from(WRITTEN))


def takes_with_a_word(record: Any, event: Event) -> bool:
    """Nobody takes a cursor by leaving it free."""
    return not isinstance(event, Taken) or event.word != memory.FREE


TESTING = TestProtocol(
    values=VALUES,
    environments={
        "writer": Environment(
            start=st.just(new_writer(QUEUE, 0, 1)),
            services={memory.SERVICE: Memory(QUEUE)},
            others={memory.SERVICE: other_processes},
            opening=(lambda record: Write(b"some text"),),
        ),
        "reader": Environment(
            start=st.just(new_reader(QUEUE, 0, 1)),
            services={memory.SERVICE: Memory(QUEUE)},
            others={memory.SERVICE: other_processes},
            opening=(lambda record: Read(),),
        ),
        "cursor": Environment(legal=takes_with_a_word),
    },
    searches="statemachines.testing.cursor_recovery.searches:SEARCHES",
    roles="statemachines.testing.cursor_recovery.conformance:ROLES",
)
