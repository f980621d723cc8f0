"""What the log of a leader host tells of its groups (SS-257), over the pure stores."""

from __future__ import annotations

import logging

import pytest
from test_leader import Bench

from statemachines.drivers.shared_subscriptions import milestones
from statemachines.drivers.shared_subscriptions.milestones import Milestones
from statemachines.kernel import Ask, Node
from statemachines.shared_subscriptions import group_store
from statemachines.shared_subscriptions.claim import Halt
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.message import Disconnect, LeaderWanted

SAYS = "leader-1: group g, #: "


class Told(Bench):
    """A leader whose milestones are logged."""

    def __init__(self, **options):
        super().__init__(**options)
        observe = Milestones("leader-1", self.saw).observe
        self.node = Node(LEADER, self.before, name=self.before.id, now_ns=0, check=True, observe=observe)

    def renew(self, ms):
        """The heartbeat asks the store, which answers at that time."""
        self.down = "deaf"
        self.at(5_000)
        self.down = ""
        for answer in self.apply(Ask(group_store.SERVICE, self.lost.pop())):
            self.feed(answer, ms)


@pytest.fixture
def said(caplog):
    """What was logged since it was asked last."""
    caplog.set_level(logging.INFO, logger="gapless")

    def new():
        lines = [record.getMessage() for record in caplog.records]
        assert all(line.startswith(SAYS) for line in lines)
        assert {record.levelname for record in caplog.records} <= {"INFO"}
        caplog.clear()
        return [line.removeprefix(SAYS) for line in lines]

    return new


def test_SS_257_who_goes_without_a_word_is_named_and_so_is_the_end_of_its_lease(said):
    bench = Told().start()
    bench.join("a")
    bench.ping("a")
    said()
    bench.at(bench.now + 5_000)
    waits = "; its streams wait for the end of its lease"
    gone = [f"a~1/1 is no member any more: it expired, since nothing was heard of it{waits}"]
    assert said() == [*gone, "the lease of a~1/1 has ended; its streams are free"]


def test_SS_257_who_comes_and_goes_without_end_fills_no_log(caplog, monkeypatch):
    """And what a leader says of its claim is not left out for it."""
    monkeypatch.setattr(milestones, "LINES_MAX", 4)
    monkeypatch.setattr(milestones, "WINDOW_NS", 1_000 * MS)
    caplog.set_level(logging.INFO, logger="gapless")
    bench = Told().start()
    caplog.clear()
    for number in range(4):
        bench.feed(LeaderWanted("a~1/1", "g", "#"))
        bench.feed(Disconnect("a~1/1", 1, number + 1, ()))
    members = [one for one in caplog.messages if "member" in one or "streams" in one]
    assert len(members) == 4, members
    caplog.clear()
    bench.feed(LeaderWanted("b~1/1", "g", "#"), bench.now + 1_000)
    bench.feed(Halt())
    left_out, member, *others = caplog.messages
    assert "lines about members were left out; somebody comes and goes without end" in left_out
    assert member.endswith("b~1/1 is a member")
    assert others[-1].endswith("does not lead it any more: released")
