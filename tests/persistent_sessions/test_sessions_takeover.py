"""A takeover, both sides, clause by clause (spec/persistent_sessions/clauses.md)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from session_world import TIMES, Hand, flow, live, marker, names, queued, rows

from statemachines.kernel import CancelTimer, ConfigurationError, LocalProtocolError, Map, ProtocolError, Send, SetTimer
from statemachines.persistent_sessions.in_flight_record import SENT, InFlightRecord
from statemachines.persistent_sessions.message import Live, LiveMarker, Puback, Publish, Queued
from statemachines.persistent_sessions.request import (
    ConfirmRows,
    EpochRows,
    Fence,
    FencedRows,
    LoadSession,
    NotOwner,
    PendingRead,
    Polled,
    ReadPending,
    RowsConfirmed,
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
    ConnectionLost,
    Discarded,
    OrphanTimeout,
    Resumed,
    ResumeEnded,
    ResumeRecord,
    ResumeSession,
    ResumeTimeout,
    Yielded,
)
from statemachines.persistent_sessions.takeover import TAKEOVER
from statemachines.persistent_sessions.takeover_message import (
    BEYOND,
    BeginTakeover,
    EndTakeover,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
    limit_rows,
)
from statemachines.persistent_sessions.takeover_record import (
    BeginTimeout,
    EndTimeout,
    FinishTakeover,
    HandedOver,
    SayAgain,
    StartTakeover,
    TakenOver,
    TakeoverRecord,
)
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow import WRITER_FLOW
from statemachines.persistent_sessions.writer_flow_record import (
    AskAgain,
    Begin,
    Handed,
    LinkLost,
    MarkerTimeout,
    PollDue,
    Settled,
    Take,
    WriterDown,
    WriterUp,
)

MS = 1_000_000
OLD = "old~1"
BEGIN, END = BeginTakeover("c", "new~1", 9), EndTakeover("c", "new~1", 9)
BEGUN, ENDED, REFUSED = TakeoverBegun("c", 7), TakeoverEnded("c", 7), TakeoverRefused("c", 7)
SHORT = replace(TIMES, handover=3, begin_ms=3_000, end_ms=2_000)
IN_FLIGHT = SessionState(packets=Map({1: InFlightRecord(1, "c", queued(1), 0, SENT)}), places=1)


def found(*numbers, writer="w", epoch=1, markers=()):
    return EpochRows(writer, epoch, rows(*numbers), markers)


def ended(*what):
    return replace(ENDED, found=what)


def timers(one):
    return [(each.timer, each.key, each.deadline_ns // MS) for each in one.effects if isinstance(each, SetTimer)]


def cancelled(one):
    return sorted((each.timer, each.key) for each in one.effects if isinstance(each, CancelTimer))


# -- the new owner ------------------------------------------------------------------------------------------------


def resume(*events, old=OLD):
    """An owner with the token 7, whose session is live at `old`."""
    return Hand(RESUME, ResumeRecord("owner~1", "c", 7, replace(SHORT, receive_maximum=100), old), *events)


def taking(state=None):
    return resume(ResumeSession(), SessionLoaded("s", state or SessionState()))


def syncing(state=None):
    one = taking(state)
    one.feed(BEGUN)
    one.feed(SubscribedLive(("w",)))
    return one


def takeover(*events):
    return Hand(TAKEOVER, TakeoverRecord("s", "c", "owner~1", 7, OLD, SHORT), *events)


def test_PS_170_the_state_is_loaded_under_the_token_before_the_owner_of_before_is_asked():
    one = resume()
    assert one.feed(ResumeSession()) == [LoadSession("c", "owner~1", 7)]
    assert one.feed(SessionLoaded("s", IN_FLIGHT)) == [BeginTakeover("c", "owner~1", 7)]
    assert one.status == "taking"
    assert ("begin", OLD, 3_000) in timers(one)


@pytest.mark.parametrize("old", ["", "owner~1"])
def test_PS_170_a_session_that_is_live_nowhere_else_is_not_taken_over(old):
    one = resume(ResumeSession(), old=old)
    assert names(one.feed(SessionLoaded("s", IN_FLIGHT))) == ["Publish", "ReadPending"]


def test_PS_170_a_takeover_begins_once_and_takes_nothing_before():
    for event in (BEGUN, ENDED, REFUSED, RowsConfirmed(()), SayAgain(OLD), BeginTimeout(OLD), EndTimeout(OLD)):
        with pytest.raises(ProtocolError):
            takeover(event)
    with pytest.raises(LocalProtocolError):
        takeover(StartTakeover(), StartTakeover())


def test_PS_171_what_is_not_answered_is_asked_again():
    one = taking()
    assert ("again", OLD, 500) in timers(one)
    assert one.feed(SayAgain(OLD)) == [BeginTakeover("c", "owner~1", 7)]
    assert timers(one) == [("again", OLD, 500)]
    one = syncing()
    assert one.feed(SayAgain(OLD)) == [EndTakeover("c", "owner~1", 7)]
    assert timers(one) == [("again", OLD, 500)]


def test_PS_172_an_owner_that_has_begun_is_followed_by_the_subscription():
    one = taking(IN_FLIGHT)
    assert one.feed(BEGUN) == [SubscribeLive("s", "owner~1", 7)]
    assert one.status == "subscribing"
    assert cancelled(one) == [("again", OLD), ("begin", OLD)]


@pytest.mark.parametrize("event", [TakeoverBegun("c", 6), TakeoverBegun("c", 8), TakeoverBegun("d", 7)])
def test_PS_172_PS_179_an_answer_to_somebody_else_is_dropped(event):
    one = taking()
    assert one.feed(event) == []
    assert one.status == "taking"


@pytest.mark.parametrize(("event", "why"), [(REFUSED, "refused"), (BeginTimeout(OLD), "silent")])
def test_PS_173_an_owner_that_is_given_up_at_begin_leaves_all_to_the_database(event, why):
    one = taking(IN_FLIGHT)
    assert one.feed(event) == [TakenOver("s", OLD, why), LoadSession("c", "owner~1", 7)]
    assert one.status == "loading"
    assert names(one.feed(SessionLoaded("s", IN_FLIGHT))) == ["Publish", "ReadPending"]
    assert one.status == "reading"
    again = taking()
    again.feed(event)
    assert again.feed(NotOwner()) == [UnsubscribeLive("", 7), ResumeEnded("", "superseded")]


def test_PS_422_an_owner_that_its_client_has_left_has_the_time_of_one_repetition_to_begin():
    record = ResumeRecord("owner~1", "c", 7, SHORT, OLD, left=True)
    one = Hand(RESUME, record, ResumeSession(), SessionLoaded("s", SessionState()))
    assert ("begin", OLD, SHORT.repeat_ms) in timers(one)


def given_up(event, old=OLD):
    """An owner of before did not begin; there are its writer and another one."""
    loaded = SessionLoaded("s", SessionState())
    return resume(ResumeSession(), loaded, event, loaded, PendingRead(()), old=old)


@pytest.mark.parametrize("event", [TakeoverRefused("c", 7, True), BeginTimeout(OLD)])
def test_PS_423_the_writer_beside_an_owner_that_did_not_begin_is_fenced_at_once(event):
    one = given_up(event)
    asked = one.feed(SubscribedLive(("old", "w")))
    assert [each.writer for each in asked if isinstance(each, Fence)] == ["old"]
    assert one.record.silent == ""
    assert {name: flow.status.value for name, flow in one.record.flows.items()} == {"old": "fencing", "w": "waiting"}


def test_PS_423_a_node_that_refuses_lives_and_its_writer_is_asked_for_a_marker():
    one = given_up(REFUSED)
    assert not [each for each in one.feed(SubscribedLive(("old", "w"))) if isinstance(each, Fence)]
    assert {name: flow.status.value for name, flow in one.record.flows.items()} == {"old": "waiting", "w": "waiting"}


def test_PS_423_a_node_does_not_fence_its_own_writer_for_an_owner_that_it_has_not_any_more():
    one = given_up(BeginTimeout("owner~1/1"), old="owner~1/1")
    assert not [each for each in one.feed(SubscribedLive(("owner", "w"))) if isinstance(each, Fence)]


@pytest.mark.parametrize("event", [TakeoverRefused("c", 6), TakeoverRefused("d", 7)])
def test_PS_173_PS_178_a_refusal_of_somebody_else_is_dropped(event):
    assert taking().feed(event) == []
    one = syncing()
    assert one.feed(event) == []
    assert one.record.takeover is not None


def test_PS_174_what_is_in_flight_and_the_markers_and_then_the_end():
    one = taking(IN_FLIGHT)
    one.feed(BEGUN)
    publish, end, wanted = one.feed(SubscribedLive(("w",)))
    assert publish == Publish(1, "m1", "t", 1, True)
    assert end == EndTakeover("c", "owner~1", 7)
    assert names([wanted]) == ["MarkerWanted"]
    assert ("end", OLD, 2_000) in timers(one)
    with pytest.raises(LocalProtocolError):
        takeover(StartTakeover(), FinishTakeover())


def test_PS_174_where_there_are_no_writers_the_end_is_asked_too():
    one = taking()
    one.feed(BEGUN)
    assert one.feed(SubscribedLive(())) == [EndTakeover("c", "owner~1", 7), Resumed("s")]
    assert one.status == "normal"
    assert one.feed(ENDED) == [TakenOver("s", OLD, "handed")]


def test_PS_174_what_waits_for_room_is_committed_before_operation_is_normal():
    one = taking(SessionState(queued=(queued(1),)))
    one.feed(BEGUN)
    assert names(one.feed(SubscribedLive(()))) == ["CommitState", "EndTakeover"]
    assert one.status == "syncing"
    assert names(one.feed(StateCommitted())) == ["Publish", "Resumed"]


def test_PS_175_PS_176_what_is_handed_over_is_taken_where_the_database_has_it():
    one = syncing()
    assert one.feed(ended(found(1, 2))) == [ConfirmRows("s", 7, (found(1, 2),))]
    first, told = one.feed(RowsConfirmed((found(1, 2),)))
    assert names([first]) == ["CommitState"]
    assert [one.queued.number for one in first.change.packets] == [1, 2]
    assert told == TakenOver("s", OLD, "handed")
    assert one.record.takeover is None
    assert one.record.flows["w"].taken == 2


def test_PS_175_no_more_is_confirmed_than_is_bounded_and_only_what_can_be_a_row():
    one = syncing()
    many = (found(1, 2), found(3, 4, writer="v"), found(5))
    assert one.feed(ended(*many)) == [ConfirmRows("s", 7, (found(1, 2), found(3, writer="v")))]
    wrong = (found(0, BEYOND, -1), found(1, epoch=0), found(1, epoch=BEYOND), found())
    assert limit_rows(wrong, 9) == ()
    assert limit_rows((found(1, markers=((7, 1),)),), 9) == (found(1),)
    assert syncing().feed(ended(*wrong)) == [TakenOver("s", OLD, "handed")]


def test_PS_175_nothing_is_asked_about_what_another_takeover_brought():
    one = syncing()
    for other in (TakeoverEnded("c", 6, (found(1),)), TakeoverEnded("d", 7, (found(1),))):
        assert one.feed(other) == []
    assert one.feed(ENDED) == [TakenOver("s", OLD, "handed")]


def test_PS_176_what_is_of_no_writer_here_is_left_out():
    one = syncing()
    one.feed(ended(found(1, writer="v")))
    assert one.feed(RowsConfirmed((found(1, writer="v"),))) == [TakenOver("s", OLD, "handed")]
    tale = takeover(StartTakeover(), BEGUN, FinishTakeover(), ended(found(1)))
    assert tale.feed(RowsConfirmed(())) == [HandedOver(()), TakenOver("s", OLD, "handed")]


def test_PS_176_every_writer_gets_its_own():
    one = taking()
    one.feed(BEGUN)
    one.feed(SubscribedLive(("v", "w")))
    of_v = EpochRows("v", 1, (queued(1, message="x"), queued(2, message="y")))
    one.feed(ended(of_v, found(1)))
    (commit, _) = one.feed(RowsConfirmed((of_v, found(1))))
    assert dict(commit.change.taken) == {"v": (1, 2)}
    again, *_ = [each for each in one.feed(StateCommitted()) if type(each) is type(commit)]
    assert dict(again.change.taken) == {"w": (1, 1)}
    assert [one.queued.message for one in (*commit.change.packets, *again.change.packets)] == ["x", "y", "m1"]


@pytest.mark.parametrize(
    ("what", "taken"),
    [
        ((found(1, 2),), [1, 2]),
        ((found(2, 3),), []),
        ((found(1, 3),), [1]),
        ((found(1, epoch=2),), []),
        ((found(1), found(2)), [1, 2]),
    ],
)
def test_PS_177_a_flow_takes_what_follows_without_a_hole(what, taken):
    one = Hand(WRITER_FLOW, flow(), Begin())
    expected = [Take("w", 1, rows(*taken))] if taken else []
    assert one.feed(Handed(what)) == expected
    assert one.record.taken == len(taken)


def test_PS_177_from_the_marker_on_it_is_in_the_buffer():
    one = Hand(WRITER_FLOW, flow(), Begin(), marker(3), live(3))
    assert one.feed(Handed((found(1, 2, 3, 4),))) == [Take("w", 1, rows(1, 2))]
    assert one.status == "syncing"
    one.feed(Polled("w", (found(markers=((7, 1),)),)))
    assert one.status == "finalizing"
    assert one.feed(Handed((found(3),))) == []
    assert one.feed(Settled()) == [Take("w", 1, rows(3))]
    assert one.feed(Handed((found(4),))) == []
    fenced = Hand(WRITER_FLOW, flow(), Begin(), WriterDown("w"))
    assert fenced.feed(Handed((found(1),))) == []


def test_PS_177_what_was_dropped_before_is_kept_in_mind():
    one = Hand(WRITER_FLOW, flow(), Begin(), live(5), Handed((found(1, 2),)))
    assert names(one.feed(marker(5))) == ["MarkerWanted"]
    assert one.status == "waiting"


def test_PS_177_a_marker_below_what_was_handed_over_is_not_used():
    one = Hand(WRITER_FLOW, flow(), Begin(), Handed((found(1, 2),)))
    assert names(one.feed(marker(2))) == ["MarkerWanted"]
    assert one.status == "waiting"
    one.feed(marker(3, n=2))
    assert one.status == "syncing"


@pytest.mark.parametrize(("event", "why"), [(REFUSED, "refused"), (EndTimeout(OLD), "silent")])
def test_PS_178_an_owner_that_is_given_up_at_end_is_not_waited_for(event, why):
    one = syncing()
    assert one.feed(event) == [TakenOver("s", OLD, why)]
    assert one.status == "syncing"
    assert one.record.takeover is None


def test_PS_178_a_confirmation_that_does_not_come_is_not_waited_for():
    one = syncing()
    one.feed(ended(found(1)))
    assert cancelled(one) == [("again", OLD)]
    assert one.feed(EndTimeout(OLD)) == [TakenOver("s", OLD, "silent")]


def test_PS_179_what_nobody_waits_for_is_dropped():
    stages = [takeover(StartTakeover())]
    for event in (BEGUN, FinishTakeover(), ended(found(1))):
        one = takeover()
        one.record = stages[-1].record
        one.feed(event)
        stages.append(one)
    waited = {0: (BEGUN, REFUSED, SayAgain, BeginTimeout), 1: (), 2: (ENDED, REFUSED, SayAgain, EndTimeout),
              3: (RowsConfirmed, EndTimeout)}  # fmt: skip
    events = [BEGUN, ENDED, REFUSED, RowsConfirmed(()), SayAgain(OLD), BeginTimeout(OLD), EndTimeout(OLD)]
    for place, stage in enumerate(stages):
        kinds = {type(one) if not isinstance(one, type) else one for one in waited[place]}
        for event in events:
            if type(event) not in kinds:
                one = Hand(TAKEOVER, stage.record)
                assert one.feed(event) == []
                assert one.record == stage.record
    for one in (resume(), resume(ResumeSession()), resume(ResumeSession(), SessionAbsent(), old="")):
        if one.status != "stopped":
            for event in events:
                assert one.feed(event) == []


def test_PS_179_while_the_owner_of_before_is_asked_nothing_else_is_taken():
    for event in (live(1), marker(1), Polled("w", ()), StateCommitted(), Puback(1), PendingRead(()),
                  SubscribedLive(("w",)), SessionLoaded("s", SessionState()), WriterUp("w")):  # fmt: skip
        one = taking(IN_FLIGHT)
        before = one.record
        assert one.feed(event) == []
        assert one.record == before


# -- the owner of before ------------------------------------------------------------------------------------------


def owner(*events, handover=3):
    times = replace(TIMES, handover=handover, receive_maximum=1, orphan_ms=16_000)
    return Hand(RESUME, ResumeRecord(OLD, "c", 7, times), *events)


def normal(handover=3):
    """In normal operation, with nothing taken yet."""
    return owner(
        ResumeSession(), SessionLoaded("s", SessionState()), PendingRead(()), SubscribedLive(("w",)), marker(1),
        Polled("w", (found(markers=((7, 1),)),)), handover=handover,
    )  # fmt: skip


def yielding(handover=3):
    one = normal(handover)
    one.feed(BEGIN)
    return one


def handed(one):
    unsubscribe, answer, told = one.feed(END)
    assert unsubscribe == UnsubscribeLive("s", 7)
    assert told == ResumeEnded("s", "taken over")
    assert one.status == "stopped"
    return [(each.writer, each.epoch, [row.number for row in each.rows]) for each in answer.found]


def test_PS_180_whoever_is_asked_yields_and_says_so():
    one = normal()
    assert one.feed(BEGIN) == [Yielded("s"), TakeoverBegun("c", 9)]
    assert one.status == "yielding"
    assert one.effects[-1].to == "new~1"
    assert ("orphan", "", 16_000) in timers(one)


def test_PS_180_what_is_not_known_to_be_committed_is_kept_each_number_once():
    """One in an open commit, one that waits for the next, one that comes afterwards, one more of which comes twice."""
    one = normal(handover=9)
    one.feed(live(1))
    one.feed(live(2))
    one.feed(BEGIN)
    one.feed(live(3))
    one.feed(live(3))
    assert handed(one) == [("w", 1, [1, 2, 3])]


def test_PS_180_what_flows_have_buffered_and_the_resume_has_read_is_kept():
    one = owner(ResumeSession(), SessionLoaded("s", SessionState()), PendingRead((found(1, 2),)))
    one.feed(BEGIN)
    assert handed(one) == [("w", 1, [1, 2])]
    one = owner(
        ResumeSession(), SessionLoaded("s", SessionState()), PendingRead(()), SubscribedLive(("v", "w")),
        marker(2), live(2), marker(1, writer="v"), live(1, writer="v"), handover=9,
    )  # fmt: skip
    one.feed(BEGIN)
    assert handed(one) == [("v", 1, [1]), ("w", 1, [2])]


def test_PS_180_PS_188_no_more_is_kept_than_there_is_room_for():
    one = normal(handover=2)
    for number in (1, 2, 3):
        one.feed(live(number))
    one.feed(BEGIN)
    assert handed(one) == [("w", 1, [1, 2])]


def test_PS_180_the_timers_of_what_is_dropped_are_taken_back():
    one = owner(ResumeSession(), SessionLoaded("s", SessionState()), PendingRead(()), SubscribedLive(("w",)))
    one.feed(BEGIN)
    assert cancelled(one) == [("catch_up", ""), ("lull", ""), ("marker", "w"), ("repeat", "w"), ("resume", "")]
    one = taking()
    one.feed(BEGIN)
    assert cancelled(one) == [("again", OLD), ("begin", OLD), ("resume", "")]


def test_PS_180_an_owner_that_has_nothing_yet_yields_too():
    for one in (resume(ResumeSession()), taking(), syncing()):
        assert one.feed(BEGIN)[-1] == TakeoverBegun("c", 9)
        assert one.status == "yielding"


def test_PS_181_whoever_is_superseded_yields_unasked():
    one = normal()
    one.feed(live(1))
    assert one.feed(NotOwner()) == [Yielded("s")]
    assert one.status == "yielding"
    assert one.feed(END) == [TakeoverRefused("c", 9)]
    assert one.feed(BEGIN) == [TakeoverBegun("c", 9)]
    assert handed(one) == [("w", 1, [1])]


def test_PS_182_whoever_yields_keeps_what_comes_live_as_far_as_there_is_room():
    one = yielding(handover=2)
    for number in (1, 2, 3):
        assert one.feed(live(number)) == []
    assert handed(one) == [("w", 1, [1, 2])]
    one = yielding()
    one.feed(live(1, epoch=2))
    one.feed(live(7, writer="v"))
    assert handed(one) == [("v", 1, [7]), ("w", 2, [1])]


def test_PS_182_what_overtakes_is_handed_over_in_the_order_of_its_place():
    one = yielding()
    for event in (live(2, writer="w"), live(1, writer="w"), live(5, writer="v")):
        one.feed(event)
    assert handed(one) == [("v", 1, [5]), ("w", 1, [1, 2])]


def test_PS_182_and_drops_all_else():
    for event in (StateCommitted(), Polled("w", (found(1),)), FencedRows("w", 2, 1, ()), marker(2), WriterUp("w"),
                  WriterDown("w"), LinkLost("w"), AskAgain("w"), PollDue("w"), MarkerTimeout("w"), Puback(1),
                  NotOwner(), ConnectionLost(), ResumeTimeout(), SessionLoaded("s", SessionState()), SessionAbsent(),
                  PendingRead((found(1),)), SubscribedLive(("w",)), BEGUN, ENDED, REFUSED, RowsConfirmed((found(1),)),
                  SayAgain(OLD), BeginTimeout(OLD), EndTimeout(OLD)):  # fmt: skip
        one = yielding()
        before = one.record
        assert one.feed(event) == []
        assert one.record == before
    with pytest.raises(LocalProtocolError):
        yielding().feed(ResumeSession())


def test_PS_183_the_same_answer_to_a_higher_token_and_the_whole_time_again():
    one = yielding()
    one.feed(live(1))
    assert one.feed(BEGIN) == [TakeoverBegun("c", 9)]
    assert timers(one) == [], "asked once more, it stays no longer"
    assert one.feed(BeginTakeover("c", "third~1", 10)) == [TakeoverBegun("c", 10)]
    assert timers(one) == [("orphan", "", 16_000)]
    assert one.feed(END) == [TakeoverRefused("c", 9)], "the last wins"
    assert one.feed(BEGIN) == [TakeoverRefused("c", 9)]
    _, answer, _ = one.feed(EndTakeover("c", "third~1", 10))
    assert answer == TakeoverEnded("c", 10, (found(1),))


def test_PS_184_asked_to_end_it_hands_over_and_ends():
    one = yielding()
    one.feed(live(1))
    assert handed(one) == [("w", 1, [1])]
    assert [effect.to for effect in one.effects if isinstance(effect, Send)] == ["new~1"]


def test_PS_185_whoever_is_not_asked_to_end_ends_by_itself():
    one = yielding()
    assert one.feed(OrphanTimeout()) == [UnsubscribeLive("s", 7), ResumeEnded("s", "orphaned")]
    assert one.status == "stopped"
    assert normal().feed(OrphanTimeout()) == []
    assert yielding().feed(Discarded()) == [UnsubscribeLive("s", 7), ResumeEnded("s", "discarded")]


@pytest.mark.parametrize("event", [
    BeginTakeover("c", "x~1", 7), BeginTakeover("c", "x~1", 6), BeginTakeover("d", "x~1", 9), EndTakeover("c", "x~1", 9)
])  # fmt: skip
def test_PS_186_whoever_has_no_higher_token_is_refused(event):
    one = normal()
    assert one.feed(event) == [TakeoverRefused(event.client, event.token)]
    assert one.status == "normal"
    assert owner().feed(BEGIN) == [TakeoverRefused("c", 9)], "it has not begun to resume"


@pytest.mark.parametrize("event", [EndTakeover("c", "x~1", 8), EndTakeover("d", "x~1", 9), EndTakeover("c", "x~1", 10)])
def test_PS_186_nobody_ends_what_another_has_begun(event):
    one = yielding()
    assert one.feed(event) == [TakeoverRefused(event.client, event.token)]
    assert one.status == "yielding"


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"begin_ms": 0}, "begin_ms"),
        ({"handover": 0}, "handover"),
        ({"begin_ms": 500}, "repeat_ms"),
        ({"end_ms": 500}, "repeat_ms"),
        ({"begin_ms": 8_000, "end_ms": 7_000}, "begin_ms \\+ end_ms"),
        ({"orphan_ms": 14_999}, "orphan_ms"),
        ({"begin_ms": 10_000}, "begin_ms"),
    ],
)
def test_PS_187_times_that_cannot_be_are_named(given, key):
    with pytest.raises(ConfigurationError, match=key):
        Times(**given)
    Times(begin_ms=8_000, end_ms=6_999, orphan_ms=15_000)


def test_PS_188_PS_189_what_a_takeover_promises_of_itself():
    silent, quiet = (one for one in RESUME.invariants if one.clause in ("PS-188", "PS-189"))
    one = yielding(handover=1).record
    assert silent.holds(one)
    assert not silent.holds(replace(one, delivery=normal().record.delivery))
    assert not silent.holds(replace(one, flows=normal().record.flows))
    assert not silent.holds(replace(one, takeover=taking().record.takeover))
    assert not silent.holds(replace(one, pending=(found(1, 2),)))
    assert not silent.holds(replace(normal().record, claim=9))
    assert quiet.holds(taking().record)
    assert not quiet.holds(replace(taking().record, takeover=None))
    assert not quiet.holds(replace(normal().record, takeover=taking().record.takeover))


# -- scenarios ----------------------------------------------------------------------------------------------------


def test_a_takeover_with_a_receive_maximum_of_1():
    """One is in flight, one waits, one is handed over: they come in their order, one at a time."""
    new = Hand(RESUME, ResumeRecord("owner~1", "c", 7, replace(TIMES, receive_maximum=1), OLD))
    state = replace(IN_FLIGHT, taken=Map({"w": (1, 2)}), queued=(queued(2),))
    for event in (ResumeSession(), SessionLoaded("s", state), BEGUN, SubscribedLive(("w",)), ended(found(3))):
        new.feed(event)
    new.feed(RowsConfirmed((found(3),)))
    sent = []
    for _ in range(6):
        acked = [one.packet for one in new.record.delivery.state.packets.values() if one.status is SENT]
        for event in (StateCommitted(), *(Puback(packet) for packet in acked)):
            sent += [one.message for one in new.feed(event) if isinstance(one, Publish)]
    assert sent == ["m2", "m3"]
    assert new.feed(LiveMarker("s", "w", 1, 4, 7, 1)) == [ReadPending("s", "w", 1, (1, 3))]
    assert new.feed(Polled("w", (found(markers=((7, 1),)),))) == [Resumed("s")]


def test_PS_551_what_is_handed_over_is_bounded_in_copies():
    rows = tuple(Queued(number, f"m{number}", "a", more=("b", "c")) for number in range(1, 5))
    found = (EpochRows("w", 1, rows), EpochRows("x", 1, rows))
    assert [len(one.rows) for one in limit_rows(found, 8)] == [2]
    assert [len(one.rows) for one in limit_rows(found, 15)] == [4, 1]
    assert limit_rows(found, 2) == ()


@pytest.mark.parametrize(("handover", "kept"), [(2, [1]), (3, [1, 2])])
def test_PS_551_a_row_that_comes_while_it_yields_is_kept_if_all_its_copies_have_room(handover, kept):
    one = normal(handover)
    one.feed(live(1))
    one.feed(BEGIN)
    one.feed(Live("s", "w", 1, replace(live(2).queued, more=("other",))))
    assert handed(one) == [("w", 1, kept)]
