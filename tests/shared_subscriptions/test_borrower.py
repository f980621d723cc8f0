"""The Borrower, clause by clause (spec/shared_subscriptions/clauses.md SS-01 to SS-42)."""

from __future__ import annotations

import pytest

from statemachines.kernel import Node, Send, Stop, Tell
from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    BorrowerRecord,
    BorrowerStatus,
    Destroyed,
    FindLeaderTimer,
    LeaseBegan,
    LeaseEnd,
    LeaseEnded,
    OnDisconnect,
    OnUnsubscribe,
    PingTimeout,
    PingTimer,
    Start,
    UnsubscribeTimer,
)
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Report,
    Revoke,
    Revoked,
    RevokeFinished,
    Undeclared,
    UpdateProgress,
)
from statemachines.shared_subscriptions.stream import (
    STREAM,
    Dropped,
    Finish,
    Finishing,
    Install,
    Replaced,
    StreamLink,
    StreamProgress,
    StreamRecord,
    StreamStatus,
    Uninstall,
)

B, L = "c1~1/1", "leader~1/1"
PAIR = (B, 5, 1)


class Bench:
    """A borrower on the bench: feed it, look at what it did."""

    def __init__(self, *, epoch=0):
        record = BorrowerRecord(B, "g", "t/#", ("leader~1",), Configuration().check(), epoch=epoch)
        self.rows = []
        self.node = Node(BORROWER, record, name=B, now_ns=0, check=True, observe=self.saw)

    def saw(self, node, event, before, step, now_ns):
        self.rows.append(BORROWER.lines[step.row].clause)
        reference = BORROWER.reference_step(self.before, event, now_ns)
        assert (reference.record, reference.effects, reference.row) == (step.record, step.effects, step.row)
        self.before = step.record

    def feed(self, event, at_ms=0):
        self.before = self.node.record
        return self.node.feed(event, at_ms * MS)

    def fire(self, at_ms):
        self.before = self.node.record
        return self.node.fire(at_ms * MS)

    @property
    def status(self):
        return self.node.record.status.value


@pytest.fixture
def new():
    bench = Bench()
    bench.feed(Start())
    return bench


@pytest.fixture
def connected(new):
    new.feed(LeaderConnectResponse(B, L, 5, 1), 10)
    new.feed(PingResponse(*PAIR, 1), 20)
    return new


@pytest.fixture
def holding(connected):
    connected.feed(Grant(*PAIR, "s", 3, 100), 30)
    return connected


def progress(grant, offset, finished=False):
    return Send(L, UpdateProgress(*PAIR, "s", grant, offset, finished))


def finished(grant):
    return Send(L, RevokeFinished(*PAIR, "s", grant))


def test_ss01_start_asks_for_the_leader():
    assert Bench().feed(Start()) == [Send("leader~1", LeaderWanted(B, "g", "t/#"))]


def test_ss01_a_second_start_changes_nothing(connected):
    assert connected.feed(Start(), 40) == []
    connected.feed(Grant(*PAIR, "s", 3, 100), 50)
    connected.feed(OnUnsubscribe(), 60)
    assert connected.feed(Start(), 70) == []


def test_ss02_asks_again_every_find_leader(new):
    again = [Send("leader~1", LeaderWanted(B, "g", "t/#"))]
    assert new.fire(999) == []
    assert new.fire(1000) == again
    assert new.fire(2000) == again


def test_ss03_adopts_and_pings_at_once(new):
    assert new.feed(LeaderConnectResponse(B, L, 5, 1), 10) == [Send(L, Ping(*PAIR, 1))]
    assert new.status == "connected"
    assert new.node.armed_timers() == {("ping_timeout", ""): 2010 * MS}


def test_ss03_an_epoch_below_the_highest_seen_is_not_adopted():
    bench = Bench(epoch=6)
    bench.feed(Start())
    assert bench.feed(LeaderConnectResponse(B, L, 5, 1)) == []
    assert bench.status == "connecting"


@pytest.mark.parametrize(
    "event",
    [Grant(*PAIR, "s", 1, 0), Revoke(*PAIR, "s", 1), Revoked(*PAIR, "s", 1), Undeclared(B), PingResponse(*PAIR, 1)],
)
def test_ss04_nothing_counts_before_the_connect_response(new, event):
    assert new.feed(event) == []
    assert new.status == "connecting"
    assert new.rows[-1] == "SS-04"


@pytest.mark.parametrize("event", [OnUnsubscribe(), OnDisconnect()])
def test_ss05_ends_at_once_when_not_connected(new, event):
    assert new.feed(event) == [Tell(Destroyed(B, False, 0)), Stop()]


@pytest.mark.parametrize("pair", [(6, 1), (5, 2)])
def test_ss06_a_higher_connect_response_ends_it(holding, pair):
    effects = holding.feed(LeaderConnectResponse(B, "leader~2/1", *pair), 40)
    assert effects == [Tell(Uninstall(B, "s", 3)), Tell(Destroyed(B, True, pair[0])), Stop()]


def test_ss24_the_same_connect_response_again_changes_nothing(connected):
    assert connected.feed(LeaderConnectResponse(B, L, 5, 1), 40) == []
    assert connected.status == "connected"


def test_ss07_ss08_pings_follow_the_answers(connected):
    assert connected.fire(1019) == []
    assert connected.fire(1020) == [Send(L, Ping(*PAIR, 2))]
    connected.feed(PingResponse(*PAIR, 2), 1100)
    assert connected.node.armed_timers()["ping", ""] == 2100 * MS


def test_ss07_a_report_is_repeated_until_a_ping_is_answered(holding):
    holding.feed(StreamProgress("s", 3, 120), 50)
    report = Report("s", 3, 120, False)
    assert holding.fire(1020) == [Send(L, Ping(*PAIR, 2, (report,)))]
    holding.feed(PingResponse(*PAIR, 2), 1030)
    assert holding.fire(2030) == [Send(L, Ping(*PAIR, 3))]


def test_ss07_a_report_that_changed_after_the_ping_is_repeated_with_the_next(holding):
    holding.fire(1020)
    holding.feed(StreamProgress("s", 3, 130), 1025)
    holding.feed(PingResponse(*PAIR, 2), 1030)
    assert holding.fire(2030) == [Send(L, Ping(*PAIR, 3, (Report("s", 3, 130, False),)))]


def test_ss07_a_ping_before_the_last_one_was_answered_reports_what_that_did_and_what_changed_since(holding):
    holding.fire(1020)
    holding.feed(Grant(*PAIR, "t", 4, 0), 1025)
    both = (Report("s", 3, 100, False), Report("t", 4, 0, False))
    assert holding.feed(PingTimer(), 1030) == [Send(L, Ping(*PAIR, 3, both))]


def test_ss07_what_was_revoked_meanwhile_is_not_reported_again(holding):
    holding.fire(1020)
    holding.feed(Revoked(*PAIR, "s", 3), 1025)
    assert holding.feed(PingTimer(), 1030) == [Send(L, Ping(*PAIR, 3))]


def test_ss08_the_lease_reaches_from_the_sending_time(new):
    new.feed(LeaderConnectResponse(B, L, 5, 1), 10)
    assert new.feed(PingResponse(*PAIR, 1), 500) == [Tell(LeaseBegan(B))]
    assert new.node.armed_timers()["lease", ""] == 3010 * MS


def test_ss24_an_answer_to_no_outstanding_ping_changes_nothing(connected):
    assert connected.feed(PingResponse(*PAIR, 1), 900) == []
    assert connected.node.armed_timers()["lease", ""] == 3010 * MS


def test_ss24_a_late_answer_to_an_older_ping_is_not_taken_for_that_of_the_last_one(holding):
    """A copy of the answer to ping 1 while ping 2 waits for its own: the leader may never have heard ping 2."""
    holding.feed(StreamProgress("s", 3, 120), 50)
    holding.fire(1020)
    before = holding.node.armed_timers()
    assert holding.feed(PingResponse(*PAIR, 1), 1030) == []
    assert holding.node.armed_timers() == before, "neither a lease nor the next ping comes of it, and the timeout stays"
    holding.feed(OnUnsubscribe(), 1040)
    before = holding.node.armed_timers()
    assert holding.feed(PingResponse(*PAIR, 1), 1050) == []
    assert holding.node.armed_timers() == before


def test_ss08_pings_go_on_while_it_unsubscribes(holding):
    holding.fire(1020)
    holding.feed(OnUnsubscribe(), 1025)
    holding.feed(PingResponse(*PAIR, 2), 1030)
    assert [one.message.n for one in holding.fire(2030) if isinstance(one, Send)] == [3]
    assert holding.status == "unsubscribing"


def test_ss09_no_answer_ends_it(holding):
    holding.fire(1020)
    assert holding.fire(3020)[-2:] == [Tell(Destroyed(B, True, 5)), Stop()]


def test_ss10_a_process_that_wakes_late_meets_its_ended_lease_first(holding):
    holding.fire(1020)
    effects = holding.feed(PingResponse(*PAIR, 2), 3015)
    assert effects == [Tell(LeaseEnded(B)), Tell(LeaseBegan(B))]


@pytest.mark.parametrize(
    "event", [Grant(B, 6, 1, "s", 9, 0), Revoke(B, 5, 2, "s", 9), Revoked(B, 6, 1, "s", 9), PingResponse(B, 6, 1, 1)]
)
def test_ss15_a_message_of_a_higher_pair_ends_it(connected, event):
    assert connected.feed(event, 40)[-2:] == [Tell(Destroyed(B, True, event.epoch)), Stop()]


@pytest.mark.parametrize(
    "event", [Grant(B, 4, 9, "s", 9, 0), Revoke(B, 5, 0, "s", 3), Revoked(B, 4, 1, "s", 3), Invalidate(B, 4, 9)]
)
def test_ss24_a_message_of_a_lower_pair_changes_nothing(holding, event):
    assert holding.feed(event, 40) == []
    assert holding.status == "connected"


def test_ss16_ss40_invalidate_hands_the_streams_back_and_asks_for_a_new_borrower(holding):
    assert holding.feed(Invalidate(*PAIR), 40) == [Tell(Uninstall(B, "s", 3)), Tell(Destroyed(B, True, 5)), Stop()]


def test_ss16_invalidate_before_a_pair_is_adopted(new):
    assert new.feed(Invalidate(B, 7, 1)) == [Tell(Destroyed(B, True, 7)), Stop()]


def test_ss13_unsubscribe_with_nothing_unfinished(connected):
    assert connected.feed(OnUnsubscribe(), 40) == [Send(L, Disconnect(*PAIR)), Tell(Destroyed(B, False, 5)), Stop()]


def test_ss14_ss19_ss39_unsubscribe_finishes_and_leaves_with_the_final_progress(holding):
    assert holding.feed(OnUnsubscribe(), 40) == [Tell(Finish(B, "s", 3))]
    assert holding.status == "unsubscribing"
    assert holding.feed(StreamProgress("s", 3, 105), 50) == [progress(3, 105)]
    assert holding.feed(StreamProgress("s", 3, 110, True), 60) == [
        progress(3, 110, True),
        Send(L, Disconnect(*PAIR, (Report("s", 3, 110, True),))),
        Tell(Uninstall(B, "s", 3)),
        Tell(Destroyed(B, False, 5, (Report("s", 3, 110, True),))),
        Stop(),
    ]


def test_ss17_disconnect_reports_what_is_known(holding):
    holding.feed(StreamProgress("s", 3, 105), 40)
    assert holding.feed(OnDisconnect(), 50)[0] == Send(L, Disconnect(*PAIR, (Report("s", 3, 105, False),)))


def test_ss18_no_answer_while_unsubscribing_is_the_end(holding):
    holding.feed(OnUnsubscribe(), 1000)
    assert holding.fire(1020) == [Send(L, Ping(*PAIR, 2, (Report("s", 3, 100, False),)))]
    assert holding.fire(3020)[-2:] == [Tell(Destroyed(B, False, 5, (Report("s", 3, 100, False),))), Stop()]


def test_ss20_revoked_while_unsubscribing_is_answered(holding):
    holding.feed(Grant(*PAIR, "t", 4, 0), 35)
    holding.feed(OnUnsubscribe(), 40)
    assert finished(3) in holding.feed(Revoked(*PAIR, "s", 3), 50)
    assert holding.status == "unsubscribing"
    assert Send(L, RevokeFinished(*PAIR, "t", 4)) in holding.feed(Revoked(*PAIR, "t", 4), 60)
    assert holding.node.stopped


def test_ss21_the_unsubscribe_timeout_reports_incomplete_progress(holding):
    holding.feed(OnUnsubscribe(), 40)
    holding.feed(StreamProgress("s", 3, 104), 50)
    holding.fire(1020)
    holding.feed(PingResponse(*PAIR, 2), 1030)
    for n, at in ((3, 2030), (4, 3040), (5, 4050)):
        holding.fire(at)
        holding.feed(PingResponse(*PAIR, n), at + 10)
    assert Send(L, Disconnect(*PAIR, (Report("s", 3, 104, False),))) in holding.fire(5040)


def test_ss22_invalidate_while_unsubscribing_is_the_end(holding):
    holding.feed(OnUnsubscribe(), 40)
    assert holding.feed(Invalidate(*PAIR), 50)[-2:] == [Tell(Destroyed(B, False, 5)), Stop()]


def test_ss23_a_late_find_leader_timer_changes_nothing(connected):
    assert connected.feed(FindLeaderTimer(), 1005) == []


@pytest.mark.parametrize("event", [PingTimer(), PingTimeout(), LeaseEnd(), UnsubscribeTimer()])
def test_ss23_late_timers_of_later_statuses_change_nothing_while_connecting(new, event):
    assert new.feed(event, 20) == []
    assert new.status == "connecting"


@pytest.mark.parametrize("event", [FindLeaderTimer(), LeaseEnd()])
def test_ss23_late_timers_change_nothing_while_unsubscribing(holding, event):
    holding.feed(OnUnsubscribe(), 40)
    assert holding.feed(event, 50) == []
    assert holding.status == "unsubscribing"


def test_ss12_progress_is_passed_on_while_unsubscribing(holding):
    holding.feed(OnUnsubscribe(), 40)
    assert holding.feed(StreamProgress("s", 3, 105), 50) == [progress(3, 105)]


def test_ss19_revoked_of_the_last_stream_ends_it_too(holding):
    holding.feed(OnUnsubscribe(), 40)
    out = holding.feed(Revoked(*PAIR, "s", 3), 50)
    assert finished(3) in out
    assert any(isinstance(one, Send) and isinstance(one.message, Disconnect) for one in out)
    assert holding.status == "destroyed"


def test_ss25_grants_and_revokes_change_nothing_while_unsubscribing(holding):
    holding.feed(OnUnsubscribe(), 40)
    assert holding.feed(Grant(*PAIR, "t", 9, 0), 50) == []
    assert holding.feed(Revoke(*PAIR, "s", 3), 50) == []


# -- the stream -----------------------------------------------------------------------------------------------------


def test_ss11_ss30_a_grant_installs_and_is_answered(connected):
    assert connected.feed(Grant(*PAIR, "s", 3, 100), 30) == [Tell(Install(B, "s", 3, 100)), progress(3, 100)]


def test_ss31_the_same_grant_is_answered_with_our_own_progress(holding):
    holding.feed(StreamProgress("s", 3, 107), 40)
    assert holding.feed(Grant(*PAIR, "s", 3, 100), 50) == [progress(3, 107)]


def test_ss32_a_higher_grant_replaces(holding):
    assert holding.feed(Grant(*PAIR, "s", 4, 200), 40) == [
        Tell(Uninstall(B, "s", 3)),
        Tell(Install(B, "s", 4, 200)),
        progress(4, 200),
    ]


def test_ss31_also_while_it_is_being_revoked(holding):
    holding.feed(Revoke(*PAIR, "s", 3), 40)
    assert holding.feed(Grant(*PAIR, "s", 3, 100), 50) == [progress(3, 100)]


def test_ss32_also_while_the_old_one_is_being_revoked(holding):
    holding.feed(Revoke(*PAIR, "s", 3), 40)
    out = holding.feed(Grant(*PAIR, "s", 4, 200), 50)
    assert out == [Tell(Uninstall(B, "s", 3)), Tell(Install(B, "s", 4, 200)), progress(4, 200)]


@pytest.mark.parametrize(
    ("status", "event"),
    [
        (StreamStatus.ABSENT, Finishing()),
        (StreamStatus.REVOKING, Finishing()),
        (StreamStatus.ABSENT, Dropped()),
        (StreamStatus.ABSENT, Replaced()),
    ],
)
def test_ss39_ss40_what_is_not_held_or_is_finishing_already_stays_as_it_is(status, event):
    record = StreamRecord(StreamLink(B, L, 5, 1), "s", status, grant=3)
    assert (STREAM.step(record, event, 0).record, STREAM.step(record, event, 0).effects) == (record, ())


def test_ss11_ss33_ss34_revoke_finishes_and_is_answered_each_time(holding):
    assert holding.feed(Revoke(*PAIR, "s", 3), 40) == [Tell(Finish(B, "s", 3)), progress(3, 100)]
    assert holding.feed(Revoke(*PAIR, "s", 3), 50) == [progress(3, 100)]


@pytest.mark.parametrize("kind", [Revoke, Revoked])
def test_ss35_of_a_lower_grant_is_confirmed_and_changes_nothing(holding, kind):
    assert holding.feed(kind(*PAIR, "s", 2), 40) == [finished(2)]
    assert holding.node.record.streams["s"].grant == 3


@pytest.mark.parametrize("kind", [Revoke, Revoked])
def test_ss36_of_a_higher_grant_drops_what_is_held(holding, kind):
    assert holding.feed(kind(*PAIR, "s", 4), 40) == [Tell(Uninstall(B, "s", 3)), finished(4)]


@pytest.mark.parametrize("kind", [Revoke, Revoked])
def test_ss36_ss41_a_slow_copy_of_an_old_grant_never_installs(connected, kind):
    assert connected.feed(kind(*PAIR, "s", 4), 40) == [finished(4)]
    assert connected.feed(Grant(*PAIR, "s", 4, 0), 50) == []
    assert connected.feed(Grant(*PAIR, "s", 3, 0), 50) == []
    assert connected.node.record.unfinished == 0


def test_ss11_ss37_revoked_removes_and_is_answered(holding):
    holding.feed(Revoke(*PAIR, "s", 3), 40)
    holding.feed(StreamProgress("s", 3, 110, True), 50)
    assert holding.feed(Revoked(*PAIR, "s", 3), 60) == [Tell(Uninstall(B, "s", 3)), finished(3)]
    assert holding.feed(Revoked(*PAIR, "s", 3), 70) == [finished(3)]


def test_ss36_ss37_what_was_asked_for_and_what_was_not_take_rows_of_their_own():
    """Both end the same way; a trace tells them apart."""
    held = StreamRecord(StreamLink(B, L, 5, 1), "s", StreamStatus.REVOKING, grant=3)
    for number, clause in ((3, "SS-37"), (4, "SS-36")):
        assert STREAM.lines[STREAM.step(held, Revoked(*PAIR, "s", number), 0).row].clause == clause


def test_ss12_ss38_the_end_of_the_stream_is_final(holding):
    assert holding.feed(StreamProgress("s", 3, END_OF_STREAM), 40) == [progress(3, END_OF_STREAM, True)]
    assert holding.node.record.unfinished == 0


def test_ss42_progress_of_another_grant_or_behind_changes_nothing(holding):
    holding.feed(StreamProgress("s", 3, 120), 40)
    assert holding.feed(StreamProgress("s", 2, 130), 50) == []
    assert holding.feed(StreamProgress("s", 3, 110), 50) == []
    assert holding.node.record.streams["s"].progress == 120


def test_statuses_have_no_cycle():
    edges = {(a, line.dest) for line in BORROWER.lines if line.dest for a in line.sources}
    order = list(BorrowerStatus)
    assert all(order.index(a) < order.index(b) for a, b in edges)
