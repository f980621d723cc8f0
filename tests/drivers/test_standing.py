"""Standing: how long a loop has not turned, and what is said of it."""

import logging

import pytest

from statemachines.drivers.loop_watchdog import LoopWatchdog

S = 1_000_000_000


class Clock:
    """A clock by hand."""

    def __init__(self):
        self.now = 100 * S

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def standing(clock):
    """Of a host with a lease of 8 s, so that it looks every second."""
    return LoopWatchdog("c1", 8 * S, clock, "do something")


def said(caplog):
    return [record.getMessage() for record in caplog.records]


def blocked(one, clock, seconds):
    """The loop turns, is to come by in a second, and does so later."""
    one.note_turn()
    one.plan(clock.now + S)
    clock.now += round(seconds * S)


@pytest.mark.parametrize(("seconds", "lines"), [(4, 0), (5, 0), (5.1, 1)])
def test_SS_184_more_than_half_a_lease_is_said(clock, caplog, seconds, lines):
    one = standing(clock)
    blocked(one, clock, seconds)
    with caplog.at_level(logging.WARNING, "gapless"):
        one.note_turn()
    assert (
        said(caplog)
        == ["node c1: its loop stood still for 4.1 s or more, and its leases last 8.0 s: do something"] * lines
    )
