"""A row takes the event of a timer, stays and does not set the timer again: a warning says that it fires once."""

from __future__ import annotations

import warnings

import msgspec
import pytest

from statemachines import catalogue
from statemachines.kernel import STAY, DeclarationWarning, Fsm, Row, SetTimer, Status, Timer, TimerFired


class Due(TimerFired, frozen=True):
    """The timer."""


class Other(TimerFired, frozen=True):
    """Another timer."""


class OnlyStatus(Status):
    ON = "on"


ON = OnlyStatus.ON


class Record(msgspec.Struct, frozen=True):
    status: OnlyStatus = ON


def look(record, event, now_ns):
    return record, ()


def set_again(record, event, now_ns):
    return record, (SetTimer("due", now_ns + 1),)


def set_other(record, event, now_ns):
    return record, (SetTimer("other", now_ns + 1),)


def set_any(record, event, now_ns, name="due"):
    return record, (SetTimer(name, now_ns + 1),)


def look_and_set(record, event, now_ns):
    return set_again(record, event, now_ns)


def declare(do, **timer):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Fsm(
            "clock",
            record=Record,
            states=OnlyStatus,
            initial=ON,
            rows=(Row(Due, ON, STAY, do, None, "CK-1"), Row(Other, ON, STAY, None, None, "CK-2")),
            timers=(
                Timer("due", Due, (ON,), lambda record: 1, **timer),
                Timer("other", Other, (ON,), lambda record: 1, once=True),
            ),
        )
    return [str(one.message) for one in caught if one.category is DeclarationWarning]


@pytest.mark.parametrize("do", [None, look, set_other])
def test_a_timer_that_would_fire_once_is_warned_of_and_may_be_meant(do):
    (said,) = declare(do)
    assert "clock, row 0: takes due, stays in on" in said
    assert "return SetTimer, or declare it once=True" in said
    assert declare(do, once=True) == declare(do, on_entry=False) == []


@pytest.mark.parametrize("do", [set_again, look_and_set, set_any])
def test_one_that_is_set_again_is_fine(do):
    assert declare(do) == []


def test_no_machine_that_is_shipped_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in catalogue.names():
            catalogue.machine(name)._check_timers()
