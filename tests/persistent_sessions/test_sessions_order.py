"""One order of commits for the rows of several writers, clause by clause (spec/persistent_sessions/clauses.md)."""

from __future__ import annotations

import tracemalloc

from msgspec.structs import replace
from session_world import TIMES, Hand, marker, names, queued

from statemachines.kernel import Map
from statemachines.persistent_sessions.blocked_queue import BlockedQueue, BlockedRow
from statemachines.persistent_sessions.message import Live, Publish
from statemachines.persistent_sessions.request import (
    EpochRows,
    Fence,
    PendingRead,
    Polled,
    ReadPending,
    SessionLoaded,
    SessionState,
    StateCommitted,
    SubscribedLive,
)
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.resume_actions import settle
from statemachines.persistent_sessions.resume_record import CatchUpDue, ResumeRecord, ResumeSession
from statemachines.persistent_sessions.row_merge import add_take, may_pass, release_rows
from statemachines.persistent_sessions.writer_flow_record import (
    BEHIND,
    DONE,
    FENCING,
    FINALIZING,
    SYNCING,
    BlockRows,
    Take,
)

WIDE = replace(TIMES, receive_maximum=100)


def row(number, stored_ns, qos=1):
    """A row that was committed then."""
    return replace(queued(number, message=f"m{stored_ns}"), stored_ns=stored_ns, qos=qos)


def found(writer, *rows, epoch=1, markers=()):
    return EpochRows(writer, epoch, rows, markers)


def live(writer, number, stored_ns, since_ns, epoch=1):
    return Live("s", writer, epoch, row(number, stored_ns), since_ns)


def subscribed(*pending, complete_ns=0, writers=("a", "b"), seen_ns=50, times=WIDE):
    return Hand(
        RESUME, ResumeRecord("owner~1", "c", 7, times),
        ResumeSession(), SessionLoaded("s", SessionState()), PendingRead(pending, complete_ns, complete_ns),
        SubscribedLive(writers, (), seen_ns),
    )  # fmt: skip


def normal(*writers):
    """Each writer has stored nothing before time 50."""
    one = subscribed(complete_ns=50, writers=writers)
    for writer in writers:
        one.feed(marker(1, writer=writer))
        one.feed(Polled(writer, (found(writer, markers=((7, 1),)),), 50))
    assert one.status == "normal"
    return one


def sent(effects):
    return [one.message for one in effects if isinstance(one, Publish)]


def test_PS_480_rows_that_were_stored_go_out_in_the_order_of_their_commits():
    one = subscribed(found("a", row(1, 11), row(2, 14)), found("b", row(1, 12), row(2, 13), row(3, 15)), complete_ns=50)
    assert sent(one.feed(StateCommitted())) == ["m11"]
    assert sent(one.feed(StateCommitted())) == ["m12", "m13", "m14", "m15"]
    assert not one.record.blocked_rows


def test_PS_480_what_another_writer_may_have_before_it_is_waited_for():
    """Of one writer a page is read, and more is stored: what another has stored behind that page waits."""
    one = subscribed(found("a", row(1, 11)), found("b", row(1, 13)), complete_ns=11)
    assert sent(one.feed(StateCommitted())) == ["m11"]
    assert [held.queued for held in one.record.blocked_rows["b"]] == [row(1, 13)]
    assert BlockRows("b", 1, (row(1, 13),)) in [
        step.event for step in one.delegated if step.fsm.lines[step.row].clause == "PS-480"
    ]
    one.feed(marker(3, writer="a"))
    effects = one.feed(Polled("a", (found("a", row(2, 12), markers=((7, 1),)),), 50))
    assert effects[0].change.taken["a"] == (1, 2)
    assert sent(one.feed(StateCommitted())) == ["m12"]
    assert sent(one.feed(StateCommitted())) == ["m13"]


def test_PS_481_a_live_row_waits_for_what_its_publisher_stored_elsewhere():
    one = normal("a", "b")
    assert names(one.feed(live("b", 1, 61, since_ns=50))) == ["CommitState"], "nothing older is missing"
    one.feed(StateCommitted())
    assert one.feed(live("b", 2, 63, since_ns=62)) == [ReadPending("s", "", WIDE.page)]
    assert one.feed(live("b", 3, 64, since_ns=50)) == [], "the order of its writer"
    effects = one.feed(PendingRead((found("a", row(1, 60)),), 65, 65))
    assert (effects[0].change.taken["a"], one.record.reads) == ((1, 1), False)
    assert sent(one.feed(StateCommitted())) == ["m60"]
    assert sent(one.feed(StateCommitted())) == ["m63", "m64"]
    assert one.feed(live("a", 1, 60, since_ns=50)) == [], "it was taken before it came"


def test_PS_482_a_writer_that_nothing_was_known_of_is_read_as_well():
    one = normal("b")
    assert one.feed(live("b", 1, 62, since_ns=61)) == [ReadPending("s", "", WIDE.page)]
    effects = one.feed(PendingRead((found("a", row(1, 60)), found("b", row(1, 62))), 65, 65))
    assert names(effects) == ["MarkerWanted", "CommitState"]
    assert sent(one.feed(StateCommitted())) == ["m60"]
    assert sent(one.feed(StateCommitted())) == ["m62"]


def test_PS_482_a_replica_that_shows_too_little_is_read_again_a_moment_later():
    one = normal("a", "b")
    one.feed(live("b", 1, 62, since_ns=61))
    assert one.feed(PendingRead((), 55, 55)) == []
    assert one.feed(CatchUpDue()) == [ReadPending("s", "", WIDE.page)]
    assert names(one.feed(PendingRead((found("a", row(1, 60)),), 65, 65))) == ["CommitState"]


def test_PS_483_rows_of_a_newer_epoch_fence_the_one_that_is_followed():
    one = normal("a", "b")
    one.feed(live("b", 1, 62, since_ns=61))
    effects = one.feed(PendingRead((found("a", row(1, 60), epoch=2),), 65, 65))
    assert effects == [Fence("s", "a", (1, 0), 2, 7, 2, WIDE.page)]
    flows = one.record.flows
    assert (flows["a"].status, flows["b"].status) == (FENCING, DONE)
    assert one.record.blocked_rows["b"]


def blocked(record, **queues):
    """With these rows that wait for all that is older, where of each writer all is taken that was stored before 100."""
    flows = Map({name: replace(flow, complete_ns=100) for name, flow in record.flows.items()})
    rows = {name: BlockedQueue().add(BlockedRow(1, one, one.stored_ns) for one in queue)
            for name, queue in queues.items()}  # fmt: skip
    return replace(record, flows=flows, known_ns=20_000, blocked_rows=Map(rows))


def complete(record, **until_ns):
    flows = record.flows
    for writer, complete_ns in until_ns.items():
        flows = flows.set(writer, replace(flows[writer], complete_ns=complete_ns))
    return replace(record, flows=flows)


def released(record):
    after, takes = release_rows(record)
    return after, [(take.writer, [one.stored_ns for one in take.rows]) for take in takes]


def test_PS_520_of_the_rows_that_nothing_blocks_the_oldest_goes_first():
    """Of the third writer something may be missing that is older than both rows."""
    record = blocked(normal("a", "b", "c").record, a=[row(2, 150), row(3, 170)], b=[row(2, 140), row(3, 160)])
    record = complete(record, a=170, b=160)
    assert released(record) == (record, [])
    record, takes = released(complete(record, c=145))
    assert takes == [("b", [140])]
    assert released(complete(record, c=200))[1] == [("a", [150]), ("b", [160])], "of b more may come before 170"


def test_PS_520_a_row_that_comes_is_merged_with_those_that_are_blocked():
    """Nothing older is missing, but an older row is blocked until this row comes: it completes its writer."""
    record = complete(blocked(normal("a", "b").record, a=[row(2, 150)]), a=200)
    newer = Take("b", 1, (row(2, 160),))
    assert not may_pass(record, newer, None)
    record = complete(add_take(record, newer, None), b=160)
    assert released(record)[1] == [("a", [150]), ("b", [160])]
    assert may_pass(replace(record, blocked_rows=Map()), newer, None)


def test_PS_520_a_writer_is_complete_up_to_its_blocked_rows():
    record = blocked(normal("a", "b").record, a=[row(1, 150)])
    (holds,) = (each.holds for each in RESUME.invariants if each.clause == "PS-520")
    assert not holds(record)
    assert holds(complete(record, a=150))


def count_bytes(work, *given):
    """The memory that this takes at most while it works."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work(*given)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_PS_196_who_has_room_only_since_rows_were_released_reads_on_at_once():
    """`b` sends what it kept; a row of `a`, which went through the same turn before `b` did, waits for it no longer."""
    record = complete(blocked(normal("a", "b").record, a=[row(2, 150, qos=0)]), a=155)
    a = replace(record.flows["a"], status=BEHIND, k=3, seen=True, taken=2)
    b = replace(record.flows["b"], status=FINALIZING, k=2, seen=True, taken=1, buffer=(row(2, 160, qos=0),))
    record = replace(record, flows=record.flows.set("a", a).set("b", b))
    after, _, _ = settle(record, (record, (), ()), 0)
    assert [one.holds(after) for one in RESUME.invariants if one.clause == "PS-196"] == [True]
    assert after.flows["a"].status is SYNCING


def test_PS_520_a_row_costs_the_same_however_many_are_blocked():
    """A copy of all the others would take 80 000 bytes."""
    record = blocked(normal("a", "b").record, a=[row(number, 1000 + number) for number in range(1, 10_001)])
    record = complete(record, a=11_000)
    more = Take("a", 1, (row(10_001, 12_000),))
    count_bytes(add_take, record, more, None)
    assert count_bytes(add_take, record, more, None) < 8_000
    assert released(record)[1] == []
    assert count_bytes(release_rows, record) < 8_000, "nothing goes"
    one_goes = complete(record, b=1_001)
    assert released(one_goes)[1] == [("a", [1_001])]
    assert count_bytes(release_rows, one_goes) < 8_000, "one row goes"
