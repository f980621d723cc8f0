"""ProcessActor: a whole process as a component: turns, timers, pauses and crashes across its parties."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines_spec.bug import change_rows
from statemachines_spec.explorer.actor import Actor, Crash, Envelope, Hear, Pause, Reaction, Restart, Wake
from statemachines_spec.explorer.entry_tables import Nondeterministic
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.fsm_actor import PAUSED
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.process_actor import PartyInput, PartyPass, ProcessActor
from statemachines_spec.explorer.property import Always, Sometimes
from statemachines_spec.explorer.system import System, at_most

sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
import office
from office import OFFICE, Busy, Check, ClerkRecord, OfficeRecord, Question, Reply, Visit


def make_actor(**options):
    options = {"lives": 2, "faults": (Crash, Pause), "calls": lambda record: (Check(),), **options}
    return ProcessActor("o", OFFICE, lambda life: OfficeRecord(life), bound=has_few_clerks, **options)


def has_few_clerks(parts):
    """At most two clerks in a life."""
    return parts.own.record.number <= 2


def count_clerks(parts):
    return len(parts.parties)


class Visitor(Actor):
    """It comes, and asks, whenever it likes."""

    def initial(self):
        return ClerkRecord("v")

    def inputs(self, local):
        return (Visit("v"), Question(1))

    def react(self, local, envelope, watch=None):
        if envelope.sender:
            return Reaction(local)
        to = "o" if isinstance(envelope.event, Visit) else "o~1/1"
        return Reaction(local, (Envelope("v", to, envelope.event),))


def build(*properties, **options):
    actor = make_actor(**options)
    visitor = Visitor("v")
    agree = Always(
        "clerks known",
        "the office knows its clerks",
        (actor.view(lambda parts: int(not agrees(parts))),),
        lambda bad: not bad,
    )
    two = Sometimes("two clerks", "both serve", (actor.view(count_clerks, 3),), lambda count: count == 2)
    budgets = (at_most("crash", 1, Crash), at_most("pause", 1, Pause))
    return System("office", "", (actor, visitor), Network(1), (agree, two, *properties), budgets)


def agrees(parts):
    return sorted(parts.own.record.clerks) == [one.party.record.id for one in parts.parties]


def test_a_kind_that_exceeds_its_bound_is_refused_in_the_first_exploration():
    actor = ProcessActor("o", OFFICE, lambda life: OfficeRecord(life, limit=3), bound=lambda parts: True)
    result = explore(System("office", "", (actor, Visitor("v")), Network(1)), engine="plain")
    assert "office: begins more than 2 of clerk at a time; guard the row that begins them, or declare more" in (
        result.path.why
    )


def test_two_processes_of_one_name_are_refused():
    with pytest.raises(ConfigurationError, match="'o': two components have this name; rename one"):
        System("office", "", (make_actor(), make_actor()), Network(1)).check()


def test_a_process_is_explored_with_its_parties():
    result = explore(build())
    assert (result.is_held, result.is_shown, result.ended) == (True, True, "complete")
    machines = {machine for machine, _, _ in result.cells}
    assert machines == {"office", "clerk"}


def test_a_mistake_in_the_table_of_a_process_is_found():
    with ExitStack() as stack:
        change_rows(office.OFFICE_MACHINE, "forget_clerk", do=None)(stack)
        result = explore(build())
    assert result.path is not None
    assert result.path.broken == "clerks known"


def test_what_goes_on_at_once_does_so_within_the_turn():
    actor = make_actor(tells={Busy: "listener"})
    local = actor.react(actor.initial(), Envelope("v", "o", Visit("v"))).local
    reaction = actor.react(actor.initial(), Envelope("v", "o", Visit("v")))
    assert reaction.sends == (Envelope("o~1/1", "v", Reply(0)),)
    assert reaction.calls == (Envelope("o~1/1", "listener", Busy()),)
    assert [one.party.timers for one in local.parts.parties] == [(("shift", ""),)]


def test_timers_of_authority_fire_first_across_the_parties_of_a_process_that_wakes():
    actor = make_actor()
    local = actor.initial()
    for _ in range(2):
        local = actor.react(local, Envelope("v", "o", Visit("v"))).local
    local = actor.react(local, Envelope("", "o", Pause())).local
    assert local.mode is PAUSED
    assert actor.react(local, Envelope("v", "o~1/1", Question(1))) is None, "messages wait"
    passing = [event for event in actor.inputs(local) if isinstance(event, PartyPass)]
    assert [event.party for event in passing] == ["o~1/1", "o~1/2"]
    for event in reversed(passing):
        local = actor.react(local, Envelope("", "o", event)).local
    assert Hear() not in actor.inputs(local), "all that is due has authority"
    watch = []
    woken = actor.react(local, Envelope("", "o", Wake()), watch).local
    assert [one.party for one in watch if one.machine == "clerk"] == ["o~1/2", "o~1/1"], "in the order of the deadlines"
    assert (woken.parts.parties, woken.passed) == ((), ())


def test_a_process_that_crashed_comes_back_with_another_life_or_with_its_disk():
    actor = make_actor(disk=lambda crashed, fresh: replace(fresh, gone=crashed.gone + 1))
    gone = actor.react(actor.initial(), Envelope("", "o", Crash())).local
    assert actor.inputs(gone) == (Restart(),)
    assert actor.react(gone, Envelope("v", "o", Visit("v"))).local == gone
    back = actor.react(gone, Envelope("", "o", Restart())).local
    assert (back.life, back.parts.own.record) == (2, OfficeRecord("o~2", gone=1))


def test_a_timer_that_was_taken_back_may_fire_late():
    actor = make_actor(late=True)
    local = actor.react(actor.initial(), Envelope("v", "o", Visit("v"))).local
    fired = next(event for event in actor.inputs(local) if isinstance(event, PartyInput))
    assert fired.party == "o~1/1"
    local = actor.react(local, Envelope("", "o", fired)).local
    assert local.parts.parties == ()


def test_a_step_that_is_no_function_is_an_error_of_whoever_declared_it():
    answers = iter(range(1_000))

    def reply(record, event, now_ns):
        return replace(record, asked=next(answers)), ()

    with ExitStack() as stack:
        change_rows(office.CLERK, "reply", do=reply, when=lambda record, event: True)(stack)
        actor = make_actor()
        local = actor.react(actor.initial(), Envelope("v", "o", Visit("v"))).local
        with pytest.raises(Nondeterministic, match="two results for Question"):
            actor.react(local, Envelope("v", "o~1/1", Question(1)))


def test_what_leaves_a_process_is_not_answered_inside_its_turn():
    actor = make_actor(route=lambda to: (to, "copy"))
    reaction = actor.react(actor.initial(), Envelope("v", "o", Visit("v")))
    assert [(one.to, one.event) for one in reaction.sends] == [("v", Reply(0)), ("copy", Reply(0))]
    assert reaction.calls == ()
