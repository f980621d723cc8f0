"""The watch of sequence windows, on what happens by hand: each property it judges is broken, and seen to be.

Simulated multicast: runs hold, they repeat, every lost message is accounted for, and faults do what they say.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
from broken_runs import WatchHand, runs_of
from long_cases import mark_long

from statemachines.kernel import ConfigurationError
from statemachines.sequence_windows.late_join import Join, Joining
from statemachines.sequence_windows.loss_notifier import Advisory
from statemachines.sequence_windows.message import Judged, Verdict
from statemachines.sequence_windows.publisher_window import Stamped
from statemachines.sequence_windows.sequence import start_of
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import (
    Net,
    Phases,
    Scenario,
    check_scenario,
    find_scenario,
    from_plain,
    list_shipped_with,
)
from statemachines_sim.sequence_windows import SIM
from statemachines_sim.sequence_windows.carried_message import Carried
from statemachines_sim.sequence_windows.section import LIMITS, OF_ORDER, WindowSection
from statemachines_sim.sequence_windows.watch import WindowMemory
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

F = 1_000
"""A frame."""
TWELVE = tuple(f"n{number}" for number in range(12))
LISTED = tuple((name, 1) for name in TWELVE[:9])


class Hand(WatchHand):
    """A world without processes of its own: one publisher, one receiver, and everything else by hand."""

    def __init__(self, **keys):
        own = WindowSection(publishers=0, receivers=0, applications=0, **keys)
        scenario = Scenario("by_hand", SIM.name, own, network=Net(fifo=True), phases=Phases(safety_s=1.0))
        self.world = World(check_scenario(scenario))
        self.watch = self.world.watch
        self.p, self.r = self.peer("publisher-1"), self.peer("receiver-1")
        self.watch.speak(self.p)
        self.watch.listen(self.r, ("s", "t"))
        self.sent = None

    def peer(self, node, life=1):
        one = SimpleNamespace(node=node, life=f"{node}~{life}", is_paused=False, alive=True, clock=None)
        one.local_now = lambda: self.world.now
        one.wall = lambda: start_of(F + 9)
        self.world.processes[node] = one
        return one

    def send(self, frame, base, subject="s"):
        ordinal = self.watch.publish(self.p, subject, Stamped(frame, base, base))
        self.sent = Carried(self.p.life, subject, ordinal, frame, base)

    def lost(self, frame, first, last, subject="s"):
        """Messages are sent, and the network loses them."""
        for base in range(first, last + 1):
            self.send(frame, base, subject)
            self.watch.hit("drop", "receiver-1", self.p.life, subject, self.sent, self.world.now)

    def again(self, verdict, lost=0, unknown=False, ends=True):
        """What was sent last comes."""
        one = self.sent
        told = Judged(Verdict[verdict], one.frame, one.first, one.first, lost, unknown)
        self.watch.judge_message(self.r, one, told)
        if ends:
            self.end()

    def end(self):
        self.watch.end_message(self.r, self.sent)

    def come(self, frame, base, verdict, lost=0, unknown=False, subject="s"):
        """A message is sent, and comes."""
        self.send(frame, base, subject)
        self.again(verdict, lost, unknown)

    def skip(self, base, count=1, subject="s"):
        """So many are lost, and the next one says so."""
        self.lost(F, base, base + count - 1, subject)
        self.come(F, base + count, "SKIP", count, subject=subject)

    def subscribe(self, is_wanted):
        self.watch.subscribe(self.r, "s", is_wanted)
        assert is_wanted or "s" not in self.watch.hearing[self.r.life].memory

    def tell(self, event):
        self.watch.tell(self.r, self.r.life, event, self.world.now)

    def join(self, verdict):
        self.tell(Joining(verdict))

    def advise(self, *listed, subjects=None, lost=None):
        total = sum(count for _, count in listed) if lost is None else lost
        self.tell(Advisory(total, len(listed) if subjects is None else subjects, listed))

    def forget(self):
        """The receiver's window turns twice."""
        for _ in range(2):
            self.at(self.world.now + 10 * S + 1)
            self.watch.look_at_window(self.r)

    def look_at_own(self, t_ns):
        self.at(t_ns)
        self.watch.look_at_own_window(self.p)

    def converged(self, t_ns):
        self.watch.converge(self.r, t_ns)

    def converges(self, verdict, t_ns):
        """A message is lost, the network converges (0: never), and the next one of the stream is called so."""
        self.at(2 * S)
        self.lost(F, 1, 1)
        if t_ns:
            self.at(t_ns)
            self.converged(t_ns)
        self.at(4 * S)
        self.come(F, 2, "FIRST")
        self.join(verdict)

    def new(self):
        """The receiver begins."""
        self.watch.listen(self.r, ("s",))
        self.watch.hearing[self.r.life].lost_at = -1

    def step_wall(self):
        self.watch._operator.step_wall("publisher-1", 1)

    def dies(self):
        self.r.alive = False

    def buried(self):
        self.watch.observe_death(self.r, 0)

    def pauses(self):
        self.r.is_paused = True

    def resumes(self):
        self.r.is_paused = False
        self.watch.fault("resume", "receiver-1", self.world.now)


def many(*subjects):
    """A loss on each."""
    hand = Hand()
    hand.watch.listen(hand.r, subjects)
    for subject in subjects:
        hand.come(F, 1, "FIRST", subject=subject)
        hand.skip(2, subject=subject)
    return hand


def lossy():
    """Two streams, and a loss on one."""
    hand = Hand()
    hand.come(F, 1, "FIRST")
    hand.come(F, 1, "FIRST", subject="t")
    hand.skip(2)
    return hand


def twice():
    """That was told, and a second later there is more."""
    hand = lossy()
    hand.advise(("s", 1))
    hand.skip(2, subject="t")
    hand.skip(4, 2)
    hand.at(S)
    return hand


test_broken = runs_of(Path(__file__).parent / "broken/watch.txt", {**Join.__members__, **globals(), "HAND": Hand})


def test_a_memory_turns_when_both_bounds_are_passed_and_forgets_in_two_turns():
    memory = WindowMemory(size=49, time_ns=10, overhead=48, now_ns=0)
    memory.touch("a")
    assert list(memory.tick(11)) == [], "49 bytes are not more than 49"
    memory.touch("b")
    assert list(memory.tick(10)) == [], "10 ns are not more than 10"
    assert list(memory.tick(11)) == []
    memory.touch("b")
    assert list(memory.tick(21)) == []
    assert list(memory.tick(22)) == ["a"]
    assert "a" not in memory
    assert "b" in memory


def test_a_run_that_is_not_watched_is_not_judged():
    hand = Hand()
    hand.watch.judging = False
    hand.come(F, 1, "FIRST")
    hand.come(F, 2, "SKIP", 7)


NAMES = sorted(list_shipped_with(SIM.name))
SHOWN = {"forgotten": "limit-forgotten", "nothing_follows": "limit-last", "cycled": "limit-cycled"}
ACCOUNTS = ("told", "unknown", *LIMITS, "before_first", "unwanted")


@pytest.mark.parametrize("name", mark_long(NAMES, "thin_links"))
def test_every_scenario_of_losses_holds_and_every_loss_is_accounted_for(name):
    scenario = find_scenario(f"{SIM.name}/{name}")
    for outcome in campaign(scenario, range(2 if name in (*SHOWN, "any_weather") else 1), processes=1):
        assert outcome.is_held, outcome
        tally = outcome.tally
        assert tally["delivered"] > 0
        assert outcome.noted.keys() <= set(scenario.out_of_scope)
        if scenario.network.fifo:
            assert tally["lost"] == sum(tally[key] for key in ACCOUNTS), "each of them once"
        hiding = {limit for limit in LIMITS if tally[limit]}
        assert name not in SHOWN or hiding == {SHOWN[name]}


@pytest.mark.parametrize(
    ("bug", "scenario", "caught"),
    [
        ("floor-stays", "wrong_walls", "MONO"),
        ("old-is-kept", "fair", "ONCE"),
        ("one-less-lost", "crowded", "EXACT"),
        ("cycle-is-a-loss", "crowded", "NOFALSE"),
        ("newest-is-forgotten", "many_publishers", "DETECT"),
        ("displaced-uncounted", "many_publishers", "CROWD"),
        ("another-stream-is-next", "rarely", "DETECT"),
        ("joins-at-the-frame", "newcomers", "JOIN"),
        ("every-loss-at-once", "brimful", "THROTTLE"),
        ("second-not-set-again", "brimful", "NOTIFY"),
    ],
)
def test_a_planted_bug_breaks_its_property(bug, scenario, caught):
    with plant_bug(f"{SIM.name}/{bug}"):
        outcome = World(find_scenario(f"{SIM.name}/{scenario}"), 0, trace=False).run()
    assert outcome.monitor == caught, outcome


# -- what a scenario may say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "named_key"),
    [
        ("publishers", -1, "publishers"),
        ("subjects", 0, "subjects"),
        ("interest", 5, "interest"),
        ("publish_ms", [0, 10], "publish_ms"),
        ("resubscribe_s", [0, 10], "resubscribe_s"),
        ("away_ms", [9, 3], "away_ms"),
        ("rest", 1.5, "rest"),
        ("pub_window_s", 9, "pub_window_s"),
        ("sub_window_bytes", 0, "sub_window_bytes"),
        ("converge_s", [99.0], "converge_s"),
        ("only", "limit-none", "limit-forgotten, limit-last, limit-cycled"),
    ],
)
def test_a_value_that_cannot_be_is_named(key, value, named_key):
    plain = {"name": "mine", "protocol": SIM.name, "network": {"fifo": True}, SIM.name: {key: value}}
    with pytest.raises(ConfigurationError, match=named_key):
        check_scenario(from_plain(plain))


def test_a_network_without_order_must_say_what_it_breaks():
    plain = {"name": "mine", "protocol": SIM.name, "out_of_scope": ["EXACT", "NOFALSE", "DETECT"]}
    with pytest.raises(ConfigurationError, match=r"network.fifo.*have JOIN"):
        check_scenario(from_plain(plain))
    check_scenario(from_plain(plain | {"out_of_scope": list(OF_ORDER)}))
    check_scenario(from_plain({"name": "mine", "protocol": SIM.name, "network": {"fifo": True}}))
