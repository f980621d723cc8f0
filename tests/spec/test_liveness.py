"""Obligations under weak fairness: what must be met at last, and what is never met."""

from __future__ import annotations

import msgspec
import pytest
from lock_toy import WAITING, lock_system
from toy_system import toy

from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer.property import Eventually, View
from statemachines_spec.liveness.judge import live


def silent_until(number):
    """Open until the listener took `number`."""
    return Eventually("taken", "", (View("listener", 100, lambda local: local.n),), lambda n: n != number)


def test_an_obligation_that_everything_leads_to_is_met():
    (result,) = live(toy({"in_flight": 1, "lossy": False, "duplicating": False}, last=1), [silent_until(10)])
    assert result.is_held
    assert result.open_states == 2


def test_a_message_that_was_lost_and_is_never_sent_again():
    (result,) = live(toy({"in_flight": 1, "duplicating": False}, last=1), [silent_until(10)])
    # At the bound the talker may say no more: nothing is claimed of a talker that might say more beyond it.
    assert result.is_held
    assert result.bounded == 1


def test_standing_still_for_ever_is_found():
    system = toy({"in_flight": 1, "duplicating": False}, last=1, hushes=1)
    (result,) = live(system, [silent_until(10)])
    assert not result.is_held
    assert result.way.last["talker"].n == -1
    assert result.then.legs == result.round.legs == ()
    longer = msgspec.structs.replace(result, then=result.way)
    assert (result.run.broken, result.run.legs) == (result.name, result.way.legs)
    assert longer.run.legs == 2 * result.way.legs
    assert msgspec.structs.replace(result, way=None, then=None).run is None


def test_going_round_for_ever_is_found():
    """The talker talks on; the listener takes 10 to 30 again and again and never 99."""
    from toy_system import Talker

    from statemachines_spec.explorer.actor import Reaction

    class Chattering(Talker):
        def react(self, local, envelope, watch=None):
            reaction = super().react(local, envelope, watch)
            if reaction is None or reaction.local.n < self.last:
                return reaction
            return Reaction(self.initial(), reaction.sends)

    one = toy({"in_flight": 2}, last=2)
    one = msgspec.structs.replace(one, actors=(Chattering(2), one.actors[1]))
    (result,) = live(one, [silent_until(99)])
    assert not result.is_held
    assert len(result.round.legs) >= 4  # two words, and both are taken: nothing that stays possible is left out
    taken = {leg.envelope.event for leg in result.round.legs}
    assert {getattr(event, "n", 0) for event in taken} >= {10, 20}


@pytest.mark.parametrize("engine", ["auto", "plain", "compiled"])
def test_a_system_that_is_too_large_is_refused(engine):
    with pytest.raises(ConfigurationError, match="smaller size"):
        live(toy({"in_flight": 4}, last=20), [silent_until(10)], states_max=100, engine=engine)


def test_an_unknown_engine_is_refused():
    with pytest.raises(ConfigurationError, match="auto, compiled, plain"):
        live(toy({}), [], engine="fast")


def waiting_ends(system):
    """Whoever waits for the lock waits no longer, sooner or later."""
    holder = next(actor for actor in system.actors if actor.name == "holder-1")
    return Eventually("waits", "who waits gets the lock, or gives up", (holder.is_in(WAITING),), lambda on: on)


def test_a_declared_machine_meets_its_obligations_and_not_without_the_timer_that_it_rests_on():
    system = lock_system(asks=1)
    assert live(system, [waiting_ends(system)])[0].is_held
    silent = lock_system(asks=1)
    for actor in silent.actors:
        actor.silent = frozenset({"lease"})
    (result,) = live(silent, [waiting_ends(silent)])
    assert not result.is_held
    assert result.then is not None
