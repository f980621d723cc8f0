"""Recovery in the simulator: runs hold, something happens in them, and each property of recovery is broken by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from statemachines.drivers.sequence_windows import RecoveryQuery, held_messages
from statemachines.drivers.sequence_windows.sent_messages import SentMessages
from statemachines.drivers.sequence_windows.subscriber import Delivery, Loss
from statemachines.kernel import ConfigurationError, Tell
from statemachines.sequence_windows import held_stream_actions
from statemachines.sequence_windows.held_stream_record import HeldRun, RunSettled
from statemachines.sequence_windows.message import Verdict
from statemachines.sequence_windows.sequence import number_of
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import Net, check_scenario, find_scenario
from statemachines_sim.sequence_windows import SIM
from statemachines_sim.sequence_windows.carried_message import Carried
from statemachines_sim.sequence_windows.recovery_answer import Returned
from statemachines_sim.sequence_windows.recovery_watch import RecoveryWatch
from statemachines_sim.sequence_windows.section import WindowSection
from statemachines_sim.units import S
from statemachines_sim.world import World

F = 1_000
SCENARIOS = ("asked_again", "newest_alone", "some_kept")


def number(base):
    return number_of(F, base)


class Broken(AssertionError):
    """A property of recovery was broken."""


class Hand:
    """One publisher, one receiver, one subject; everything by hand."""

    def __init__(self, history=3):
        self.now = 0
        self.watch = RecoveryWatch(WindowSection(history=history, recovery=True), self.report, lambda: self.now)
        self.p = SimpleNamespace(node="publisher-1", life="publisher-1~1", is_paused=False)
        self.r = SimpleNamespace(node="application-1", life="application-1~1", is_paused=False)
        self.watch.listen(self.r)

    def report(self, broken, *where):
        for one in broken:
            raise Broken(f"{one.name}: {one.detail}")

    def send(self, count):
        for base in range(1, count + 1):
            self.watch.publish((self.p.life, "s"), F, base, base - 1)

    def carried(self, base):
        return Carried(self.p.life, "s", base - 1, F, base)

    def lose(self, *bases):
        for base in bases:
            self.watch.drop(self.r.life, self.carried(base))

    def arrive(self, base):
        self.watch.arrive(self.r, self.carried(base))

    def bring(self, base, in_time=True):
        self.watch.bring(self.r, Returned(self.p.life, "s", base - 1, "", "1", 1), in_time)

    def deliver(self, base, verdict="NEXT", lost=0, recovered=False, unknown=False):
        one = Delivery(self.p.life, "s", b"", number(base), Verdict[verdict], lost, unknown, None, recovered)
        self.watch.deliver(self.r, one)

    def say_lost(self, base, lost):
        self.watch.lose(self.r, Loss(self.p.life, "s", number(base), lost, False))

    def ask(self, first, last):
        self.watch.ask(self.r, RecoveryQuery(self.p.life, "s", number(first), number(last)))

    def come(self, base, verdict="NEXT"):
        self.arrive(base)
        self.deliver(base, verdict)

    def breaks(self, name):
        return pytest.raises(Broken, match=f"^{name}: ")


@pytest.fixture
def hand():
    """Five are sent, and 2 and 3 are lost."""
    one = Hand()
    one.send(6)
    one.lose(2, 3)
    one.come(1, "FIRST")
    one.arrive(4)
    return one


def test_a_recovery_by_hand_breaks_nothing(hand):
    hand.ask(2, 3)
    hand.bring(3)
    hand.say_lost(3, 1)
    hand.deliver(3, "SKIP", 1, recovered=True)
    hand.deliver(4)
    assert hand.watch.end([hand.r]) == ""
    hand.watch.judge_sum(hand.r, 1)
    assert hand.watch.counts == {"asked": 1, "brought": 1, "recovered": 1, "given_up": 1}


def test_ORDER_nothing_is_delivered_again_or_too_late(hand):
    hand.say_lost(4, 2)
    hand.deliver(4, "SKIP", 2)
    for base in (4, 3, 1):
        with hand.breaks("ORDER"):
            hand.deliver(base)


def test_ORDER_nothing_is_delivered_that_nobody_brought_and_who_brought_it_is_said(hand):
    with hand.breaks("ORDER"):
        hand.deliver(2)
    hand.bring(2)
    with hand.breaks("ORDER"):
        hand.deliver(2, recovered=False)
    hand = Hand()
    hand.send(3)
    hand.come(1, "FIRST")
    hand.arrive(2)
    with hand.breaks("ORDER"):
        hand.deliver(2, recovered=True)


@pytest.mark.parametrize(("verdict", "said", "lost"), [("NEXT", 0, 0), ("SKIP", 1, 1), ("SKIP", 2, 1), ("SKIP", 0, 2)])
def test_REPORT_what_is_missing_is_told_once(hand, verdict, said, lost):
    if said:
        hand.say_lost(4, said)
    with hand.breaks("REPORT"):
        hand.deliver(4, verdict, lost)


def test_REPORT_a_loss_is_said_once_and_sums_agree(hand):
    hand.say_lost(4, 2)
    with hand.breaks("REPORT"):
        hand.say_lost(4, 2)
    hand = Hand()
    hand.send(1)
    with hand.breaks("REPORT"):
        hand.watch.judge_sum(hand.r, 1)


def test_NOGAP_a_publisher_answers_with_all_that_it_keeps(hand):
    query = RecoveryQuery(hand.p.life, "s", number(2), number(5))
    hand.watch.answer(hand.p, query, [3, 4])
    for wrong in ([4], [], [2, 3, 4], [3, 4, 5], [4, 3]):
        with hand.breaks("NOGAP"):
            hand.watch.answer(hand.p, query, wrong)


def test_NOGAP_what_was_brought_in_time_is_not_lost(hand):
    hand.bring(2)
    hand.say_lost(4, 2)
    with hand.breaks("NOGAP"):
        hand.deliver(4, "SKIP", 2)
    hand = Hand()
    hand.send(3)
    hand.lose(2)
    hand.come(1, "FIRST")
    hand.bring(2, in_time=False)
    hand.arrive(3)
    hand.say_lost(3, 1)
    hand.deliver(3, "SKIP", 1)


def test_SETTLED_nobody_waits_longer_than_all_queries_take(hand):
    longest = 7 * (500 + 1_000) * S // 1_000
    hand.now = longest
    hand.watch.look(hand.r)
    hand.now += S
    with hand.breaks("SETTLED"):
        hand.watch.look(hand.r)
    assert "before messages [3]" in hand.watch.end([SimpleNamespace(**{**vars(hand.r), "is_paused": True})])
    hand.watch.resume(hand.r.node)
    hand.watch.look(hand.r)
    hand.watch.forget(hand.r, "s")
    assert hand.watch.end([hand.r]) == ""


def test_SETTLED_an_answer_that_brings_something_begins_the_wait_anew(hand):
    longest = 7 * (500 + 1_000) * S // 1_000
    hand.now = longest
    hand.bring(2)
    hand.now += longest
    hand.watch.look(hand.r)
    hand.bring(2)
    hand.now += S
    with hand.breaks("SETTLED"):
        hand.watch.look(hand.r)


@pytest.mark.parametrize(("first", "last"), [(1, 3), (2, 4), (2, 5), (4, 4)])
def test_QUIET_only_what_was_lost_is_asked_for(hand, first, last):
    with hand.breaks("QUIET"):
        hand.ask(first, last)


def test_QUIET_what_nothing_came_before_is_not_asked_for():
    hand = Hand()
    hand.send(3)
    hand.lose(1, 2)
    hand.arrive(3)
    with hand.breaks("QUIET"):
        hand.ask(1, 2)


# -- runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
def test_something_is_asked_for_and_what_comes_of_it_is_told(name):
    (outcome,) = campaign(find_scenario(f"{SIM.name}/{name}"), range(7, 8), processes=1)
    assert outcome.is_held, outcome
    tally = outcome.tally
    assert tally["asked"] > 0
    assert (tally["recovered"] > 0) is (name != "newest_alone")
    assert name == "asked_again" or tally["given_up"] > 0


def test_without_loss_nothing_is_asked_for():
    scenario = find_scenario(f"{SIM.name}/fair")
    world = World(replace(scenario, own=replace(scenario.own, recovery=True, history=9)), 3)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert (outcome.tally["asked"], outcome.tally["brought"]) == (0, 0)


def settle_at_once(record, place, event, now_ns, step_run=held_stream_actions.step_run):
    """As if the oldest run missed nothing."""
    record, effects, seen = settle_never(record, place, event, now_ns, step_run)
    return record, (*effects, Tell(RunSettled(record.stream, 1, len(record.runs) - 1))), seen


def settle_never(record, place, event, now_ns, step_run=held_stream_actions.step_run):
    """As if the oldest run always missed something."""
    record, effects, seen = step_run(record, place, event, now_ns)
    kept = [one for one in effects if not (isinstance(one, Tell) and isinstance(one.event, RunSettled))]
    return record, tuple(kept), seen


@pytest.mark.parametrize(
    ("bug", "scenario", "caught"),
    [
        ((SentMessages, "answer", lambda self, query: list(self._sent.values())[:1]), "some_kept", "NOGAP"),
        ((held_messages, "judge_released", lambda told, filled, lost, own: told), "some_kept", "REPORT"),
        ((held_stream_actions, "step_run", settle_at_once), "some_kept", "QUIET|REPORT|ORDER|SETTLED"),
        ((held_stream_actions, "step_run", settle_never), "newest_alone", "SETTLED"),
        ((HeldRun, "missing_until", property(lambda run: run.high)), "some_kept", "QUIET"),
    ],
)
def test_a_bug_in_recovery_is_noticed(monkeypatch, bug, scenario, caught):
    monkeypatch.setattr(*bug)
    (outcome,) = campaign(find_scenario(f"{SIM.name}/{scenario}"), range(7, 8), processes=1)
    assert not outcome.is_held
    assert outcome.monitor in caught.split("|")


def test_recovery_needs_a_network_that_keeps_order():
    scenario = find_scenario(f"{SIM.name}/some_kept")
    wrong = replace(scenario, network=Net(fifo=False), out_of_scope=("EXACT", "NOFALSE", "DETECT", "JOIN"))
    with pytest.raises(ConfigurationError, match="where applications recover"):
        check_scenario(wrong)
