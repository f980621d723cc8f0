"""Store time runs no faster than a steady clock and a slack, whatever is done to the clock of the database."""

from hypothesis import given, settings
from hypothesis import strategies as st
from watched_clock import DAY, S, WatchedClock

from statemachines.persistent_sessions.session_host_record import RATE, SLACK_NS

MOVES = st.lists(
    st.tuples(st.integers(0, 20 * S), st.sampled_from([0, 0, 0, S, -S, 9 * S, 11 * S, DAY, -DAY, 3_600 * S])),
    min_size=1,
    max_size=40,
)
"""So long the steady clock goes on, and by so much the other is set then."""


@settings(max_examples=80, deadline=None)
@given(moves=MOVES)
def test_PS_291_store_time_runs_no_faster_than_the_steady_clock_and_a_slack(moves):
    """Since the first commit, however often the clock is set; and it never goes back."""
    one = WatchedClock()
    begun, steady, last = one.commit().time_ns, one.steady, 0
    for number, (passes, set_by) in enumerate(moves, 1):
        found = one.move(passes, set_by).commit().time_ns
        passed = one.steady - steady
        assert last < found
        assert found - begun <= passed + passed // RATE + SLACK_NS + number  # a commit is behind the one before
        last = found
