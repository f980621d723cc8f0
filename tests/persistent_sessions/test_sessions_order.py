"""What a row costs that waits for older ones of other writers (spec/persistent_sessions/clauses.md)."""

from __future__ import annotations

import tracemalloc

from blocked_rows import block, complete, release, row
from session_world import TIMES, flow

from statemachines.kernel import Map
from statemachines.persistent_sessions.resume_record import NORMAL, ResumeRecord
from statemachines.persistent_sessions.waiting_messages import add_take, release_rows
from statemachines.persistent_sessions.writer_flow_record import DONE, Take


def count_bytes(work, *given):
    """The memory that this takes at most while it works."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work(*given)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_PS_520_a_row_costs_the_same_however_many_are_blocked():
    """A copy of all the others would take 80 000 bytes."""
    flows = Map({name: flow(status=DONE, n=1) for name in ("a", "b")})
    record = ResumeRecord("owner~1", "c", 7, TIMES, status=NORMAL, flows=flows)
    record = complete(block(record, a=[row(number, 1000 + number) for number in range(1, 10_001)]), a=11_000)
    more = Take("a", 1, (row(10_001, 12_000),))
    count_bytes(add_take, record, more, None)
    assert count_bytes(add_take, record, more, None) < 8_000
    assert release(record)[1] == []
    assert count_bytes(release_rows, record) < 8_000, "nothing goes"
    one_goes = complete(record, b=1_001)
    assert release(one_goes)[1] == [("a", [1_001])]
    assert count_bytes(release_rows, one_goes) < 8_000, "one row goes"
