"""The collector, clause by clause (spec/persistent_sessions/clauses.md), each rule alone, and stopped anywhere."""

from __future__ import annotations

import pytest
from session_world import Hand

from statemachines.kernel import Ask, ConfigurationError, InvariantViolated, Map, Node
from statemachines.persistent_sessions.collector import COLLECTOR
from statemachines.persistent_sessions.collector_record import (
    Collect,
    CollectorRecord,
    CollectorStatus,
    MessageLost,
    RoundDue,
    RoundEnded,
)
from statemachines.persistent_sessions.collector_request import (
    ClientForgotten,
    ClientsRead,
    CollectFailed,
    DeletePage,
    ForgetClient,
    MessageDeletion,
    MessagesRead,
    Only,
    PageDeleted,
    ReadClients,
    ReadMessages,
    ReadRows,
    RowDeletion,
    RowKey,
    RowsRead,
    StoredClient,
    StoredMessage,
    StoredRow,
    Tag,
)
from statemachines.persistent_sessions.graces import Graces
from statemachines.persistent_sessions.times import Times
from statemachines.testing.persistent_sessions.garbage import OLD_MS, AgedRow, Garbage, StoreTables, of_every_kind

HOUR_MS = 3_600_000
GRACES = Graces(retention_ms=HOUR_MS, page=2)
ROW = RowKey("s", "w", 1, 1)
MARK = RowKey("s", "w", 1, 1, Tag.DELIVERED)
MARKER = RowKey("s", "w", 1, 0, Tag.MARKER, 7, 1)
GONE = RowKey("s", tag=Tag.ABANDONED)


def rows_go(*found):
    return DeletePage(tuple(RowDeletion(key, only) for key, only in found))


def messages_go(*found):
    return DeletePage(messages=tuple(MessageDeletion(message, only) for message, only in found))


def collector(*events, page=2):
    return Hand(COLLECTOR, CollectorRecord(Graces(retention_ms=HOUR_MS, page=page)), *events)


def collect(tables, page=2, deletions=None, record=None):
    """A round over these tables, or so many deletions of one; what is left, and the collector."""
    one, store = collector(page=page), Garbage(tables)
    one.record = record or one.record
    one.feed(Collect())
    while one.status != "idle":
        asked = [effect.request for effect in one.effects if isinstance(effect, Ask)]
        assert len(asked) == 1
        if isinstance(asked[0], DeletePage | ForgetClient):
            if deletions == 0:
                return tables, one
            deletions = None if deletions is None else deletions - 1
        tables, answers = store.apply(tables, asked[0], 0)
        one.feed(answers[0])
    return tables, one


def left(rows, messages=None, **given):
    """What of these is left after two rounds: keys, and messages."""
    tables = StoreTables(tuple(rows), Map(messages or {}), **given)
    for _ in range(2):
        tables, _ = collect(tables)
    return [row.key for row in tables.rows], sorted(tables.messages)


def test_PS_80_a_round_begins_when_it_is_due_or_wanted_and_once():
    for event in (RoundDue(), Collect()):
        one = collector()
        assert one.feed(event) == [ReadClients("", 2, 5_000)]
        assert one.status == "finding"
        assert one.feed(event) == []


def test_PS_81_rows_of_an_abandoned_session_go_whatever_they_are():
    rows = [AgedRow(one) for one in (GONE, ROW, RowKey("s", "w", 1, 2, Tag.DELIVERED), MARKER)]
    assert left(rows)[0] == [GONE]
    assert left(rows[1:2])[0] == [ROW]


def test_PS_81_what_says_that_a_session_is_abandoned_goes_last_and_after_its_grace():
    assert left([AgedRow(GONE, age_ms=299_999)])[0] == [GONE]
    assert left([AgedRow(GONE, age_ms=300_000)])[0] == []
    one = collector(Collect(), ClientsRead(()))
    assert one.feed(RowsRead((StoredRow(GONE, OLD_MS, True, alone=True),))) == [rows_go((GONE, Only.ALONE))]
    assert collector(Collect(), ClientsRead(())).feed(RowsRead((StoredRow(GONE, OLD_MS, True),))) == [
        ReadRows(GONE, 2, waiting=False)
    ]


def test_PS_81_a_pair_goes_the_undelivered_row_first():
    tables = StoreTables((AgedRow(ROW), AgedRow(MARK)))
    first, _ = collect(tables, page=1, deletions=1)
    assert [row.key for row in first.rows] == [MARK]
    assert collect(tables, deletions=1)[0].rows == ()
    one = collector(Collect(), ClientsRead(()))
    asked = one.feed(RowsRead((StoredRow(ROW, 0, paired=True), StoredRow(MARK, 0, paired=True))))
    assert asked == [rows_go((ROW, Only.ALWAYS), (MARK, Only.UNPAIRED))]


def test_PS_81_a_row_that_the_state_has_taken_goes_and_one_that_it_has_not_stays():
    rows = [AgedRow(RowKey("s", "w", epoch, number), age_ms=OLD_MS) for epoch, number in ((1, 9), (2, 3), (2, 4))]
    assert left(rows, taken=Map({("s", "w"): (2, 3)}))[0] == [rows[-1].key]


def test_PS_81_a_lone_mark_goes_after_the_grace_of_messages_and_a_marker_after_its_own():
    assert left([AgedRow(MARK, age_ms=59_999), AgedRow(MARKER, age_ms=59_999)])[0] == [MARK, MARKER]
    assert left([AgedRow(MARK, age_ms=60_000), AgedRow(MARKER, age_ms=60_000)])[0] == []


def test_PS_82_page_by_page_then_messages_and_again_from_the_first():
    one = collector(Collect(), ClientsRead(()))
    young = tuple(StoredRow(RowKey("s", "w", 1, number), 0) for number in (1, 2))
    assert one.feed(RowsRead(young)) == [ReadRows(young[1].key, 2, waiting=False)]
    assert one.feed(RowsRead(())) == [ReadMessages("", 2, 60_000)]
    assert one.feed(MessagesRead((StoredMessage("m", 0),), "m")) == [ReadMessages("m", 2, 60_000)]
    assert one.feed(MessagesRead(())) == [RoundEnded(0, 0, True)]
    assert one.feed(RoundDue()) == [ReadClients("", 2, 5_000)]
    assert one.feed(ClientsRead(())) == [ReadRows(None, 2, waiting=False)]
    assert one.feed(RowsRead(())) == [ReadMessages("", 2, 60_000)]


def test_PS_82_clients_are_read_page_by_page_then_rows_and_again_from_the_first():
    one = collector(Collect())
    assert one.feed(ClientsRead((StoredClient("a", False), StoredClient("b", False)))) == [ReadClients("b", 2, 5_000)]
    assert one.feed(ClientsRead(())) == [ReadRows(None, 2, waiting=False)]
    one.feed(CollectFailed())
    assert one.feed(Collect()) == [ReadClients("", 2, 5_000)]


def test_PS_120_clients_that_are_over_are_forgotten_and_others_are_not():
    one = collector(Collect())
    found = (StoredClient("a", True), StoredClient("b", False), StoredClient("c", True))
    assert one.feed(ClientsRead(found)) == [ForgetClient("a", 5_000)]
    assert one.status == "forgetting"
    tables = StoreTables(clients=Map({"a": "s1", "b": "s2", "c": ""}), over=("a", "c"))
    tables, one = collect(tables)
    assert dict(tables.clients) == {"b": "s2"}
    assert [row.key for row in tables.rows] == [RowKey("s1", tag=Tag.ABANDONED)]
    assert one.record.clients == 2


def test_PS_121_one_client_after_the_other_and_who_was_forgotten_is_counted():
    one = collector(Collect(), ClientsRead((StoredClient("a", True), StoredClient("b", True))))
    assert one.feed(ClientForgotten(True)) == [ForgetClient("b", 5_000)]
    assert one.feed(ClientForgotten(False)) == [ReadClients("b", 2, 5_000)]
    for event in (ClientsRead(()), RowsRead(())):
        one.feed(event)
    assert one.feed(MessagesRead(())) == [RoundEnded(0, 0, True, 1)]
    for event in (Collect(), ClientsRead(()), RowsRead(())):
        one.feed(event)
    assert one.feed(MessagesRead(())) == [RoundEnded(0, 0, True, 0)], "each round counts its own"


def test_PS_86_PS_121_a_round_that_fails_while_it_forgets_goes_on_behind_its_page():
    one = collector(Collect(), ClientsRead((StoredClient("a", True), StoredClient("b", True))))
    assert one.feed(CollectFailed()) == [RoundEnded(0, 0, False)]
    assert one.feed(Collect()) == [ReadClients("b", 2, 5_000)]


def test_PS_83_a_page_goes_at_once_and_what_was_done_is_counted():
    one = collector(Collect(), ClientsRead(()))
    old = tuple(StoredRow(RowKey("s", "w", 1, number), 0, paired=True) for number in (1, 2))
    assert one.feed(RowsRead(old)) == [rows_go(*((row.key, Only.ALWAYS) for row in old))]
    assert one.feed(PageDeleted(2)) == [ReadRows(old[1].key, 2, waiting=False)]
    assert one.record.rows == 2


def test_PS_84_messages_without_references_go_after_the_grace_and_what_a_state_holds_stays():
    rows = [AgedRow(ROW, "referenced")]
    ages = {"referenced": 60_000, "young": 59_999, "old": 60_000, "held": OLD_MS, "late": 3_599_999}
    assert left(rows, ages, held=("held",))[1] == ["held", "referenced", "young"]
    one = collector(Collect(), ClientsRead(()), RowsRead(()))
    assert one.feed(MessagesRead((StoredMessage("m", 60_000),), "m")) == [messages_go(("m", Only.UNREFERENCED))]


def test_PS_240_what_is_over_goes_after_the_grace_and_its_rows_stay():
    keys = [RowKey("s", "w", 1, number) for number in range(1, 6)]
    names = ("over", "young", "lasts", "held", "old")
    ages = {"over": 60_000, "young": 59_999, "lasts": 60_000, "held": OLD_MS, "old": OLD_MS, "unreferenced": 59_999}
    rows = [AgedRow(key, name) for key, name in zip(keys, names, strict=True)]
    expired = ("over", "young", "held", "old", "unreferenced")
    assert left(rows, ages, held=("held",), expired=expired) == (keys, ["held", "lasts", "unreferenced", "young"])


@pytest.mark.parametrize(
    ("found", "only"),
    [
        (StoredMessage("m", 60_000, True, False, True), Only.OVER),
        (StoredMessage("m", 59_999, True, False, True), None),
        (StoredMessage("m", 60_000, True, True, True), None),
        (StoredMessage("m", 60_000, True), None),
        (StoredMessage("m", 3_600_000, True, False, True), Only.UNHELD),
    ],
)
def test_PS_240_whether_it_is_over_is_asked_again_and_nothing_is_told_as_loss(found, only):
    one = collector(Collect(), ClientsRead(()), RowsRead(()))
    assert one.feed(MessagesRead((found,), "m")) == (
        [ReadMessages("m", 2, 60_000)] if only is None else [messages_go(("m", only))]
    )
    if only is Only.OVER:
        tables = StoreTables((AgedRow(ROW, "m"),), Map({"m": 60_000}), expired=("m",))
        after, answers = Garbage(tables).apply(tables, messages_go(("m", only)), 0)
        assert (answers, after.rows) == ((PageDeleted(messages=(("m", 0),)),), tables.rows)
        assert one.feed(*answers) == [ReadMessages("m", 2, 60_000)]


def test_PS_84_PS_85_what_retention_removes_is_told_as_loss():
    rows = (AgedRow(ROW, "m"), AgedRow(RowKey("t", "w", 1, 1), "m"), AgedRow(RowKey("u", "w", 1, 1), "m"))
    tables = StoreTables(rows, Map({"m": 3_600_000, "n": 3_600_000}), Map({("u", "w"): (1, 1)}))
    one = collector(Collect(), ClientsRead(()), RowsRead(()))
    asked = messages_go(("m", Only.UNHELD), ("n", Only.UNHELD))
    old = MessagesRead((StoredMessage("m", 3_600_000, True), StoredMessage("n", 3_600_000)), "n")
    assert one.feed(old) == [asked]
    _, answers = Garbage(tables).apply(tables, asked, 0)
    assert answers == (PageDeleted(messages=(("m", 2), ("n", 0))),)
    answered = PageDeleted(messages=(("m", 2), ("n", 1)))
    assert one.feed(answered) == [MessageLost("m", 2), MessageLost("n", 1), ReadMessages("n", 2, 60_000)]
    assert one.feed(MessagesRead(())) == [RoundEnded(0, 2, True)]


def test_PS_86_a_round_that_fails_ends_and_the_next_goes_on_behind_its_page():
    one = collector(Collect(), ClientsRead(()))
    old = (StoredRow(ROW, 0, paired=True), StoredRow(MARK, 0, paired=True))
    one.feed(RowsRead(old))
    one.feed(PageDeleted(1))
    assert one.feed(CollectFailed()) == [RoundEnded(1, 0, False)]
    assert one.feed(CollectFailed()) == []
    one.feed(RoundDue())
    assert one.feed(ClientsRead(())) == [ReadRows(MARK, 2, waiting=False)]
    begun = (Collect(), ClientsRead(()))
    for events in (begun[:1], begun, (*begun, RowsRead(())), (*begun, RowsRead(()), MessagesRead(()), Collect())):
        assert isinstance(collector(*events).feed(CollectFailed())[0], RoundEnded)


def test_PS_87_an_answer_that_nobody_waits_for_is_dropped():
    reading = collector(Collect(), ClientsRead(()))
    for event in (MessagesRead(()), PageDeleted(1), ClientForgotten(True)):
        assert reading.feed(event) == []
    assert reading.status == "reading"
    for event in (RowsRead(()), MessagesRead(()), PageDeleted(1), ClientForgotten(True)):
        assert collector().feed(event) == []
    assert collector(Collect(), ClientsRead(()), RowsRead(())).feed(RowsRead(())) == []


def test_PS_88_a_collector_knows_clients_while_it_forgets():
    broken = CollectorRecord(GRACES, CollectorStatus.FORGETTING)
    with pytest.raises(InvariantViolated):
        Node(COLLECTOR, broken, name="c~1", now_ns=0, check=True).feed(RoundDue(), 0)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"page": 0}, "page"),
        ({"round_ms": 0}, "round_ms"),
        ({"marker_ms": 10_000}, "marker_ms"),
        ({"times": Times(resume_ms=12_000), "marker_ms": 12_000}, "marker_ms"),
        ({"message_ms": 60_000, "retention_ms": 60_000}, "message_ms"),
    ],
)
def test_PS_89_graces_that_cannot_be_are_told(given, key):
    with pytest.raises(ConfigurationError, match=key):
        Graces(**given)


# -- stopped anywhere -----------------------------------------------------------------------------------------------


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
            tables, _ = collect(of_every_kind(), page, stop)
            tables, _ = collect(
                tables, page, record=CollectorRecord(Graces(retention_ms=HOUR_MS, page=page), after=begin)
            )
            for _ in range(3):
                tables, _ = collect(tables, page)
            assert {row.key for row in tables.rows} - {spare} == kept
            assert set(tables.messages) == {"m1", "m3", "m6"}
            assert dict(tables.clients) == {"c1": "s1"}
