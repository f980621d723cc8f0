"""The watch of sequence windows, on what happens by hand: each property it judges is broken, and seen to be."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from statemachines.sequence_windows.late_join import Join, Joining
from statemachines.sequence_windows.loss_notifier import Advisory
from statemachines.sequence_windows.message import Judged, Verdict
from statemachines.sequence_windows.publisher_window import Stamped
from statemachines_sim.judge import Violation
from statemachines_sim.scenario import Net, Phases, Scenario, check_scenario
from statemachines_sim.sequence_windows import SIM
from statemachines_sim.sequence_windows.carried_message import Carried
from statemachines_sim.sequence_windows.memory import WindowMemory
from statemachines_sim.sequence_windows.section import WindowSection
from statemachines_sim.units import MS, S
from statemachines_sim.world import World

F = 1_000
"""A frame."""


class Hand:
    """A world without processes of its own: one publisher, one receiver, and everything else by hand."""

    def __init__(self, **keys):
        own = WindowSection(publishers=0, receivers=0, applications=0, **keys)
        scenario = Scenario("by_hand", SIM.name, own, network=Net(fifo=True), phases=Phases(safety_s=1.0))
        self.world = World(check_scenario(scenario))
        self.watch = self.world.watch
        self.p, self.r = self.peer("publisher-1"), self.peer("receiver-1")
        self.watch.speak(self.p)
        self.watch.listen(self.r, ("s", "t"))

    def peer(self, node, life=1):
        one = SimpleNamespace(node=node, life=f"{node}~{life}", is_paused=False, alive=True, clock=None)
        one.local_now = lambda: self.world.now
        self.world.processes[node] = one
        return one

    def at(self, t_ns):
        self.world.env.run(until=t_ns)

    def send(self, frame, base, subject="s", lost=False):
        ordinal = self.watch.publish(self.p, subject, Stamped(frame, base, base))
        carried = Carried(self.p.life, subject, ordinal, frame, base)
        if lost:
            self.lose(carried)
        return carried

    def lose(self, carried, node="receiver-1"):
        self.watch.hit("drop", node, self.p.life, carried.subject, carried, self.world.now)

    def say(self, carried, verdict, lost=0, unknown=False, ends=True):
        told = Judged(Verdict[verdict], carried.frame, carried.first, carried.first, lost, unknown)
        self.watch.judge_message(self.r, carried, told)
        if ends:
            self.watch.end_message(self.r, carried)

    def come(self, frame, base, verdict, lost=0, unknown=False, subject="s"):
        """A message is sent, and comes."""
        self.say(self.send(frame, base, subject), verdict, lost, unknown)

    def tell(self, event):
        self.watch.tell(self.r, self.r.life, event, self.world.now)

    def advise(self, *listed, subjects=None, lost=None):
        total = sum(count for _, count in listed) if lost is None else lost
        self.tell(Advisory(total, len(listed) if subjects is None else subjects, listed))

    def forget(self):
        """The receiver's window turns twice."""
        for _ in range(2):
            self.at(self.world.now + 10 * S + 1)
            self.watch.look_at_window(self.r)

    def breaks(self, name):
        return pytest.raises(Violation, match=f"^{name}: ")


@pytest.fixture
def hand():
    return Hand()


def test_a_whole_run_by_hand_breaks_nothing(hand):
    hand.come(F, 1, "FIRST")
    hand.tell(Joining(Join.UNKNOWN))
    hand.send(F, 2, lost=True)
    hand.send(F, 3, lost=True)
    hand.come(F, 4, "SKIP", 2)
    hand.advise(("s", 2))
    hand.say(hand.send(F, 5), "NEXT")
    hand.at(20 * S)
    assert hand.watch.missing(hand.world) is None
    told = {key: count for key, count in hand.watch.tally().items() if count}
    assert told == {"published": 5, "delivered": 3, "lost": 2, "told": 2, "unverified": 1, "advisories": 1}


# -- MONO -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [(F, 7), (F, 6), (F - 1, 9)])
def test_MONO_numbers_increase(hand, number):
    hand.send(F, 7)
    hand.send(F, 1, subject="t")
    with hand.breaks("MONO"):
        hand.send(*number)


def test_MONO_a_later_frame_begins_with_any_base(hand):
    hand.send(F, 7)
    hand.send(F + 1, 1)


# -- ONCE -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["FIRST", "NEXT", "SKIP", "CYCLE"])
def test_ONCE_what_came_is_not_delivered_again(hand, verdict):
    one = hand.send(F, 1)
    hand.say(one, "FIRST")
    hand.say(one, "REPEAT")
    with hand.breaks("ONCE"):
        hand.say(one, verdict)


def test_ONCE_what_is_new_is_no_repeat(hand):
    hand.come(F, 1, "FIRST")
    with hand.breaks("ONCE"):
        hand.come(F, 2, "REPEAT")


def test_ONCE_what_is_not_subscribed_is_not_delivered_and_the_other_way(hand):
    hand.come(F, 1, "FIRST")
    with hand.breaks("ONCE"):
        hand.come(F, 2, "NOT_SUBSCRIBED")
    hand.watch.subscribe(hand.r, "s", False)
    hand.come(F, 3, "NOT_SUBSCRIBED")
    with hand.breaks("ONCE"):
        hand.come(F, 4, "NEXT")


def test_ONCE_what_is_forgotten_is_known_to_nobody():
    hand = Hand(sub_window_bytes=1)
    hand.come(F, 1, "FIRST")
    hand.forget()
    with hand.breaks("ONCE"):
        hand.come(F, 2, "NEXT")


def test_ONCE_who_subscribes_again_begins_anew(hand):
    hand.come(F, 1, "FIRST")
    hand.watch.subscribe(hand.r, "s", False)
    hand.watch.subscribe(hand.r, "s", True)
    with hand.breaks("ONCE"):
        hand.come(F, 2, "NEXT")


# -- EXACT, NOFALSE, DETECT -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [1, 3])
def test_EXACT_a_loss_is_what_the_network_lost(hand, told):
    hand.come(F, 1, "FIRST")
    hand.send(F, 2, lost=True)
    hand.send(F, 3, lost=True)
    with hand.breaks("EXACT"):
        hand.come(F, 4, "SKIP", told)


def test_EXACT_an_unknown_loss_is_not_a_number_and_a_great_one_is_capped(hand):
    hand.come(F, 1, "FIRST")
    for base in range(2, 5):
        hand.send(F, base, lost=True)
    hand.come(F, 5, "SKIP", 1, unknown=True)
    for base in range(6, 6 + 32_768):
        hand.send(F, base, lost=True)
    late = hand.send(F, 6 + 32_768)
    with hand.breaks("EXACT"):
        hand.say(late, "SKIP", 32_768)
    hand.say(hand.send(F, 6 + 32_769), "SKIP", 32_767)


def test_EXACT_what_is_only_late_was_not_lost(hand):
    hand.come(F, 1, "FIRST")
    hand.send(F, 2)
    hand.send(F, 3, lost=True)
    with hand.breaks("EXACT"):
        hand.come(F, 4, "SKIP", 2)


def test_NOFALSE_a_loss_needs_a_loss(hand):
    hand.come(F, 1, "FIRST")
    with hand.breaks("NOFALSE"):
        hand.come(F, 2, "SKIP", 1)
    other = Hand()
    other.come(F, 1, "FIRST")
    other.send(F, 2, lost=True)
    other.come(F, 3, "SKIP", 1)
    with other.breaks("NOFALSE"):
        other.come(F, 4, "SKIP", 1, unknown=True)


@pytest.mark.parametrize("verdict", ["NEXT", "FIRST", "CYCLE"])
def test_DETECT_what_was_lost_is_told(hand, verdict):
    hand.come(F, 1, "FIRST")
    hand.send(F, 2, lost=True)
    with hand.breaks("DETECT"):
        hand.come(F + 1, 1, verdict)


def test_DETECT_who_knows_a_stream_does_not_begin_anew(hand):
    hand.come(F, 1, "FIRST")
    with hand.breaks("DETECT"):
        hand.come(F, 2, "FIRST")


def test_DETECT_leaves_out_what_a_publisher_has_forgotten():
    hand = Hand(pub_window_bytes=1)
    hand.come(F, 1, "FIRST")
    hand.send(F, 2, lost=True)
    hand.at(11 * S)
    hand.watch.look_at_own_window(hand.p)
    hand.at(22 * S)
    hand.watch.look_at_own_window(hand.p)
    hand.come(F + 2, 1, "CYCLE")
    assert hand.watch.tally()["limit-cycled"] == 1
    hand.send(F + 2, 2, lost=True)
    with hand.breaks("DETECT"):
        hand.come(F + 3, 1, "CYCLE")


def test_a_loss_before_a_first_message_is_counted_apart_from_one_that_was_forgotten():
    hand = Hand(sub_window_bytes=1)
    hand.send(F, 1, lost=True)
    hand.come(F, 2, "FIRST")
    hand.send(F, 3, lost=True)
    hand.forget()
    hand.come(F, 4, "FIRST")
    hand.watch.subscribe(hand.r, "s", False)
    hand.send(F, 5, lost=True)
    hand.watch.subscribe(hand.r, "s", True)
    hand.come(F, 6, "FIRST")
    counts = hand.watch.tally()
    assert (counts["lost"], counts["before_first"], counts["limit-forgotten"], counts["unwanted"]) == (3, 1, 1, 1)


def test_who_is_dead_misses_nothing_and_what_it_had_lost_is_the_last(hand):
    hand.come(F, 1, "FIRST")
    hand.send(F, 2, lost=True)
    hand.r.alive = False
    hand.send(F, 3, lost=True)
    hand.watch.observe_death(hand.r, 0)
    assert hand.watch.tally()["lost"] == hand.watch.tally()["limit-last"] == 1


def test_DETECT_something_is_said_of_every_message_that_comes(hand):
    one = hand.send(F, 1)
    with hand.breaks("DETECT"):
        hand.watch.end_message(hand.r, one)
    hand.say(one, "FIRST")
    with hand.breaks("DETECT"):
        hand.watch.end_message(hand.r, hand.send(F, 2))


# -- limits ---------------------------------------------------------------------------------------------------------


def test_a_limit_that_is_shown_hides_some_loss_and_no_other_does():
    hand = Hand(only="limit-last")
    hand.come(F, 1, "FIRST")
    hand.at(20 * S)
    with hand.breaks("DETECT"):
        hand.watch.missing(hand.world)
    other = Hand(only="limit-last", sub_window_bytes=1)
    other.come(F, 1, "FIRST")
    other.send(F, 2, lost=True)
    other.forget()
    with other.breaks("DETECT"):
        other.come(F, 3, "FIRST")
    shown = Hand(only="limit-last")
    shown.come(F, 1, "FIRST")
    shown.send(F, 2, lost=True)
    shown.at(20 * S)
    assert shown.watch.missing(shown.world) is None
    assert shown.watch.tally()["limit-last"] == 1


# -- JOIN -----------------------------------------------------------------------------------------------------------


def join(hand, verdict=Join.VERIFIED, lost_at=2 * S, converged=3 * S):
    """A message is lost, the network converges, and the next one of the stream is called so."""
    hand.at(lost_at)
    hand.send(F, 1, lost=True)
    if converged:
        hand.at(converged)
        hand.watch.converge(hand.r, hand.world.now)
    hand.at(4 * S)
    hand.come(F, 2, "FIRST")
    hand.tell(Joining(verdict))


def test_JOIN_a_verified_stream_is_complete(hand):
    with hand.breaks("JOIN"):
        join(hand)


def test_JOIN_nobody_verifies_who_was_told_nothing(hand):
    with hand.breaks("JOIN"):
        join(hand, converged=0)


def test_JOIN_who_is_not_sure_claims_nothing():
    for verdict in (Join.UNVERIFIED, Join.UNKNOWN):
        hand = Hand()
        join(hand, verdict)
        assert (hand.watch.tally()["verified"], hand.watch.tally()["unverified"]) == (0, 1)


def test_JOIN_assumes_that_nothing_is_lost_later_that_we_were_there_and_that_clocks_are_right():
    late = Hand()
    late.watch.converge(late.r, S)
    join(late, converged=0)
    new = Hand()
    new.at(S)
    new.watch.listen(new.r, ("s",))
    new.watch.converge(new.r, S - 1)
    new.watch.hearing[new.r.life].lost_at = -1
    new.send(F, 1)
    new.come(F, 2, "FIRST")
    new.tell(Joining(Join.VERIFIED))
    wrong = Hand()
    wrong.watch._operator.step_wall("publisher-1", 1)
    join(wrong)
    for hand in (late, new, wrong):
        assert hand.watch.tally()["verified"] == 1


def test_JOIN_counts_what_reached_the_host_of_the_stream_alone(hand):
    hand.watch.subscribe(hand.r, "s", False)
    hand.send(F, 1, lost=True)
    hand.at(S)
    hand.watch.converge(hand.r, S)
    hand.say(hand.send(F + 1, 1), "NOT_SUBSCRIBED")
    hand.watch.subscribe(hand.r, "s", True)
    hand.come(F + 1, 2, "FIRST")
    hand.tell(Joining(Join.VERIFIED))
    assert hand.watch.tally()["verified"] == 1


def test_JOIN_what_came_of_an_earlier_stream_makes_up_for_nothing(hand):
    hand.come(F, 1, "FIRST")
    hand.come(F, 2, "NEXT")
    hand.send(F + 1, 1, lost=True)
    hand.at(S)
    hand.watch.converge(hand.r, S)
    hand.watch.subscribe(hand.r, "s", False)
    hand.watch.subscribe(hand.r, "s", True)
    hand.come(F + 1, 2, "FIRST")
    with hand.breaks("JOIN"):
        hand.tell(Joining(Join.VERIFIED))


# -- THROTTLE, NOTIFY -----------------------------------------------------------------------------------------------


def lose_and_skip(hand, base, count=1, subject="s"):
    """So many are lost, and the next one says so."""
    for n in range(count):
        hand.send(F, base + n, subject, lost=True)
    hand.come(F, base + count, "SKIP", count, subject=subject)


def lossy(**keys):
    hand = Hand(**keys)
    hand.come(F, 1, "FIRST")
    hand.come(F, 1, "FIRST", subject="t")
    lose_and_skip(hand, 2)
    return hand


def test_THROTTLE_a_second_lies_between_two_advisories():
    hand = lossy()
    hand.advise(("s", 1))
    lose_and_skip(hand, 4)
    hand.at(S - 1)
    with hand.breaks("THROTTLE"):
        hand.advise(("s", 1))
    other = lossy()
    other.advise(("s", 1))
    lose_and_skip(other, 4)
    other.at(S)
    other.advise(("s", 1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"listed": (("s", 3),)},
        {"listed": (("s", 2), ("t", 1))},
        {"listed": (("t", 1), ("s", 2)), "subjects": 1},
        {"listed": (("t", 1), ("s", 2)), "lost": 2},
        {"listed": (("s", 3),), "lost": 3, "subjects": 2},
    ],
)
def test_THROTTLE_an_advisory_is_what_was_lost(wrong):
    hand = lossy()
    hand.advise(("s", 1))
    lose_and_skip(hand, 2, subject="t")
    lose_and_skip(hand, 4, 2)
    hand.at(S)
    with hand.breaks("THROTTLE"):
        hand.advise(*wrong.pop("listed"), **wrong)


def test_THROTTLE_nine_subjects_are_listed_and_all_are_counted():
    names = tuple(f"n{number}" for number in range(12))
    hand = Hand()
    hand.watch.listen(hand.r, names)
    for name in names:
        hand.come(F, 1, "FIRST", subject=name)
        lose_and_skip(hand, 2, subject=name)
    hand.advise(*((name, 1) for name in names[:9]), subjects=12, lost=12)


def test_THROTTLE_a_second_that_is_over_is_told_before_the_loss_that_came_then():
    hand = lossy()
    hand.advise(("s", 1))
    lose_and_skip(hand, 4)
    hand.at(S)
    hand.send(F, 6, lost=True)
    hand.say(hand.send(F, 7), "SKIP", 1, ends=False)
    hand.advise(("s", 1))
    hand.at(2 * S)
    hand.advise(("s", 1))
    other = lossy()
    other.send(F, 2, subject="t", lost=True)
    other.say(other.send(F, 3, subject="t"), "SKIP", 1, ends=False)
    other.advise(("s", 1))
    late = lossy()
    lose_and_skip(late, 4)
    late.at(S)
    with late.breaks("THROTTLE"):
        late.advise(("s", 1))


def test_NOTIFY_nobody_waits_longer_than_a_second_of_the_slowest_clock():
    hand = lossy()
    hand.at(S + S // 5_000 + 100 * MS)
    with hand.breaks("NOTIFY"):
        hand.advise(("s", 1))
    other = lossy()
    other.at(S + S // 5_000)
    other.advise(("s", 1))
    first = lossy()
    first.at(S * 9 // 10)
    lose_and_skip(first, 4)
    first.at(S * 3 // 2)
    with first.breaks("NOTIFY"):
        first.advise(("s", 2))
    silent = lossy()
    silent.at(20 * S)
    with silent.breaks("NOTIFY"):
        silent.watch.missing(silent.world)


def test_NOTIFY_who_stands_still_advises_when_it_goes_on():
    hand = lossy()
    hand.r.is_paused = True
    hand.at(9 * S)
    assert hand.watch.missing(hand.world)[0] == "NOTIFY", "and nothing is broken yet"
    hand.r.is_paused = False
    hand.watch.fault("resume", "receiver-1", 9 * S)
    hand.advise(("s", 1))
    lose_and_skip(hand, 4)
    hand.at(11 * S)
    with hand.breaks("NOTIFY"):
        hand.tell(Joining(Join.UNKNOWN))


# -- what a window must remember ------------------------------------------------------------------------------------


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


def test_a_memory_of_just_its_size_never_turns():
    memory = WindowMemory(size=49, time_ns=10, overhead=48, now_ns=0)
    memory.touch("a")
    for now_ns in (11, 22, 33, 44):
        assert list(memory.tick(now_ns)) == []
    assert "a" in memory


def test_what_was_forgotten_or_left_may_come_again(hand):
    one = hand.send(F, 1)
    hand.say(one, "FIRST")
    hand.watch.subscribe(hand.r, "s", False)
    assert "s" not in hand.watch.hearing[hand.r.life].memory
    hand.watch.subscribe(hand.r, "s", True)
    hand.say(one, "FIRST")


def test_a_run_that_is_not_watched_is_not_judged():
    hand = Hand()
    hand.watch.judging = False
    hand.come(F, 1, "FIRST")
    hand.come(F, 2, "SKIP", 7)
