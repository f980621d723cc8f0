"""What the log of a leader host tells of its groups (SS-257), over the pure stores."""

from __future__ import annotations

import logging

import pytest
from test_leader import Bench, only

from statemachines.drivers.shared_subscriptions import milestones
from statemachines.drivers.shared_subscriptions.milestones import Milestones
from statemachines.kernel import Ask, Node
from statemachines.shared_subscriptions import group_store
from statemachines.shared_subscriptions.claim import Halt
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.message import Disconnect, Grant, LeaderWanted, Revoke, UpdateProgress

SAYS = "leader-1: group g, #: "
LATE_MS = 7_500
"""Half of a `claim_ttl`."""


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


def test_SS_257_who_leads_since_when_and_why_no_longer(said):
    bench = Told().start()
    assert said() == ["leads it, under epoch 1"]
    bench.feed(Halt())
    assert said() == ["does not lead it any more: released"]


def test_SS_257_one_that_followed_never_led(said):
    first = Bench(configuration=Bench().record.configuration).start()
    second = Told(groups=first.groups, node="leader-2").start()
    second.feed(Halt())
    assert said() == ["does not lead it: it never led"]


@pytest.mark.parametrize("late_ms", [-1, 0])
def test_SS_257_a_claim_that_is_renewed_late_is_named(said, late_ms):
    bench = Told().start()
    said()
    bench.renew(LATE_MS + late_ms)
    late = "renewed its claim late, 7.5 s after the last time, of 15.0 s; its store is slow, or it stood still"
    assert said() == ([] if late_ms else [late])


def test_SS_257_a_claim_that_ends_is_lost(said):
    bench = Told().start()
    bench.down = "deaf"
    bench.at(15_000)
    assert said() == ["leads it, under epoch 1", "does not lead it any more: the claim is lost"]


def test_SS_257_members_come_and_go_and_streams_move(said):
    bench = Told().start()
    said()
    (grant,) = only(Grant, bench.feed(LeaderWanted("a~1/1", "g", "#")))[:1]
    bench.feed(LeaderWanted("a~1/1", "g", "#"))
    assert said() == ["a~1/1 is a member", "streams moved: 2 granted; it has 1 members"]
    for one in only(Grant, bench.at(bench.now + 1_000)):
        bench.progress(one)
    revokes = only(Revoke, bench.feed(LeaderWanted("b~1/1", "g", "#")))
    assert said() == ["b~1/1 is a member", "streams moved: 1 taken back; it has 2 members"]
    bench.feed(Disconnect("b~1/1", grant.epoch, 2, ()))
    assert said() == ["b~1/1 is no member any more: it left"]
    bench.finish(revokes[0])
    assert said() == []  # counted for a second, and then said in one line
    bench.at(bench.now + 1_000)
    assert said() == ["streams moved: 1 granted; it has 1 members"]
    bench.ping("a")
    assert said() == []


def test_SS_257_who_goes_without_a_word_is_named_and_so_is_the_end_of_its_lease(said):
    bench = Told().start()
    bench.join("a")
    bench.ping("a")
    said()
    bench.at(bench.now + 5_000)
    waits = "; its streams wait for the end of its lease"
    gone = [f"a~1/1 is no member any more: it expired, since nothing was heard of it{waits}"]
    assert said() == [*gone, "the lease of a~1/1 has ended; its streams are free"]


def test_SS_257_who_is_kicked_is_told_apart_from_who_expires(said):
    bench = Told().start()
    bench.feed(LeaderWanted("a~1/1", "g", "#"))
    for n in range(1, 9):
        bench.at(n * 1_000)
        if "a~1/1" in bench.record.members:
            bench.ping("a", n)
    waits = "; its streams wait for the end of its lease"
    assert f"a~1/1 is no member any more: it was kicked, since it did not answer a grant{waits}" in said()


def test_SS_257_who_reports_what_is_not_stored_is_kicked_for_that(said):
    bench = Told().start()
    (grant, _) = only(Grant, bench.feed(LeaderWanted("a~1/1", "g", "#")))
    bench.feed(UpdateProgress("a~1/1", grant.epoch, 1, grant.stream, grant.grant, 2**40, False))
    kicked = "a~1/1 is no member any more: it was kicked, since the store does not cover what it reported"
    assert kicked in said()


def test_SS_257_nothing_that_somebody_else_wrote_reaches_the_log_raw(said):
    bench = Told().start()
    said()
    bench.feed(LeaderWanted("a\x1b[2J\u202e~1/1", "g", "#"))
    assert said()[0] == r"a\x1b[2J\u202e~1/1 is a member"
    assert bench.now * MS == 0


def test_SS_257_who_does_not_finish_what_is_taken_back_is_kicked_for_that(said):
    bench = Told().start()
    bench.join("a")
    bench.feed(LeaderWanted("b~1/1", "g", "#"))
    for n in range(1, 13):
        bench.at(n * 1_000)
        if "a~1/1" in bench.record.members:
            bench.ping("a", n)
    waits = "; its streams wait for the end of its lease"
    kicked = "a~1/1 is no member any more: it was kicked, since it did not finish a stream that was taken back"
    assert f"{kicked}{waits}" in said()
    assert "SS-149" in bench.clauses, "the trace sees every step, too"


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
