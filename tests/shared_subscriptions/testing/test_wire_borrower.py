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
    UpdateProgress,
)
from statemachines.testing.conformance.conformance_run import Violated
from statemachines.testing.conformance.relation import OutputsOf
from statemachines.testing.conformance.role import BegunRecord, EarlierInstance, role_of
from statemachines.testing.conformance.wire_judge import WireCoverage, WireJudge
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


def test_SS_322_a_borrower_that_has_ended_may_only_repeat_its_disconnect():
    kit = Kit()
    kit.connect()
    kit.hear(40, Disconnect(ME, 5, 1))
    assert kit.judge.is_over
    kit.hear(90, Disconnect(ME, 5, 1))
    kit.fails("not expected", kit.hear, 100, Ping(ME, 5, 1, 2))


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
