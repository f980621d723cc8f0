"""SS-268: what a borrower of many streams reports at once is bounded, and nothing of it is forgotten."""

from __future__ import annotations

from statemachines.kernel import Node, Send
from statemachines.shared_subscriptions import borrower
from statemachines.shared_subscriptions.borrower import BORROWER, BorrowerRecord, OnDisconnect, Start
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Grant,
    LeaderConnectResponse,
    PingResponse,
    Revoked,
)

MOST = 512
B, L = "c1~1/1", "leader~1/1"
PAIR = (B, 5, 1)


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


def test_SS_268_a_stream_that_comes_and_goes_waits_once(monkeypatch):
    monkeypatch.setattr(borrower, "REPORTS_PER_PING", 2)
    bench = Holding(3)
    for grant in range(4, 40, 2):
        bench.feed(Revoked(*PAIR, "s0002", grant), 40)
        bench.feed(Grant(*PAIR, "s0002", grant + 1, 0), 50)
    assert len(bench.node.record.later) <= 4
    assert [bench.ping(), bench.ping(), bench.ping()] == [[0, 1], [2], []]


def test_SS_268_a_disconnect_is_bounded_where_nothing_was_confirmed():
    bench = Holding(600)
    sent = [one.message for one in bench.feed(OnDisconnect(), 40) if isinstance(one, Send) and one.to == L]
    assert [len(one.reports) for one in sent if isinstance(one, Disconnect)] == [MOST]
