"""The loop of the clock does what SimPy's own does."""

import pytest
import simpy

from statemachines_sim.clock import SimulatedClock


def run_both(play, *until):
    """What the same play notes under SimPy's loop and under ours."""
    notes = []
    for env in (simpy.Environment(), SimulatedClock()):
        seen = []
        play(env, seen)
        for end in until:
            env.run(until=end)
            seen.append(("now", env.now))
        notes.append(seen)
    return notes


def chain(env, seen):
    """Events at equal times, events made meanwhile, some at the end itself, and a process of SimPy's."""

    def note(event):
        seen.append((env.now, event.value))
        if event.value < 40:
            for later in (0, 3, 5):
                env.timeout(later, event.value * 3 + later).callbacks.append(note)

    def walk():
        for n in range(9):
            yield env.timeout(2)
            seen.append((env.now, "walk", n))

    for n in (5, 1, 5, 2):
        env.timeout(n, n).callbacks.append(note)
    env.process(walk())


def test_events_come_in_the_order_of_simpy_and_none_at_the_end_or_after_it():
    theirs, ours = run_both(chain, 5, 6, 30)
    assert ours == theirs
    assert len(ours) > 50


def test_time_passes_to_the_end_without_an_event():
    env = SimulatedClock()
    env.run(until=7)
    assert env.now == 7


def test_an_event_that_failed_ends_the_run():
    for env in (simpy.Environment(), SimulatedClock()):
        env.event().fail(ValueError("lost"))
        with pytest.raises(ValueError, match="lost"):
            env.run(until=3)


def test_a_processed_event_is_over_as_with_simpy():
    env = SimulatedClock()
    event = env.timeout(1)
    env.run(until=2)
    assert event.processed
