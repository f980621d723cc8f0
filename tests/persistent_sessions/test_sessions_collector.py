"""A collector that stops anywhere leaves what one leaves that does not (spec/persistent_sessions/clauses.md)."""

from __future__ import annotations

import pytest

from statemachines.kernel import Ask, Node
from statemachines.persistent_sessions.collector import COLLECTOR
from statemachines.persistent_sessions.collector_record import Collect, CollectorRecord, CollectorStatus
from statemachines.persistent_sessions.collector_request import DeletePage, ForgetClient, RowKey, Tag
from statemachines.persistent_sessions.graces import Graces
from statemachines.testing.persistent_sessions.garbage import Garbage, of_every_kind


def collect(tables, page, deletions=-1, begin=None):
    """What is left after a round, or so many deletions of one."""
    record = CollectorRecord(Graces(retention_ms=3_600_000, page=page), after=begin)
    node, store = Node(COLLECTOR, record, name="collector", now_ns=0, check=True), Garbage(tables)
    effects = node.feed(Collect(), 0)
    while node.record.status is not CollectorStatus.IDLE:
        (asked,) = [one.request for one in effects if isinstance(one, Ask)]
        if isinstance(asked, DeletePage | ForgetClient):
            if deletions == 0:
                break
            deletions -= 1
        tables, (answer,) = store.apply(tables, asked, 0)
        effects = node.feed(answer, 0)
    return tables


@pytest.mark.parametrize("page", [1, 2, 100])
def test_KEPT_VANISH_a_collector_that_stops_after_any_deletion_leaves_what_one_leaves_that_does_not(page):
    """What it comes to in the end does not depend on where it stopped, nor on where the next begins."""
    # the mark of a pair that was not read with its row (a page ends between them, or the collector stopped there) is
    # a lone one, and waits for its grace; it refers to no message any more
    spare = RowKey("s1", "w1", 1, 2, Tag.DELIVERED)
    kept = {RowKey("s1", "w2", 1, 0, Tag.MARKER, 1, 2), RowKey("s2", tag=Tag.ABANDONED)}
    kept |= {RowKey("s1", "w1", 1, number) for number in (4, 5, 6)}
    for stop in range(20):
        for begin in (None, RowKey("s1", "w1", 1, 2), RowKey("t")):
            tables = collect(collect(of_every_kind(), page, stop), page, begin=begin)
            for _ in range(3):
                tables = collect(tables, page)
            assert {row.key for row in tables.rows} - {spare} == kept
            assert set(tables.messages) == {"m1", "m3", "m6"}
            assert dict(tables.clients) == {"c1": "s1"}
