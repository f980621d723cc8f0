"""The resume, clause by clause (spec/persistent_sessions/clauses.md), and the scenarios of its stages."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from session_world import TIMES, Hand, live, marker, names, queued, rows

from statemachines.kernel import ConfigurationError, LocalProtocolError, Map, SetTimer
from statemachines.persistent_sessions.in_flight_record import SENT, InFlightRecord
from statemachines.persistent_sessions.message import MarkerWanted, Puback, Publish
from statemachines.persistent_sessions.request import (
    CommitState,
    EpochRows,
    Fence,
    FencedRows,
    LoadSession,
    NotOwner,
    PendingRead,
    Polled,
    ReadPending,
    SessionAbsent,
    SessionLoaded,
    SessionState,
    StateCommitted,
    SubscribedLive,
    SubscribeLive,
    UnsubscribeLive,
)
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.resume_record import (
    NORMAL,
    ConnectionLost,
    Discarded,
    Lull,
    Resumed,
    ResumeEnded,
    ResumeRecord,
    ResumeSession,
    ResumeTimeout,
)
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow_record import (
    BEHIND,
    DONE,
    DRAINING,
    FENCING,
    FINALIZING,
    WAITING,
    AskAgain,
    LinkLost,
    MarkerTimeout,
    PollDue,
    WriterDown,
    WriterUp,
)

EVERY_TIME = replace(TIMES, receive_maximum=100)


def resume(*events):
    return Hand(RESUME, ResumeRecord("owner~1", "c", 7, EVERY_TIME), *events)


def found(*numbers, writer="w", epoch=1, markers=()):
    return EpochRows(writer, epoch, rows(*numbers), markers)


def syncing(*pending, state=None, writers=("w",), gone=()):
    return resume(
        ResumeSession(),
        SessionLoaded("s", state or SessionState()),
        PendingRead(pending),
        SubscribedLive(writers, gone),
    )


def normal():
    one = syncing()
    one.feed(marker(1))
    one.feed(Polled("w", (found(markers=((7, 1),)),)))
    assert one.status == "normal"
    return one


def sent(effects):
    return [one.message for one in effects if isinstance(one, Publish)]


def test_PS_60_PS_62_PS_63_PS_64_the_stages_of_a_resume_in_their_order():
    flying = InFlightRecord(4, "c", queued(1), status=SENT)
    one = resume()
    assert one.feed(ResumeSession()) == [LoadSession("c", "owner~1", 7)]
    with pytest.raises(LocalProtocolError):
        one.feed(ResumeSession())
    state = SessionState(taken=Map({"w": (1, 1)}), packets=Map({4: flying}), places=4)
    assert one.feed(SessionLoaded("s", state)) == [Publish(4, "m1", "t", 1, True), ReadPending("s", "", 50)]
    assert one.feed(PendingRead((found(1, 2, 3, 5),))) == [SubscribeLive("s", "owner~1", 7)]
    effects = one.feed(SubscribedLive(("w",)))
    assert names(effects) == ["CommitState", "MarkerWanted"]
    assert effects[0].change.taken["w"] == (1, 3)
    assert effects[1] == MarkerWanted("s", "owner~1", 7, 1)
    assert sent(one.feed(StateCommitted())) == ["m2", "m3"]
    assert one.status == "syncing"


# -- a client that cannot keep up -------------------------------------------------------------------------------------

CROWDED = replace(TIMES, receive_maximum=2, queue=2)
TWO = {packet: InFlightRecord(packet, "c", queued(packet), packet, SENT) for packet in (1, 2)}


def crowded(*pending, waiting=2, gone=(), status="syncing"):
    """Two messages are in flight, and of two that may wait so many do."""
    taken = 2 + waiting
    queue = rows(*range(3, taken + 1))
    state = SessionState(Map({"w": (1, taken)} if taken else {}), Map(TWO), queue, places=2)
    one = Hand(
        RESUME, ResumeRecord("owner~1", "c", 7, CROWDED),
        ResumeSession(), SessionLoaded("s", state), PendingRead(pending), SubscribedLive(("w",), gone),
    )  # fmt: skip
    assert one.status == status
    return one, one.record.flows["w"]


def flow_of(one, writer="w"):
    return one.record.flows[writer]


def shown(one, k):
    """The marker comes, and everything below it is taken."""
    one.feed(marker(k))
    one.feed(Polled("w", (found(markers=((7, 1),)),)))


def test_PS_200_of_what_comes_live_nothing_is_taken_while_as_many_wait_as_may():
    one, _ = crowded(waiting=1)
    shown(one, 4)
    assert flow_of(one).status is DONE
    (asked,) = one.feed(live(4))
    assert isinstance(asked, CommitState)
    one.feed(StateCommitted())
    assert [row.number for row in one.record.delivery.state.queued] == [3, 4]
    assert one.feed(live(5)) == []
    assert (flow_of(one).status, flow_of(one).k, flow_of(one).buffer) == (BEHIND, 5, rows(5))
    assert one.feed(live(3)) == []
    assert one.record.delivery.inbox == ()


def test_PS_200_what_waits_for_a_commit_counts_as_well():
    one, _ = crowded(waiting=0)
    shown(one, 3)
    one.feed(live(3))
    one.feed(live(4))
    assert (len(one.record.delivery.inbox), flow_of(one).status) == (1, DONE)
    one.feed(live(5))
    assert (len(one.record.delivery.inbox), flow_of(one).status) == (1, BEHIND)


def test_PS_200_who_does_not_take_it_is_not_told():
    """A message that has come before, one behind a gap, one of another epoch."""
    for event, status in ((live(4), DONE), (live(6), WAITING), (live(1, epoch=2), FENCING)):
        one, _ = crowded(waiting=1)
        shown(one, 4)
        one.feed(live(4))
        one.feed(StateCommitted())
        one.feed(event)
        assert flow_of(one).status is status


def test_PS_200_of_what_is_read_nothing_is_taken_while_as_many_wait_as_may():
    one, _ = crowded()
    assert one.feed(marker(7)) == [ReadPending("s", "w", 1, (1, 4))]
    one.feed(live(7))
    assert one.feed(Polled("w", (found(5, 6),))) == [Resumed("s")]
    assert (flow_of(one).status, flow_of(one).taken, flow_of(one).k) == (BEHIND, 4, 8)


def test_PS_200_of_what_was_pending_and_of_a_fence_nothing_is_taken_either():
    one, flow = crowded(found(5, 6), gone=("v",))
    assert flow.taken == 4
    assert one.feed(FencedRows("v", 2, 2, (found(1, writer="v"),))) == []
    assert (flow_of(one, "v").status, flow_of(one, "v").taken, flow_of(one, "v").below) == (DRAINING, 0, 2)
    empty, _ = crowded(gone=("v",))
    empty.feed(FencedRows("v", 2, 2, ()))
    assert flow_of(empty, "v").status is DONE


def test_PS_200_of_what_was_kept_nothing_is_taken_while_as_many_wait_as_may():
    """One writer takes what it has kept; the other has no room then, and what it kept is in the database."""
    state = SessionState(Map({"v": (1, 1), "w": (1, 1)}), Map(TWO), (), places=2)
    one = Hand(
        RESUME, ResumeRecord("owner~1", "c", 7, CROWDED),
        ResumeSession(), SessionLoaded("s", state), PendingRead(()), SubscribedLive(("v", "w")),
    )  # fmt: skip
    one.feed(marker(3, writer="v"))
    one.feed(marker(2))
    for number in (3, 4):
        one.feed(live(number, writer="v"))
    one.feed(live(2))
    one.feed(Polled("v", (found(2, writer="v", markers=((7, 1),)),)))
    one.feed(Polled("w", (found(markers=((7, 1),)),)))
    assert (flow_of(one, "v").status, flow_of(one).status) == (FINALIZING, FINALIZING)
    one.feed(StateCommitted())
    assert (flow_of(one, "v").status, flow_of(one).status) == (DONE, FINALIZING)
    one.feed(StateCommitted())
    assert (flow_of(one).status, flow_of(one).k, flow_of(one).buffer) == (BEHIND, 3, ())


def test_PS_200_a_resume_buffer_that_is_full_is_dropped_and_nobody_is_asked():
    one, _ = crowded()
    one.feed(marker(5))
    one.feed(Polled("w", (found(markers=((7, 1),)),)))
    for number in (5, 6, 7):
        one.feed(live(number))
    assert flow_of(one).buffer == rows(5, 6, 7)
    assert one.feed(live(8)) == []
    assert (flow_of(one).status, flow_of(one).k, flow_of(one).buffer) == (BEHIND, 8, rows(8))


def test_PS_200_what_was_left_is_read_when_the_client_has_acknowledged():
    one, _ = crowded(waiting=1)
    shown(one, 4)
    one.feed(live(4))
    one.feed(StateCommitted())
    for number in (5, 6):
        one.feed(live(number))
    for packet in (1, 2):
        one.feed(Puback(packet))
        one.feed(StateCommitted())
    assert not one.record.delivery.state.queued
    assert one.feed(Puback(3)) == [ReadPending("s", "w", 1, (1, 4))]
    (asked,) = one.feed(Polled("w", ()))
    assert (asked.change.taken["w"], flow_of(one).status) == ((1, 6), DONE)
    assert sent(one.feed(StateCommitted())) == ["m5"]


def test_PS_61_a_session_that_is_absent_is_told():
    one = resume(ResumeSession())
    assert one.feed(SessionAbsent()) == [ResumeEnded("", "absent")]
    assert one.status == "stopped"


def test_PS_64_without_writers_the_session_is_in_normal_operation_at_once():
    one = resume(ResumeSession(), SessionLoaded("s", SessionState()), PendingRead(()))
    assert one.feed(SubscribedLive(())) == [Resumed("s")]
    assert one.status == "normal"


def test_PS_64_a_writer_that_is_gone_is_fenced():
    one = syncing(gone=("v",))
    assert names(one.effects).count("Ask") == 1
    assert one.record.flows["v"].status.value == "fencing"
    effects = one.feed(FencedRows("v", 2, 2, (found(1, 2, writer="v"),)))
    assert isinstance(effects[0], CommitState)
    assert sent(one.feed(StateCommitted())) == ["m1", "m2"]


def test_PS_65_PS_66_three_stored_and_three_through_the_buffer():
    one = syncing(found(1))
    one.feed(StateCommitted())
    one.feed(live(2))
    one.feed(marker(4))
    for number in (4, 5, 6):
        one.feed(live(number))
    one.feed(Polled("w", (found(1, 2, 3, 4, markers=((7, 1),)),)))
    assert one.status == "syncing"
    assert sent(one.feed(StateCommitted())) == ["m2", "m3"]
    last = one.feed(StateCommitted())
    assert sent(last) == ["m4", "m5", "m6"]
    assert last[-1] == Resumed("s")
    assert one.status == "normal"


def test_PS_66_five_stored_and_exactly_five():
    one = syncing(found(1, 2, 3, 4, 5))
    got = sent(one.feed(StateCommitted()))
    one.feed(marker(6))
    got += sent(one.feed(Polled("w", (found(1, 2, 3, 4, 5, markers=((7, 1),)),))))
    assert got == ["m1", "m2", "m3", "m4", "m5"]
    assert one.status == "normal"


def test_PS_65_PS_66_a_fenced_writer_ends_a_resume_and_timers_go_to_their_flows():
    one = syncing()
    assert names(one.feed(AskAgain("w"))) == ["MarkerWanted"]
    one.feed(marker(2))
    one.feed(Polled("w", (found(),)))
    assert one.feed(PollDue("w")) == [ReadPending("s", "w", 50, (1, 0))]
    assert one.feed(MarkerTimeout("w")) == [Fence("s", "w", (1, 0), 0, 7, 2, 50)]
    assert one.feed(FencedRows("w", 2, 2, ())) == [Resumed("s")]
    assert one.status == "normal"


def test_PS_65_each_word_about_a_writer_reaches_its_flow():
    for event, status in ((live(2), "waiting"), (LinkLost("w"), "waiting"), (WriterUp("w"), "waiting"),
                          (WriterDown("w"), "fencing"), (live(1), "done")):  # fmt: skip
        one = normal()
        one.feed(event)
        assert one.record.flows["w"].status.value == status
        assert one.status == "normal"
    read = normal()
    read.feed(LinkLost("w"))
    read.feed(marker(2, n=2))
    assert names(read.feed(Polled("w", (found(1, markers=((7, 2),)),)))) == ["CommitState"]
    read.feed(StateCommitted())
    assert read.record.flows["w"].status.value == "done"
    read.feed(WriterDown("w"))
    assert names(read.feed(FencedRows("w", 2, 3, (found(2),)))) == ["CommitState"]


def in_pages(receive_maximum=2):
    """A page is one row, and the first is in flight."""
    times = replace(TIMES, receive_maximum=receive_maximum)
    one = Hand(RESUME, ResumeRecord("owner~1", "c", 7, times))
    for event in (ResumeSession(), SessionLoaded("s", SessionState()), PendingRead((found(1),))):
        one.feed(event)
    one.feed(SubscribedLive(("w",)))
    one.feed(StateCommitted())
    return one


def test_PS_193_PS_195_PS_66_who_is_behind_reads_on_when_the_client_has_acknowledged():
    one = in_pages()
    assert one.feed(marker(4)) == [ReadPending("s", "w", 1, (1, 1))]
    assert names(one.feed(Polled("w", (found(2, markers=((7, 1),)),)))) == ["CommitState"]
    assert sent(one.feed(StateCommitted())) == ["m2"]
    assert one.record.flows["w"].status.value == "behind"
    assert one.status == "normal", "the client is waited for, and no writer"
    assert one.feed(Puback(1)) == [ReadPending("s", "w", 1, (1, 2))]
    assert one.feed(Puback(2)) == [], "one page at a time"
    assert names(one.feed(Polled("w", (found(3),)))) == ["CommitState"]
    assert sent(one.feed(StateCommitted())) == ["m3"]
    assert one.record.flows["w"].status.value == "done"


def test_PS_194_PS_195_who_is_draining_reads_on_when_the_client_has_acknowledged():
    one = in_pages()
    assert one.feed(WriterDown("w")) == [Fence("s", "w", (1, 1), 0, 7, 2, 1)]
    page = FencedRows("w", 2, 2, (found(2),), True)
    assert names(one.feed(page)) == ["CommitState"]
    assert names(one.feed(StateCommitted())) == ["MarkDelivered", "Publish", "Resumed"]
    assert one.record.flows["w"].status.value == "draining"
    assert one.feed(Puback(1, 2)) == [Fence("s", "w", (1, 2), 2, 7, 2, 1)]
    assert names(one.feed(FencedRows("w", 2, 2, (found(3),)))) == ["CommitState"]
    assert sent(one.feed(StateCommitted())) == ["m3"]
    assert one.record.flows["w"].status.value == "done"


def test_PS_195_one_half_is_read_while_the_client_has_the_other():
    """And nothing of it was ever queued."""
    one = in_pages(4)
    assert names(one.feed(marker(9))) == ["ReadPending"]
    assert names(one.feed(Polled("w", (found(2, 3, markers=((7, 1),)),)))) == ["CommitState"]
    assert one.record.flows["w"].status.value == "behind"
    assert one.status == "syncing", "it is not committed yet"
    assert names(one.feed(StateCommitted())) == ["MarkDelivered", "Publish", "Publish", "Resumed"]
    assert one.feed(Puback(1)) == [ReadPending("s", "w", 2, (1, 3))]
    one.feed(Polled("w", (found(4, 5),)))
    assert one.feed(Puback(2, 3)) == [ReadPending("s", "w", 2, (1, 5))], "and the commit of the last is open"
    one.feed(Polled("w", (found(6, 7),)))
    assert one.record.delivery.inbox
    assert sent(one.feed(StateCommitted())) == ["m4", "m5"]
    assert sent(one.feed(StateCommitted())) == ["m6", "m7"]
    assert names(one.feed(Puback(4, 5))) == ["ReadPending"]
    assert one.record.delivery.state.queued == ()


def lulled(one):
    """Whether it waits for a lull."""
    return [each for each in one.effects if isinstance(each, SetTimer) and each.timer == "lull"]


def test_PS_286_what_there_is_room_for_is_read_in_a_lull():
    """The client may keep what it has until it has more: it has three of four, and acknowledges none."""
    one = in_pages(4)
    one.feed(marker(9))
    one.feed(Polled("w", (found(2, 3, markers=((7, 1),)),)))
    assert not lulled(one), "the commit is open"
    one.feed(StateCommitted())
    assert [each.key for each in lulled(one)] == [""]
    assert one.feed(Lull()) == [ReadPending("s", "w", 1, (1, 3))]
    assert one.feed(Lull()) == [], "it is under way"
    one.feed(Polled("w", (found(4),)))
    assert sent(one.feed(StateCommitted())) == ["m4"]
    assert not lulled(one), "no room"
    assert one.feed(Lull()) == []
    one.feed(Puback(2))
    assert lulled(one)
    assert one.feed(Puback(1)) == [ReadPending("s", "w", 2, (1, 4))], "a page"
    assert not lulled(one)


def test_PS_286_who_is_draining_reads_on_in_a_lull():
    one = in_pages(4)
    assert one.feed(WriterDown("w")) == [Fence("s", "w", (1, 1), 0, 7, 2, 2)]
    one.feed(FencedRows("w", 2, 2, (found(2, 3),), True))
    one.feed(StateCommitted())
    assert lulled(one)
    assert one.feed(Lull()) == [Fence("s", "w", (1, 3), 2, 7, 2, 1)]


def test_PS_286_a_lull_without_anybody_who_waits_is_none():
    one = normal()
    one.feed(live(1))
    assert not lulled(one)
    assert one.feed(Lull()) == []
    new = Hand(RESUME, ResumeRecord("owner~1", "c", 7, TIMES))
    assert new.feed(Lull()) == []
    one.feed(NotOwner())
    assert one.status == "yielding"
    assert one.feed(Lull()) == []


def test_PS_195_what_is_committed_makes_room_where_no_packet_is_taken():
    """QoS 0 is not acknowledged: the next page is read when the one before is committed."""
    one = in_pages()
    one.feed(Puback(1))
    one.feed(marker(9))
    for number in (2, 3):
        page = EpochRows("w", 1, (queued(number, 0),), ((7, 1),))
        assert names(one.feed(Polled("w", (page,)))) == ["CommitState", "ReadPending"]
        assert sent(one.feed(StateCommitted())) == [f"m{number}"]
    waits = replace(page, rows=(queued(4, 0),))
    one.feed(Polled("w", (waits,)))
    assert names(one.feed(Polled("w", (replace(page, rows=(queued(5, 0),)),)))) == []
    assert names(one.feed(StateCommitted())) == ["MarkDelivered", "Publish", "CommitState", "ReadPending"]


def test_PS_195_what_is_queued_goes_before():
    one = in_pages()
    delivery = one.record.delivery
    flow = replace(one.record.flows["w"], status=BEHIND, k=4, seen=True, taken=1, n=1)
    state = replace(delivery.state, queued=rows(2, 3))
    one.record = replace(
        one.record, status=NORMAL, flows=one.record.flows.set("w", flow), delivery=replace(delivery, state=state)
    )
    assert names(one.feed(Puback(1))) == ["CommitState"]
    assert sent(one.feed(StateCommitted())) == ["m2", "m3"]
    assert one.feed(Puback(1)) == [], "not in flight"
    assert names(one.feed(Puback(2))) == ["ReadPending"]


def test_PS_196_who_waits_for_room_has_none():
    (holds,) = [one.holds for one in RESUME.invariants if one.name == "starves-without-room-alone"]
    one = in_pages()
    for status in (BEHIND, DRAINING):
        flow = replace(one.record.flows["w"], status=status)
        starved = replace(one.record, flows=one.record.flows.set("w", flow))
        full = replace(starved.delivery, receive_maximum=1)
        assert holds(one.record)
        assert holds(replace(starved, delivery=full))
        assert not holds(starved)


def test_PS_67_a_writer_that_is_met_later_is_synchronised_like_the_others():
    for event in (live(1, writer="v"), WriterUp("v"), LinkLost("v")):
        one = normal()
        assert one.feed(event) == [MarkerWanted("s", "owner~1", 7, 1)]
        assert one.record.flows["v"].status.value == "waiting"
    dead = normal()
    assert names(dead.feed(WriterDown("v"))) == ["MarkerWanted", "Fence"]


def test_PS_68_acknowledgements_go_to_the_state():
    one = normal()
    one.feed(live(1))
    one.feed(StateCommitted())
    assert 1 in one.record.delivery.state.packets
    one.feed(Puback(1))
    assert 1 not in one.record.delivery.state.packets


@pytest.mark.parametrize(
    ("event", "why"),
    [(ResumeTimeout(), "timeout"), (ConnectionLost(), "lost"), (Discarded(), "discarded")],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_PS_69_PS_71_a_resume_ends_and_leaves_the_state_as_it_was_committed(event, why):
    one = syncing(found(1))
    assert one.feed(event) == [UnsubscribeLive("s", 7), ResumeEnded("s", why)]
    assert one.status == "stopped"


def test_PS_70_a_resume_that_is_superseded_before_it_is_live_ends():
    stages = [ResumeSession(), SessionLoaded("s", SessionState()), PendingRead(())]
    for count in range(1, 4):
        one = resume(*stages[:count])
        session = "s" if count > 1 else ""
        assert one.feed(NotOwner()) == [UnsubscribeLive(session, 7), ResumeEnded(session, "superseded")]
        assert one.status == "stopped"


def test_PS_69_in_normal_operation_nothing_is_too_late():
    one = normal()
    assert one.feed(ResumeTimeout()) == []
    assert one.status == "normal"


def test_PS_72_what_comes_before_its_time_or_after_is_dropped():
    early = [live(1), marker(1), Polled("w", ()), FencedRows("w", 2, 1, ()), WriterUp("w"), WriterDown("w"),
             LinkLost("w"), AskAgain("w"), PollDue("w"), MarkerTimeout("w"), StateCommitted(), Puback(1),
             PendingRead(()), SubscribedLive(("w",))]  # fmt: skip
    for event in early:
        one = resume(ResumeSession())
        before = one.record
        assert one.feed(event) == []
        assert one.record == before
    late = [SessionLoaded("s", SessionState()), SessionAbsent(), PendingRead(()), SubscribedLive(("v",)),
            Polled("v", ()), FencedRows("v", 2, 1, ()), AskAgain("v"), marker(1, writer="v")]  # fmt: skip
    for event in late:
        one = normal()
        before = one.record
        assert one.feed(event) == []
        assert one.record == before


def test_PS_73_PS_74_the_promises_of_flows_and_state_are_those_of_the_resume():
    sound, waits, *_ = RESUME.invariants
    record = normal().record
    flow = record.flows["w"]
    assert sound.holds(record)
    assert waits.holds(record)
    assert not sound.holds(replace(record, flows=Map({"w": replace(flow, buffer=rows(1))})))
    assert not sound.holds(replace(record, flows=Map({"v": flow})))
    assert not sound.holds(replace(record, delivery=replace(record.delivery, marks=(None,))))
    last = syncing(found(1))
    last.feed(marker(2))
    last.feed(Polled("w", (found(markers=((7, 1),)),)))
    assert last.record.flows["w"].status.value == "finalizing"
    assert not waits.holds(replace(last.record, delivery=record.delivery))


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"marker_ms": 10_000}, "marker_ms"),
        ({"resume_ms": 15_000}, "resume_ms"),
        ({"poll_ms": 3_000}, "poll_ms"),
        ({"repeat_ms": 3_000}, "repeat_ms"),
        ({"resume_buffer": 0}, "resume_buffer"),
        ({"receive_maximum": 65_536}, "receive_maximum"),
        ({"lock_ms": -1}, "lock_ms"),
    ],
)
def test_PS_75_times_that_cannot_be_are_named(given, key):
    with pytest.raises(ConfigurationError, match=key):
        Times(**given)
