"""Events with a budget that are no fault once nobody speaks for whom they are about, such as the expiry of the dead."""

from __future__ import annotations

import pytest
from toy_system import Count, Hush, Listener, Note, Talker

from statemachines.kernel import ConfigurationError, TimerFired
from statemachines_spec.explorer.actor import Envelope, Reaction
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Eventually, View
from statemachines_spec.explorer.system import Budget, Due, System
from statemachines_spec.liveness.faultless_moves import Tail
from statemachines_spec.liveness.judge import live

GAVE_UP = 99


class GiveUp(TimerFired, frozen=True):
    """The listener gives the talker up."""


class Brief(Talker):
    """A talker that has nothing more to say after `last`."""

    def inputs(self, local):
        return (Hush(),) if local.n == self.last else super().inputs(local)


class Patient(Listener):
    """A listener with a timer that is set until it fires."""

    def inputs(self, local):
        return () if local.n == GAVE_UP else (GiveUp("talker"),)

    def react(self, local, envelope, watch=None):
        if local.n == GAVE_UP:
            return Reaction(local)
        if isinstance(envelope.event, GiveUp):
            return Reaction(Count(GAVE_UP, 0))
        return super().react(local, envelope)


def is_talking(actor, local):
    return ("talker",) if actor == "talker" and local.n >= 0 else ()


DUE = Due(lambda actor, local, event: event.key, is_talking)
CARRIED = Due(DUE.about, DUE.kept, lambda envelope: ("talker",) if isinstance(envelope.event, Note) else ())


def patience(due, *, limit=1, hushes=1):
    budgets = (
        Budget("hush", hushes, lambda actor, event: isinstance(event, Hush)),
        Budget("give up", limit, lambda actor, event: isinstance(event, GiveUp), due),
    )
    return System("toy", "", (Brief(1), Patient()), Network(1), (), budgets)


HUSHED = View("talker", 2, lambda local: int(local.n < 0))
WAITS = View("listener", 2, lambda local: int(local.n != GAVE_UP))
LEFT = Eventually("left", "a talker that is gone is given up", (HUSHED, WAITS), lambda hushed, waits: hushed and waits)
BORED = Eventually("bored", "whoever talks is given up", (WAITS,), bool)


def test_of_a_timer_with_a_budget_nothing_is_known():
    (result,) = live(patience(None), [LEFT])
    assert (result.is_held, result.bounded > 0) == (True, True)


@pytest.mark.parametrize("limit", [0, 1], ids=["limit 0", "limit 1"])
@pytest.mark.parametrize("due", [DUE, CARRIED], ids=["kept", "carried"])
def test_once_it_is_due_it_happens_whatever_is_left_of_the_budget(due, limit):
    (result,) = live(patience(due, limit=limit), [LEFT])
    assert result.open_states > 0
    assert (result.is_held, result.bounded) == (True, 0)


def test_as_long_as_it_is_not_due_it_is_a_fault():
    (result,) = live(patience(DUE), [BORED])
    assert not result.is_held
    assert {type(leg.envelope.event) for leg in result.then.legs + result.round.legs} <= {Note}


def test_what_never_happens_in_a_system_never_does_unless_it_is_due():
    (result,) = live(patience(None, limit=0), [LEFT])
    assert (result.is_held, result.bounded) == (False, 0)


def test_the_way_may_lead_over_what_is_due():
    """The talker is given up, and then nothing more comes."""
    silent = Eventually("silent", "", (View("talker", 2, lambda local: int(local.n < 0)),), bool)
    (result,) = live(patience(DUE, limit=0), [silent])
    events = [type(leg.envelope.event) for leg in result.then.legs]
    assert not result.is_held
    assert events[-1] is GiveUp
    assert result.then.last["listener"].n == GAVE_UP


def test_a_message_on_its_way_speaks_for_its_sender():
    entries = Entries(patience(CARRIED))
    tail = Tail(entries)
    note = entries.envelope(Envelope("talker", "listener", Note(10)))
    hushed = entries.local(0, Count(-1))
    quiet = tail.calm((hushed, entries.start[1], 0, 0, 0))
    assert [type(entries.envelopes[move.action.event].event) for move in tail.of(quiet)] == [GiveUp]
    spoken = tail.calm((hushed, entries.start[1], 0, 0, note))
    assert [type(entries.envelopes[move.action.event].event) for move in tail.of(spoken)] == [Note]


def test_too_many_subjects_are_refused():
    system = patience(Due(DUE.about, lambda actor, local: range(100)))
    with pytest.raises(ConfigurationError, match="coarser"):
        live(system, [LEFT])
