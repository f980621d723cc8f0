"""One order of commits for the rows of several writers, clause by clause (spec/persistent_sessions/clauses.md)."""

from __future__ import annotations

from msgspec.structs import replace
from session_world import TIMES, Hand, marker, names, queued

from statemachines.kernel import Map
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
from statemachines.persistent_sessions.resume_record import BlockedRow, CatchUpDue, ResumeRecord, ResumeSession
from statemachines.persistent_sessions.row_merge import release_rows
from statemachines.persistent_sessions.writer_flow_record import DONE, FENCING

WIDE = replace(TIMES, receive_maximum=100)


def row(number, stored_ns):
    """A row that was committed then."""
    return replace(queued(number, message=f"m{stored_ns}"), stored_ns=stored_ns)


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


def test_PS_480_an_older_row_that_is_blocked_itself_blocks_a_newer_one():
    """Of writer b something may be missing that is older than the row of a; that row is older than the one of b."""
    record = normal("a", "b").record
    flows = record.flows.set("a", replace(record.flows["a"], complete_ns=200))
    blocked = Map({"a": (BlockedRow(1, row(2, 100), 100),), "b": (BlockedRow(1, row(2, 150), 150),)})
    record = replace(record, flows=flows, known_ns=200, blocked_rows=blocked)
    assert release_rows(record) == (record, ())
    flows = flows.set("b", replace(flows["b"], complete_ns=200))
    _, takes = release_rows(replace(record, flows=flows))
    assert [(take.writer, [one.stored_ns for one in take.rows]) for take in takes] == [("a", [100]), ("b", [150])]
