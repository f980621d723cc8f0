"""Store time runs no faster than a steady clock and a slack, whatever is done to the clock of the database."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from statemachines.persistent_sessions.store_time import RATE, SLACK_NS, Steady, StoreTime, next_time, time_of_read

S = 1_000_000_000
DAY = 86_400 * S
MOVES = st.lists(
    st.tuples(st.integers(0, 20 * S), st.sampled_from([0, 0, 0, S, -S, 9 * S, 11 * S, DAY, -DAY, 3_600 * S])),
    min_size=1,
    max_size=40,
)
"""So long the steady clock goes on, and by so much the other is set then."""


class Watched:
    """A process that commits, and the clocks that it sees."""

    def __init__(self):
        self.steady, self.clock = 5 * S, 1_000 * S
        self.known, self.seen = StoreTime(0), None

    def move(self, passes, set_by=0):
        self.steady += passes
        self.clock += passes + set_by
        return self

    def commit(self):
        expected = None if self.seen is None else self.seen.expected_time_ns(self.steady)
        self.known = next_time(self.known, self.clock, expected)
        lead = self.known.time_ns - self.steady
        self.seen = Steady(lead, self.steady) if self.seen is None else self.seen.look(self.known.time_ns, self.steady)
        return self.known


@settings(max_examples=80, deadline=None)
@given(moves=MOVES)
def test_PS_291_store_time_runs_no_faster_than_the_steady_clock_and_a_slack(moves):
    """Since the first commit, however often the clock is set; and it never goes back."""
    one = Watched()
    begun, steady, last = one.commit().time_ns, one.steady, 0
    for number, (passes, set_by) in enumerate(moves, 1):
        found = one.move(passes, set_by).commit().time_ns
        passed = one.steady - steady
        assert last < found
        assert found - begun <= passed + passed // RATE + SLACK_NS + number  # a commit is behind the one before
        last = found


def test_PS_291_a_small_step_is_followed_and_no_alarm():
    one = Watched()
    before = one.commit().time_ns
    found = one.move(S, 9 * S).commit()
    assert (found.time_ns - before, found.ahead_ns, found.stopped_ns) == (10 * S, 0, 0)


def test_PS_291_steps_that_are_small_each_do_not_add_up():
    one = Watched()
    one.commit()
    found = [one.move(S, 3 * S).commit() for _ in range(5)]
    assert [bool(each.stopped_ns) for each in found] == [False, False, False, True, True]


def test_PS_292_a_leap_stops_ages_and_not_the_time():
    one = Watched()
    before = one.commit().time_ns
    found = one.move(S, DAY).commit()
    assert (found.time_ns, found.ahead_ns, found.stopped_ns) == (before + S, DAY, before + S)
    later = one.move(60 * S).commit()
    assert later.time_ns == before + 61 * S
    assert later.age_limit_ns(later.time_ns) == before + S


def test_PS_293_ages_count_again_when_the_clock_has_come_back():
    one = Watched()
    before = one.commit().time_ns
    one.move(S, DAY).commit()
    found = one.move(60 * S, -DAY).commit()
    assert found == StoreTime(before + 61 * S)
    assert found.age_limit_ns(found.time_ns) == found.time_ns


def test_PS_293_a_process_that_begins_finds_a_clock_that_has_come_back_and_one_that_has_not():
    ahead = StoreTime(1_000 * S, DAY, 900 * S)
    assert next_time(ahead, 1_060 * S, None) == StoreTime(1_060 * S)
    assert next_time(ahead, DAY + 1_060 * S, None) == StoreTime(1_060 * S, DAY, 900 * S)
    assert next_time(ahead, DAY + 999 * S, None).ahead_ns == DAY, "a step back of a second is no return"


def test_PS_291_a_read_is_no_later_than_a_commit_would_be():
    known = StoreTime(1_000 * S)
    assert time_of_read(known, DAY, 1_001 * S) == 1_001 * S
    assert time_of_read(known, 5 * S, 1_001 * S) == known.time_ns
    assert time_of_read(known, DAY, None) == DAY, "time that nobody has seen counts as passed"
