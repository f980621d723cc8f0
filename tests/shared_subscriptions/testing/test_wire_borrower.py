"""The judge over the wire, on a Borrower that these tests play, in virtual time (milliseconds)."""

from __future__ import annotations

import pytest

from statemachines.kernel import Send
from statemachines.shared_subscriptions.borrower import BorrowerRecord
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Report,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.testing.conformance.conformance_run import Violated
from statemachines.testing.conformance.relation import OutputsOf
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_judge import WireCoverage, WireJudge
from statemachines.testing.conformance.wire_role import BegunRecord, EarlierInstance
from statemachines.testing.shared_subscriptions import wire_borrower
from statemachines.testing.shared_subscriptions.wire_borrower import TIMES

ME, LEADER = "peer-1~1/1", "kit~1/5"
TOLERANCE = 1_000
WANTED = LeaderWanted(ME, "g", "#")
CONNECT = LeaderConnectResponse(ME, LEADER, 5, 1)


class Kit:
    """A judge, and the time."""

    def __init__(self, *records):
        records = records or (BegunRecord(BorrowerRecord(ME, "g", "#", ("leader",), TIMES)),)
        self.coverage = WireCoverage(set(), set(), set())
        role = role_of("shared_subscriptions/borrower")
        self.judge = WireJudge(role, role.wire, ME, records, (0, 0), TOLERANCE * MS, self.coverage)
        self._outputs = OutputsOf(role.relation)

    def send(self, at, message):
        self.judge.send(message, at * MS)

    def hear(self, at, message, to=LEADER):
        (came,) = self._outputs.of((Send("leader" if message == WANTED else to, message),))
        self.judge.observe(came, at * MS, at * MS)

    def wait(self, at):
        self.judge.check_silence(at * MS, at * MS)

    def connect(self):
        self.hear(0, WANTED)
        self.send(10, CONNECT)
        self.hear(12, Ping(ME, 5, 1, 1))
        self.send(13, PingResponse(ME, 5, 1, 1))

    def grant(self, at, stream="0.0/a", grant=1):
        self.send(at, Grant(ME, 5, 1, stream, grant, 0))
        self.hear(at + 1, UpdateProgress(ME, 5, 1, stream, grant, 0, False))

    def fails(self, why, act, *arguments):
        with pytest.raises(Violated) as caught:
            act(*arguments)
        assert why in str(caught.value)
        return caught.value.violation


def test_SS_08_the_next_ping_is_wrong_before_it_is_due_and_right_from_then_on():
    kit = Kit()
    kit.connect()
    kit.fails("too early", kit.hear, 212, Ping(ME, 5, 1, 2))
    kit.hear(213, Ping(ME, 5, 1, 2))
    assert {row for _, row, _ in kit.coverage.cells} >= {0, 2, 7, 8}


def test_SS_07_a_ping_that_never_comes_is_a_violation_when_the_tolerance_is_over():
    kit = Kit()
    kit.connect()
    kit.wait(13 + TOLERANCE)
    kit.wait(213 + TOLERANCE)
    violation = kit.fails("missing: send kit~1/5 ping", kit.wait, 213 + 2 * TOLERANCE + 1)
    assert "SS-07" in violation.expected[0][1]


def test_SS_03_silence_after_a_connect_response_names_the_ping_that_is_owed():
    kit = Kit()
    kit.hear(0, WANTED)
    kit.send(10, CONNECT)
    kit.wait(10 + TOLERANCE)
    violation = kit.fails("missing: send kit~1/5 ping", kit.wait, 11 + TOLERANCE)
    assert violation.expected[0][1] == ("SS-03",)
    assert violation.came == ()


def test_SS_11_an_input_may_be_handled_later_than_a_message_that_crosses_it():
    kit = Kit()
    kit.connect()
    kit.send(212, Grant(ME, 5, 1, "0.0/a", 1, 0))
    kit.hear(214, Ping(ME, 5, 1, 2))
    kit.hear(215, UpdateProgress(ME, 5, 1, "0.0/a", 1, 0, False))
    kit.send(216, PingResponse(ME, 5, 1, 2))
    late = (Report("0.0/a", 1, 0, False),)
    kit.fails("reports is []", kit.hear, 420, Ping(ME, 5, 1, 3))
    kit.hear(420, Ping(ME, 5, 1, 3, late))


def test_SS_310_a_borrower_chooses_the_numbers_of_its_pings():
    kit = Kit()
    kit.hear(0, WANTED)
    kit.send(10, CONNECT)
    kit.hear(12, Ping(ME, 5, 1, 70))
    kit.send(13, PingResponse(ME, 5, 1, 1))
    kit.wait(13 + TOLERANCE // 2)
    kit.send(300, PingResponse(ME, 5, 1, 70))
    kit.fails("too early", kit.hear, 499, Ping(ME, 5, 1, 7))
    kit.fails("which was used before", kit.hear, 500, Ping(ME, 5, 1, 70))
    kit.hear(500, Ping(ME, 5, 1, 7))


def test_SS_313_a_repetition_comes_at_once_and_a_question_when_it_is_due():
    kit = Kit()
    for at in (0, 20):
        kit.hear(at, WANTED)
    kit.fails("too early", kit.hear, 200, WANTED)
    kit.hear(301, WANTED)


def test_SS_38_progress_of_the_session_is_seen_when_it_is_sent():
    kit = Kit()
    kit.connect()
    kit.grant(20)
    kit.hear(30, UpdateProgress(ME, 5, 1, "0.0/a", 1, 4, False))
    kit.fails("", kit.hear, 40, UpdateProgress(ME, 5, 1, "0.0/a", 1, 3, False))
    kit.fails("", kit.hear, 40, UpdateProgress(ME, 5, 1, "0.0/b", 1, 3, False))


def test_SS_21_a_client_may_unsubscribe_unseen_but_not_for_ever():
    kit = Kit()
    kit.connect()
    kit.grant(20)
    kit.send(100, Grant(ME, 5, 1, "0.0/b", 2, 0))
    report = (Report("0.0/a", 1, 0, False),)
    kit.hear(215, Ping(ME, 5, 1, 2, report))
    kit.wait(102 + TOLERANCE)  # it may be unsubscribing
    kit.hear(615, Disconnect(ME, 5, 1, report))
    assert kit.judge.is_over


def test_SS_30_a_grant_that_is_ignored_is_found_though_the_client_may_have_unsubscribed():
    kit = Kit()
    kit.connect()
    kit.grant(20)
    kit.send(100, Grant(ME, 5, 1, "0.0/b", 2, 0))
    report, at = (Report("0.0/a", 1, 0, False),), 215
    violation = None
    for n in range(2, 20):
        try:
            kit.hear(at, Ping(ME, 5, 1, n, report if n == 2 else ()))
        except Violated as error:
            violation = error.violation
            break
        kit.send(at + 1, PingResponse(ME, 5, 1, n))
        at += 202
    assert "SS-30" in violation.expected[0][1]


def test_SS_322_a_borrower_that_has_ended_may_only_repeat_its_disconnect():
    kit = Kit()
    kit.connect()
    kit.hear(40, Disconnect(ME, 5, 1))
    assert kit.judge.is_over
    kit.hear(90, Disconnect(ME, 5, 1))
    kit.fails("not expected", kit.hear, 100, Ping(ME, 5, 1, 2))


def test_SS_321_one_that_has_ended_is_followed_by_another_within_the_tolerance():
    kit = Kit()
    kit.connect()
    kit.hear(40, Disconnect(ME, 5, 1))
    kit.wait(40 + TOLERANCE)
    kit.fails("missing: another instance, since this one has ended", kit.wait, 41 + TOLERANCE)
    kit.judge.is_followed = True
    kit.wait(10 * TOLERANCE)


def test_SS_36_the_answer_to_a_stream_that_is_not_held_shows_that_all_before_it_is_handled():
    kit = Kit()
    kit.connect()
    kit.send(20, Invalidate(ME, 4, 1))
    kit.send(21, Revoked(ME, 5, 1, "0.0/probe", 9))
    assert len(kit.judge.sent) == 3
    kit.hear(25, RevokeFinished(ME, 5, 1, "0.0/probe", 9))
    assert kit.judge.sent == []


def earlier(*messages):
    """What is known of an instance that was connected and got these messages."""
    kit = Kit()
    kit.connect()
    kit.grant(20)
    for at, message in enumerate(messages, 30):
        kit.send(at, message)
    return EarlierInstance(WANTED, kit.judge.list_ends(60 * MS))


def epochs(known):
    return [(one.record.epoch, one.goes_on) for one in wire_borrower.begin_record("leader", WANTED, TIMES, known)]


def test_SS_321_a_new_borrower_knows_the_epoch_of_the_one_before():
    assert epochs(()) == [(0, False)]
    assert (7, False) in epochs((earlier(Invalidate(ME, 7, 1)),))
    assert (0, False) not in epochs((earlier(Invalidate(ME, 7, 1)),))
    assert epochs((earlier(),)) == [(0, True), (5, True)]  # only if the client has unsubscribed and subscribes anew
    assert wire_borrower.begin_record("leader", Ping(ME, 5, 1, 1), TIMES, ()) == ()


def test_SS_321_an_epoch_that_was_forgotten_is_found_when_the_one_before_has_certainly_ended():
    def record(epoch):
        return BorrowerRecord(ME, "g", "#", ("leader",), TIMES, epoch=epoch)

    kit = Kit(BegunRecord(record(7)), BegunRecord(record(0), goes_on=True))
    kit.hear(0, WANTED)
    kit.send(10, CONNECT)
    kit.hear(12, Ping(ME, 5, 1, 1))
    kit.fails("ping", kit.judge.note_end)
