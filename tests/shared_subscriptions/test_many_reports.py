"""SS-268: what a borrower of many streams reports at once is bounded, and nothing of it is forgotten."""

from __future__ import annotations

import pytest

from statemachines.drivers.shared_subscriptions.roles import LEADER
from statemachines.kernel import Node, Send
from statemachines.shared_subscriptions import borrower
from statemachines.shared_subscriptions.acknowledged_ranges import limit_reports
from statemachines.shared_subscriptions.borrower import BORROWER, BorrowerRecord, OnDisconnect, Start
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import (
    HOLES_MAX,
    REASON_MAX,
    Disconnect,
    Grant,
    LeaderConnectResponse,
    Ping,
    PingResponse,
    Report,
    Revoked,
)
from statemachines.shared_subscriptions.stream import StreamProgress
from statemachines.wire import Packet

MOST = 512
B, L = "c1~1/1", "leader~1/1"
PAIR = (B, 5, 1)
LONGEST = "3.999999999/" + "t" * 1_024


class Holding:
    """A connected borrower that holds so many streams; time in seconds."""

    def __init__(self, streams):
        record = BorrowerRecord(B, "g", "t/#", ("leader~1",), Configuration())
        self.node = Node(BORROWER, record, name=B, now_ns=0, check=True)
        self.feed(Start())
        self.feed(LeaderConnectResponse(B, L, 5, 1), 10)
        self.feed(PingResponse(*PAIR, 1), 20)
        self.pings = 1
        for number in range(streams):
            self.feed(Grant(*PAIR, name(number), number + 1, 0), 30)

    def feed(self, event, at_ms=0):
        return self.node.feed(event, at_ms * MS)

    def fire(self, at_ms):
        return self.node.fire(at_ms * MS)

    def ping(self):
        """The next ping, which is answered: the numbers of the streams that it reports."""
        self.pings += 1
        (sent,) = [one.message for one in self.fire(1_020 * self.pings) if isinstance(one, Send)]
        self.feed(PingResponse(*PAIR, self.pings), 1_020 * self.pings)
        return [int(report.stream[1:]) for report in sent.reports]


def name(number):
    return f"s{number:04}"


def test_SS_268_a_ping_carries_a_bounded_number_of_reports_and_the_next_ones_the_others():
    bench = Holding(1_200)
    assert [bench.ping(), bench.ping(), bench.ping(), bench.ping()] == [
        list(range(MOST)),
        list(range(MOST, 2 * MOST)),
        list(range(2 * MOST, 1_200)),
        [],
    ]


def test_SS_268_no_stream_is_passed_by_because_others_change_again_and_again():
    bench = Holding(600)
    bench.ping()
    for number in range(MOST):
        bench.feed(StreamProgress(name(number), number + 1, 1), 1_020 * bench.pings + 1)
    assert set(bench.ping()) > set(range(MOST, 600))


def test_SS_268_a_stream_that_comes_and_goes_waits_once(monkeypatch):
    monkeypatch.setattr(borrower, "REPORTS_PER_PING", 2)
    bench = Holding(3)
    for grant in range(4, 40, 2):
        bench.feed(Revoked(*PAIR, "s0002", grant), 40)
        bench.feed(Grant(*PAIR, "s0002", grant + 1, 0), 50)
    assert len(bench.node.record.later) <= 4
    assert [bench.ping(), bench.ping(), bench.ping()] == [[0, 1], [2], []]


def test_SS_268_a_disconnect_lists_what_no_answered_ping_has_confirmed():
    bench = Holding(600)
    bench.ping()
    bench.feed(StreamProgress(name(3), 4, 7), 2_000)
    (last,) = [one.message for one in bench.feed(OnDisconnect(), 2_010) if isinstance(one, Send) and one.to == L]
    assert isinstance(last, Disconnect)
    assert [report.stream for report in last.reports] == [name(3), *map(name, range(MOST, 600))]
    assert last.reports[0] == Report(name(3), 4, 7, False)


def test_SS_268_a_disconnect_is_bounded_where_nothing_was_confirmed():
    bench = Holding(600)
    sent = [one.message for one in bench.feed(OnDisconnect(), 40) if isinstance(one, Send) and one.to == L]
    assert [len(one.reports) for one in sent if isinstance(one, Disconnect)] == [MOST]


@pytest.mark.parametrize("kind", [Ping, Disconnect])
def test_SS_268_with_the_longest_topics_a_frame_has_room_for_them(kind):
    ranges = tuple((2**62, 2**62) for _ in range(HOLES_MAX))
    full = Report(LONGEST, 2**62, 2**62, True, 2**30, True, ranges, "\U0001f4a5" * REASON_MAX)
    reports = limit_reports((full,) * borrower.REPORTS_PER_PING)
    numbers = (2**62,) if kind is Ping else ()
    message = kind("b" * 200, 2**62, 2**62, *numbers, reports)
    codec = LEADER.codec()
    assert codec.decode(codec.encode(Packet("b" * 200, "l" * 200, 2**62, message))[4:]).message == message
