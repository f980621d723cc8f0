"""A writer's flow at a resuming session, clause by clause (spec/persistent_sessions/clauses.md)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from session_world import TIMES, Hand, flow, live, marker, names, queued, rows

from statemachines.kernel import CancelTimer, LocalProtocolError, SetTimer
from statemachines.persistent_sessions.message import MarkerWanted
from statemachines.persistent_sessions.request import EpochRows, Fence, FencedRows, Polled, ReadPending
from statemachines.persistent_sessions.writer_flow import WRITER_FLOW
from statemachines.persistent_sessions.writer_flow_record import (
    BEHIND,
    DONE,
    DRAINING,
    FENCING,
    FINALIZING,
    NEW,
    SYNCING,
    WAITING,
    AskAgain,
    Begin,
    LinkLost,
    MarkerTimeout,
    PollDue,
    Room,
    Settled,
    Starve,
    Take,
    WriterDown,
    WriterUp,
)


def poll(taken=0):
    return ReadPending("s", "w", TIMES.page, (1, taken))


def fence(epoch, taken, below, n):
    return Fence("s", "w", (epoch, taken), below, 7, n, TIMES.page)


KEEPING = (BEHIND, SYNCING, FINALIZING)


def wanted(n):
    return MarkerWanted("s", "owner~1", 7, n)


def by(status, **given):
    return Hand(WRITER_FLOW, flow(status=status, **given))


def read(*numbers, markers=(), epoch=1):
    return Polled("w", (EpochRows("w", epoch, rows(*numbers), markers),))


def fenced(n, below, *found):
    return FencedRows("w", below, n, tuple(EpochRows("w", epoch, rows(*numbers)) for epoch, numbers in found))


def test_PS_20_a_marker_is_asked_for_until_it_comes():
    one = Hand(WRITER_FLOW, flow())
    with pytest.raises(LocalProtocolError):
        one.feed(Settled())
    assert one.feed(Begin()) == [wanted(1)]
    assert {effect.timer for effect in one.effects if isinstance(effect, SetTimer)} == {"repeat", "marker"}
    assert one.feed(AskAgain("w")) == [wanted(1)]
    with pytest.raises(LocalProtocolError):
        one.feed(Begin())


def test_PS_21_PS_23_what_comes_before_the_marker_is_dropped_and_remembered():
    one = by(WAITING, n=1, taken=1)
    assert one.feed(live(3)) == []
    assert (one.record.heard, one.record.buffer, one.status) == (3, (), "waiting")
    assert one.feed(marker(3)) == [wanted(2)]
    assert (one.status, one.record.heard) == ("waiting", 0)
    assert by(WAITING, n=1, taken=3).feed(marker(3)) == [wanted(2)]


def test_PS_22_the_marker_starts_reading_and_may_have_been_seen_before():
    one = by(WAITING, n=1)
    one.feed(read(markers=((7, 2),)))
    assert not one.record.seen
    one.feed(read(markers=((7, 1),)))
    assert one.record.seen
    assert one.feed(marker(2, token=6)) == []
    assert one.feed(marker(1)) == [poll()]
    assert (one.status, one.record.k) == ("syncing", 1)
    assert one.feed(read()) == []
    assert one.status == "finalizing"


@pytest.mark.parametrize("status", [BEHIND, SYNCING, FINALIZING])
def test_PS_24_PS_28_behind_the_marker_live_messages_are_kept_without_a_gap(status):
    one = by(status, n=1, k=2, seen=True, taken=1 if status is FINALIZING else 0)
    for number in (1, 2, 3, 2, 4):
        one.feed(live(number))
    assert [kept.number for kept in one.record.buffer] == [2, 3, 4]
    full = Hand(WRITER_FLOW, one.record)
    assert full.feed(live(5)) == [wanted(2)]
    assert (full.status, full.record.buffer, full.record.k) == ("waiting", (), 0)
    gap = by(status, n=1, k=2, seen=True, taken=1 if status is FINALIZING else 0)
    assert gap.feed(live(3)) == [wanted(2)]


def test_PS_25_rows_below_the_marker_are_taken_without_a_hole_until_all_are():
    one = by(SYNCING, n=1, k=4)
    assert one.feed(read(3, markers=((7, 1),))) == []
    assert (one.status, one.record.taken) == ("syncing", 0)
    assert any(isinstance(effect, SetTimer) and effect.timer == "poll" for effect in one.effects)
    assert one.feed(PollDue("w")) == [poll()]
    assert one.feed(read(1, 2, 3, 4, 5)) == [Take("w", 1, rows(1, 2, 3))]
    assert (one.status, one.record.taken) == ("finalizing", 3)
    unseen = by(SYNCING, n=1, k=2)
    unseen.feed(read(1))
    assert (unseen.status, unseen.record.taken) == ("behind", 1)
    elsewhere = by(SYNCING, n=1, k=2)
    assert elsewhere.feed(read(1, markers=((7, 1),), epoch=2)) == []
    assert elsewhere.status == "syncing"


def test_PS_193_what_is_below_the_marker_is_read_a_page_at_a_time_when_there_is_room():
    one = by(SYNCING, n=1, k=4)
    assert one.feed(read(1, 3, markers=((7, 1),))) == [Take("w", 1, rows(1))]
    assert (one.status, one.record.taken, one.record.seen) == ("behind", 1, True)
    assert CancelTimer("marker", "w") in one.effects, "its writer has done what is asked of it"
    for late in (read(2), PollDue("w"), MarkerTimeout("w"), AskAgain("w"), Settled(), WriterUp("w"), fenced(1, 2)):
        assert one.feed(late) == []
    assert (one.status, one.record.taken) == ("behind", 1)
    one.feed(live(4))
    assert by(BEHIND, n=1, k=4, taken=1).feed(Room(1)) == [replace(poll(1), rows=1)], "as many as there is room for"
    assert one.feed(Room(TIMES.page)) == [poll(1)]
    assert one.status == "syncing"
    assert any(isinstance(effect, SetTimer) and effect.timer == "marker" for effect in one.effects)
    assert one.feed(Room(TIMES.page)) == [], "one at a time"
    assert one.feed(read(2)) == [Take("w", 1, rows(2))]
    one.feed(Room(TIMES.page))
    assert one.feed(read(3, 4)) == [Take("w", 1, rows(3))]
    assert (one.status, one.record.buffer) == ("finalizing", rows(4))
    for status in (WAITING, FINALIZING, FENCING, DONE):
        given = {"k": 1, "seen": True} if status is FINALIZING else {}
        other = by(status, n=1, **given)
        assert other.feed(Room(TIMES.page)) == []
        assert other.record.status is status


def test_PS_194_a_fenced_writer_is_read_a_page_at_a_time_when_there_is_room():
    one = by(FENCING, n=2, taken=1, gone=True)
    page = replace(fenced(2, 4, (1, (2, 3)), (2, (1, 2))), more=True)
    assert one.feed(replace(page, n=1)) == [], "of another fence"
    assert one.feed(page) == [Take("w", 1, rows(2, 3)), Take("w", 2, rows(1, 2))]
    assert (one.status, one.record.epoch, one.record.taken, one.record.gone) == ("draining", 2, 2, True)
    for late in (page, read(3), live(3, epoch=2), marker(3, epoch=2), PollDue("w"), MarkerTimeout("w"), Settled()):
        assert one.feed(late) == []
    assert one.status == "draining"
    few = by(DRAINING, n=2, taken=2, epoch=2, below=4)
    assert few.feed(Room(1)) == [replace(fence(2, 2, 4, 2), rows=1)], "as many as there is room for"
    assert one.feed(Room(TIMES.page)) == [fence(2, 2, 4, 2)]
    assert one.feed(Room(TIMES.page)) == [], "one at a time"
    assert one.feed(fenced(2, 4, (2, (3,)), (3, (1,)))) == [Take("w", 2, rows(3)), Take("w", 3, rows(1))]
    assert (one.status, one.record.epoch, one.record.taken, one.record.below) == ("done", 4, 0, 0)


def test_PS_33_PS_194_what_is_heard_while_a_fenced_writer_is_drained():
    for event in (live(1, epoch=2), marker(1, epoch=2), WriterUp("w"), LinkLost("w")):
        one = by(DRAINING, n=2, below=2, gone=True)
        assert one.feed(event) == []
        assert one.feed(Room(TIMES.page)) == [fence(1, 0, 2, 2)]
        assert one.feed(fenced(2, 2)) == [wanted(3)]
    dies = by(DRAINING, n=2, below=2, taken=3)
    assert dies.feed(WriterDown("w")) == [fence(1, 3, 0, 3)]
    assert dies.status == "fencing"


def test_PS_26_what_was_kept_follows_when_all_is_committed():
    one = by(FINALIZING, n=1, k=3, taken=2, seen=True, buffer=rows(3, 4))
    assert one.feed(Settled()) == [Take("w", 1, rows(3, 4))]
    assert (one.status, one.record.taken, one.record.buffer) == ("done", 4, ())
    assert one.feed(Settled()) == []


def test_PS_27_PS_28_PS_29_done_the_next_is_taken_at_once_and_a_gap_starts_anew():
    one = by(DONE, n=1, taken=4)
    assert one.feed(live(5)) == [Take("w", 1, rows(5))]
    assert one.feed(live(5)) == []
    assert one.feed(marker(3)) == []
    assert one.feed(live(7)) == [wanted(2)]
    assert one.status == "waiting"
    assert one.feed(marker(9, n=1)) == []
    assert by(DONE, epoch=2, taken=1).feed(live(2, epoch=1)) == []


@pytest.mark.parametrize("status", [BEHIND, SYNCING, FINALIZING, DONE])
def test_PS_28_a_broken_path_asks_for_a_fresh_marker(status):
    one = by(status, n=1, k=2 if status in KEEPING else 0, taken=int(status is not BEHIND), seen=status is FINALIZING)
    assert one.feed(LinkLost("w")) == [wanted(2)]
    assert {effect.timer for effect in one.effects if isinstance(effect, SetTimer)} == {"repeat", "marker"}
    assert one.status == "waiting"


def test_PS_330_a_path_that_breaks_again_and_again_leaves_its_writer_no_more_time():
    """Else a writer that is heard never is never fenced: each message that it loses breaks the path once more."""
    one = by(WAITING, n=1, heard=3)
    assert one.feed(LinkLost("w")) == [wanted(2)]
    assert (one.status, one.record.heard) == ("waiting", 0)
    assert not [effect for effect in one.effects if isinstance(effect, SetTimer | CancelTimer)]
    assert one.feed(MarkerTimeout("w")) == [fence(1, 0, 0, 3)]


def test_PS_28_a_writer_that_begins_anew_is_asked_for_a_marker():
    assert by(DONE, n=1).feed(WriterUp("w")) == [wanted(2)]
    for status in (WAITING, SYNCING, FINALIZING):
        given = {"k": 1, "seen": True} if status is not WAITING else {}
        one = by(status, n=1, **given)
        assert one.feed(WriterUp("w")) == []
        assert one.record.status is status


@pytest.mark.parametrize("status", [WAITING, BEHIND, SYNCING, FINALIZING, DONE])
def test_PS_30_a_dead_or_silent_writer_is_fenced_above_whatever_epoch_it_has(status):
    given = {"k": 2, "seen": True, "buffer": rows(2)} if status in KEEPING else {}
    one = by(status, n=1, taken=1, epoch=3, **given)
    assert one.feed(WriterDown("w")) == [fence(3, 1, 0, 2)]
    assert (one.status, one.record.buffer, one.record.gone) == ("fencing", (), True)
    if status in (WAITING, SYNCING):
        assert by(status, n=1, epoch=3, taken=1, **given).feed(MarkerTimeout("w")) == [fence(3, 1, 0, 2)]


@pytest.mark.parametrize("event", [live(1, epoch=4), marker(1, epoch=4)], ids=["live", "marker"])
@pytest.mark.parametrize("status", [WAITING, BEHIND, SYNCING, FINALIZING, DONE])
def test_PS_31_a_newer_epoch_makes_those_below_it_complete(status, event):
    given = {"k": 2, "seen": True} if status in KEEPING else {}
    assert by(status, n=1, taken=1, **given).feed(event) == [fence(1, 1, 4, 2)]


def test_PS_32_the_rows_of_a_fenced_epoch_are_taken_and_the_next_begins():
    one = by(FENCING, n=2, taken=1, gone=True)
    assert one.feed(fenced(2, 3, (2, (1, 2)), (1, (1, 2)))) == [Take("w", 1, rows(2)), Take("w", 2, rows(1, 2))]
    assert (one.status, one.record.epoch, one.record.taken) == ("done", 3, 0)
    there = by(FENCING, n=2, taken=1)
    assert names(there.feed(fenced(2, 2, (1, (2,))))) == ["Take", "MarkerWanted"]
    assert (there.status, there.record.epoch, there.record.n) == ("waiting", 2, 3)


@pytest.mark.parametrize("status", [*KEEPING, DONE])
def test_PS_199_a_flow_that_hears_of_no_room_is_behind_and_has_kept_nothing(status):
    given = {"k": 2, "taken": 1 if status is FINALIZING else 0, "seen": status is FINALIZING, "buffer": rows(2, 3)}
    one = by(status, n=1, **({"taken": 3} if status is DONE else given))
    assert one.feed(Starve(1, 4)) == []
    assert (one.status, one.record.k, one.record.seen, one.record.buffer) == ("behind", 4, True, ())
    timers = {effect.timer for effect in one.effects if isinstance(effect, CancelTimer)}
    assert timers == ({"marker", "poll"} if status is SYNCING else set())
    one.feed(live(4))
    assert one.record.buffer == rows(4)


@pytest.mark.parametrize("status", [*KEEPING, DONE])
@pytest.mark.parametrize("cut", [Starve(2, 4), Starve(1, 0), Starve(1, 3)])
def test_PS_199_a_cut_that_does_not_lie_behind_what_was_taken_is_refused(status, cut):
    one = by(status, n=1, k=4, taken=3, seen=status is FINALIZING)
    with pytest.raises(LocalProtocolError):
        one.feed(cut)
    assert (one.status, one.record.k) == (status.value, 4)


def test_PS_199_what_is_below_that_number_is_read_without_a_marker():
    one = by(DONE, n=1, taken=1)
    one.feed(Starve(1, 2))
    for number in (2, 3, 4):
        one.feed(live(number))
    one.feed(Starve(1, 5))
    one.feed(live(5))
    assert one.feed(Room(TIMES.page)) == [poll(1)]
    assert one.feed(read(2, 3)) == [Take("w", 1, rows(2, 3))]
    assert one.status == "behind"
    assert one.feed(Room(TIMES.page)) == [poll(3)]
    assert one.feed(read(4, 5)) == [Take("w", 1, rows(4))]
    assert one.status == "finalizing"
    assert one.feed(Settled()) == [Take("w", 1, rows(5))]
    assert (one.status, one.record.taken) == ("done", 5)


@pytest.mark.parametrize("status", [NEW, WAITING, FENCING, DRAINING])
def test_PS_199_who_takes_nothing_is_not_told(status):
    with pytest.raises(LocalProtocolError):
        by(status).feed(Starve(1, 1))


def test_PS_33_what_is_heard_while_a_fence_is_under_way():
    for event in (live(1, epoch=2), marker(1, epoch=2), WriterUp("w"), LinkLost("w")):
        one = by(FENCING, n=2, gone=True)
        assert one.feed(event) == []
        assert one.feed(fenced(2, 2)) == [wanted(3)]
    late = by(FENCING, n=2, gone=True)
    late.feed(live(1, epoch=2))
    late.feed(fenced(2, 3))
    assert late.status == "done"
    dies = by(FENCING, n=2)
    assert dies.feed(WriterDown("w")) == [fence(1, 0, 0, 3)]
    assert dies.feed(fenced(2, 2, (1, (1,)))) == []
    assert dies.feed(fenced(3, 3, (1, (1,)))) == [Take("w", 1, rows(1))]


def test_PS_34_PS_35_what_has_lost_its_meaning_does_nothing():
    for status in (WAITING, FINALIZING, FENCING, DONE):
        given = {"k": 1, "seen": True} if status is FINALIZING else {}
        events = [read(1), PollDue("w")]
        events += [fenced(9, 9, (1, (1,)))]
        events += [AskAgain("w")] if status is not WAITING else []
        events += [MarkerTimeout("w")] if status is not WAITING else []
        for event in events:
            one = by(status, n=1, **given)
            before = one.record
            assert one.feed(event) == []
            assert one.record == before


def test_PS_36_PS_37_the_invariants_of_the_cut():
    kept, cut = WRITER_FLOW.invariants
    good = flow(status=SYNCING, k=3, taken=2, buffer=rows(3, 4))
    assert kept.holds(good)
    assert cut.holds(good)
    assert not kept.holds(replace(good, buffer=rows(4)))
    assert not kept.holds(replace(good, buffer=rows(3, 4, 5, 6)))
    assert not kept.holds(replace(good, status=WAITING))
    assert not kept.holds(replace(good, status=DONE))
    assert not cut.holds(replace(good, taken=3))
    assert not cut.holds(replace(good, status=FINALIZING))
    assert not cut.holds(replace(good, status=FINALIZING, seen=True, taken=1))
    assert queued(1).number == 1
