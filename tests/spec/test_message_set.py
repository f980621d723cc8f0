"""A network that is a set from which nothing is removed, and networks of up to 16 messages."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from toy_system import Hush, Listener, Note, Talker, never_takes, toy

from statemachines.kernel import ConfigurationError, Event
from statemachines_spec import Actor, Budget, Envelope, MessageSet, Post, Reaction, System, explore
from statemachines_spec.explorer import promela
from statemachines_spec.explorer.direct import search
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.post import Hand


def talk(last=1, each=1, most=64):
    budgets = (Budget("hush", 0, lambda actor, event: isinstance(event, Hush)),)
    return System("talk", "", (Talker(last, each), Listener(), MessageSet(most)), budgets=budgets)


def count(system):
    plain, compiled = (explore(system, engine=engine) for engine in ("plain", "compiled"))
    assert (plain.states, plain.transitions, plain.edges) == (compiled.states, compiled.transitions, compiled.edges)
    return plain.states, plain.transitions


def test_a_message_is_delivered_any_number_of_times_by_hand():
    # nothing said -say-> said, and then taken 0, 1, 2, 3 and more times: each a state, a delivery out of each
    assert count(talk()) == (5, 5)


def test_a_message_that_is_sent_again_changes_nothing_by_hand():
    class Repeater(Talker):
        def react(self, local, envelope, watch=None):
            said = super().react(local, envelope)
            return None if said is None else replace(said, local=local)

    # as above, and in each of the five states it is said again
    system = talk()
    assert count(replace(system, actors=(Repeater(1), *system.actors[1:]))) == (5, 5 + 4)


def test_a_naive_search_counts_the_same():
    system = talk(last=2, each=2)
    result, plainest = explore(system, engine="plain"), search(system, 100_000)
    assert (result.states, result.transitions) == (plainest.states, plainest.transitions)


def test_spin_counts_the_same(tmp_path):
    entries = Entries(talk(last=2, each=2))
    result = explore(entries.system, engine="plain", entries=entries)
    counted = promela.judge(entries, tmp_path)
    assert (counted.states, counted.transitions) == (result.states, result.transitions)


def test_more_messages_than_declared_are_cut():
    assert explore(talk(last=2, each=2, most=3), engine="plain").cut_by["messages"] == 1


def test_a_request_and_its_answer_are_handed_over_once():
    class Ask(Event, frozen=True):
        pass

    class Asker(Talker):
        def react(self, local, envelope, watch=None):
            said = super().react(local, envelope)
            return None if said is None else replace(said, sends=(Envelope("talker", "server", Ask()),))

    class Server(Actor):
        def initial(self):
            return Talker(1).initial()

        def inputs(self, local):
            return ()

        def react(self, local, envelope, watch=None):
            return Reaction(replace(local, took=local.took + 1))

    system = replace(talk(), actors=(Asker(2), Server("server"), MessageSet()))
    # asked and answered so often, of at most 2: (0, 0) (1, 0) (1, 1) (2, 0) (2, 1) (2, 2)
    assert count(system) == (6, 6)


def test_the_bounds_say_what_the_network_is():
    lines = talk(most=5).describe_bounds()
    assert lines["messages: network"] == "a set from which nothing is removed; at most 5 different messages"
    assert "network" not in lines


def test_a_post_and_a_set_of_messages_are_refused_together():
    with pytest.raises(ConfigurationError, match="one post or set of messages"):
        explore(System("two", "", (Talker(1), Listener(), MessageSet(), Post(1))))


@pytest.mark.parametrize("most", [0, 256])
def test_a_set_without_bounds_is_refused(most):
    with pytest.raises(ConfigurationError, match="between 1 and 255"):
        MessageSet(most)


def test_a_counterexample_shows_which_message_was_handed_over():
    result = explore(replace(talk(), properties=(never_takes(10),)), engine="plain")
    assert result.path is not None
    *_, last = result.path.legs
    assert last.envelope.event == Hand("note", Envelope("talker", "listener", Note(10)))
    assert [turn.actor for turn in last.turns] == ["messages", "listener"]


def test_ten_messages_in_flight_are_counted_alike():
    system = toy({"in_flight": 10, "lossy": False, "duplicating": False}, last=1, each=9)
    states, _ = count(system)
    # after what was said: which of the nine are taken (the last of them is known), and how many, up to three
    assert states == 2 + sum(len_of * number for number, len_of in enumerate(PASCAL_9) if number)


PASCAL_9 = (1, 9, 36, 84, 126, 126, 84, 36, 9, 1)


def test_more_than_sixteen_messages_in_flight_are_refused():
    with pytest.raises(ConfigurationError, match="between 1 and 16"):
        toy({"in_flight": 17}).check()


def test_a_state_that_does_not_fit_is_refused_by_its_bits():
    system = toy({"in_flight": 16, "lossy": False, "duplicating": False, "ordered": True}, last=14, each=16)
    with pytest.raises(ConfigurationError, match="for components and budgets, 16 x 8 for messages in flight") as raised:
        explore(system, engine="compiled")
    assert "two words of 64 bits" in raised.value.rule
