"""The walkers on a system small enough to count by hand; every claim for both, and for the plainest search.

A network that is a set from which nothing is removed, and networks of up to 16 messages.

Messages that take a bounded number of ticks.

Properties that are judged only where no message is in flight, by every search that there is.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from symmetric_system import Hush, Listener, Note, Talker, Took, backwards, never_takes, quiet_before_note, taken, toy

from statemachines.kernel import ConfigurationError, Event
from statemachines_spec import Budget, MessageSet, Post, Reaction, TickClock
from statemachines_spec.explorer import promela
from statemachines_spec.explorer.actor import Actor, Envelope
from statemachines_spec.explorer.explore import COMPLETE, FULL, INTERRUPTED, VIOLATED, explore
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.post import Hand
from statemachines_spec.explorer.property import NO_ERROR, Always, Sometimes, Stepwise, View
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.replay import replay
from statemachines_spec.explorer.service_actor import search
from statemachines_spec.explorer.system import System

CERTAIN = {"lossy": False, "duplicating": False}

COUNTED = (
    "ended", "states", "transitions", "cuts", "terminal", "levels", "edges", "entries", "locals", "always", "sometimes",
    "messages",
)  # fmt: skip

NETWORKS = [
    {"in_flight": 1},
    {"in_flight": 2},
    {"in_flight": 3, "duplicating": False},
    {"in_flight": 3, "lossy": False},
    {"in_flight": 2, **CERTAIN},
    {"in_flight": 3, **CERTAIN, "ordered": True},
    {"in_flight": 3, "ordered": True},
]


def both(system, **options):
    """The result of both engines, the compiled one in one thread and in several, which agree on everything that is
    counted."""
    plain = explore(system, engine="plain", **options)
    for threads in (1, 2, 3):
        compiled = explore(system, engine="compiled", threads=threads, **options)
        for field in COUNTED:
            assert getattr(plain, field) == getattr(compiled, field), field
        assert (plain.path and plain.path.script) == (compiled.path and compiled.path.script)
    return plain


@pytest.mark.long
def test_one_word_over_a_certain_network_by_hand():
    # start -say-> (1, in flight) -deliver-> (1, taken); a second word is beyond the bounds in all three
    result = both(toy({"in_flight": 1, **CERTAIN}, last=1))
    assert (result.states, result.transitions, result.levels) == (3, 2, (1, 1, 1))
    assert result.cuts == 2
    assert result.terminal == 1


def test_a_lossy_network_adds_the_loss_by_hand():
    # besides the three states above: said, and nothing in flight
    result = both(toy({"in_flight": 1, "duplicating": False}, last=1))
    assert (result.states, result.transitions, result.levels) == (4, 3, (1, 1, 2))


def test_a_copy_may_be_handed_over_and_stay_by_hand():
    # talker said 1: {in flight or not} x {taken 0, 1, 2, 3 or more times} - without in flight: lost after each; + start
    result = both(toy({"in_flight": 1}, last=1))
    assert result.states == 1 + 4 + 4


@pytest.mark.parametrize("network", NETWORKS, ids=str)
@pytest.mark.parametrize("each", [1, 3])
def test_both_walkers_count_what_the_plainest_search_counts(network, each):
    system = toy(network, last=2, each=each, hushes=1, orders=(quiet_before_note(),), observed=True)
    result = both(system)
    plainest = search(system, 10**6)
    assert (plainest.states, plainest.transitions, plainest.depth) == (
        result.states,
        result.transitions,
        len(result.levels) - 1,
    )
    assert result.ended == COMPLETE


def test_every_choice_of_what_finds_room_is_explored():
    one = both(toy({"in_flight": 1, "duplicating": False}, last=1, each=3, properties=tuple(map(taken, (10, 11, 12)))))
    assert all(one.sometimes.values())
    assert one.is_shown


def test_without_loss_a_step_that_finds_no_room_is_cut():
    result = both(toy({"in_flight": 2, **CERTAIN}, last=1, each=3, properties=(taken(10),)))
    assert (result.states, result.cuts) == (1, 1)
    assert not result.is_shown


@pytest.mark.parametrize("ordered", [True, False])
def test_only_an_ordered_network_keeps_the_order(ordered):
    network = {"in_flight": 3, **CERTAIN, "ordered": ordered}
    result = both(toy(network, last=3, properties=(backwards(),), observed=True))
    assert result.is_held is ordered
    if not ordered:
        assert result.ended == VIOLATED
        assert len(result.path.legs) == 4  # say, say, take 2, take 1


def test_a_budget_bounds_a_fault_over_the_whole_run():
    none, one = (both(toy({"in_flight": 1}, hushes=hushes)) for hushes in (0, 1))
    assert one.states > none.states


def test_a_deadline_order_holds_an_event_back_and_can_be_left_out():
    silent = Always(
        "said before hush",
        "",
        (View("talker", 2, lambda local: int(local.n < 0)), View("listener", 2, lambda local: int(local.took > 0))),
        lambda hushed, took: not hushed or took,
    )
    kept = both(toy({"in_flight": 1}, hushes=1, properties=(silent,), orders=(quiet_before_note(),)))
    free = both(toy({"in_flight": 1}, hushes=1, properties=(silent,)))
    assert (kept.is_held, free.is_held) == (True, False)
    assert len(free.path.legs) == 1


def test_a_step_property_breaks_at_its_step():
    result = both(toy({"in_flight": 1}, properties=(never_takes(20),)))
    assert result.always == {NO_ERROR: True, "never 20": False}
    # say, say (the first one is lost, or taken), take 20
    assert len(result.path.legs) == 4
    assert result.path.broken == "never 20"


def test_a_step_that_raises_is_a_violation_that_tells_what():
    result = both(toy({"in_flight": 1}, fail_at=10))
    assert not result.always[NO_ERROR]
    assert "cannot take 10" in result.path.why


class Called(Listener):
    def __init__(self):
        Actor.__init__(self, "twice")
        self.fail_at = -1


class Echoing(Talker):
    """Its word calls somebody else, too, within the same step."""

    def react(self, local, envelope, watch=None):
        reaction = super().react(local, envelope, watch)
        if reaction is None or isinstance(envelope.event, Hush):
            return reaction
        return replace(reaction, calls=(Envelope("talker", "twice", Note(reaction.local.n)),))


def test_what_breaks_in_a_called_component_is_shown_though_what_was_sent_finds_no_room():
    """The second word fills no place: the network is certain, and has one, which the first has taken."""
    actors = (Echoing(2), Listener(), Called())
    broken = Stepwise(
        "never twice", "", lambda actor, before, event, after: (actor, getattr(event, "n", 0)) != ("twice", 2)
    )
    result = both(System("toy", "counts", actors, Network(1, **CERTAIN), (broken,)))
    assert (result.ended, result.path.broken) == (VIOLATED, "never twice")
    assert [turn.actor for turn in result.path.legs[-1].turns] == ["talker", "twice"]
    assert [envelope.event for envelope in result.path.legs[-1].left_out] == [Note(20)]


class Missed(Event, frozen=True):
    n: int


class Wrapped(Event, frozen=True):
    """Carries an event; its type is not in its bytes."""

    inner: Any


class Vague(Talker):
    """May say two things that are encoded alike."""

    def inputs(self, local):
        return (Wrapped(Took(1)), Wrapped(Missed(1)))


def test_two_events_of_one_component_with_the_same_bytes_are_refused_by_name():
    with pytest.raises(ConfigurationError) as said:
        explore(System("toy", "counts", (Vague(1), Listener()), Network(1)), engine="plain")
    assert all(part in str(said.value) for part in ("talker", "Wrapped(inner=Took(n=1))", "Wrapped(inner=Missed(n=1))"))


def test_equal_runs_are_equal():
    first, second = (both(toy({"in_flight": 2}, properties=(backwards(),), observed=True)) for _ in range(2))
    assert first.path == second.path
    assert first.edges == second.edges


@pytest.mark.parametrize("engine", ["plain", "compiled"])
def test_out_of_room_is_said(engine):
    result = explore(toy({"in_flight": 4}, last=60), engine=engine, states_max=3_000)
    assert result.ended == FULL


@pytest.mark.parametrize("threads", [2, 3])
def test_out_of_room_is_said_of_several_threads_too(monkeypatch, threads):
    from statemachines_spec.explorer import shard

    monkeypatch.setattr(shard, "CHUNK_STATES", 100)
    result = explore(toy({"in_flight": 4}, last=60), engine="compiled", threads=threads, states_max=3_000)
    assert result.ended == FULL
    assert 3_000 <= result.states < 4_000


@pytest.mark.parametrize(("engine", "threads"), [("plain", 1), ("compiled", 1), ("compiled", 2)])
def test_an_interrupted_exploration_says_what_it_knows(engine, threads):
    def interrupt(walker, seconds):
        raise KeyboardInterrupt

    system = toy({"in_flight": 4}, last=60)
    result = explore(system, engine=engine, threads=threads, progress=interrupt, partly=True)
    assert result.ended == INTERRUPTED
    assert result.is_held
    assert result.states >= 1
    with pytest.raises(KeyboardInterrupt):
        explore(system, engine=engine, threads=threads, progress=interrupt)  # who does not ask for a part has none


def test_auto_goes_on_compiled_when_a_system_turns_out_large(monkeypatch):
    from statemachines_spec.explorer import explore as module

    monkeypatch.setattr(module, "PLAIN_FIRST", 50)
    system = toy({"in_flight": 3}, last=3, hushes=1)
    result = explore(system)
    assert result.engine == "compiled"
    assert (result.states, result.edges) == ((plain := explore(system, engine="plain")).states, plain.edges)


def test_a_limit_below_that_of_plain_python_is_kept_too():
    result = explore(toy({"in_flight": 4}, last=60), states_max=3_000)
    assert result.ended == FULL
    assert 3_000 <= result.states < 3_100


def test_nothing_to_see_is_not_shown():
    result = both(toy({"in_flight": 1}, properties=(taken(99),)))
    assert result.is_held
    assert not result.is_shown


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (lambda: toy({"in_flight": 0}), "in_flight"),
        (lambda: toy({"in_flight": 17}), "in_flight"),
        (lambda: toy({}, properties=(Always("x", "", (View("nobody", 2, int),), bool),)), "nobody"),
        (lambda: toy({}, properties=(Always("x", "", (View("talker", 1 << 21, int),), bool),)), "combinations"),
        (lambda: toy({}, properties=(Always("x", "", (View("talker", 1, lambda local: 5),), bool),)), "range"),
    ],
)
def test_a_bad_system_is_refused(wrong, word):
    with pytest.raises(ConfigurationError, match=word):
        explore(wrong(), engine="plain")


def test_two_components_of_one_name_are_refused():
    from statemachines_spec.explorer.system import System

    with pytest.raises(ConfigurationError, match="two components"):
        explore(System("x", "", (Talker(1), Talker(2)), Network()), engine="plain")


def test_an_unknown_engine_is_refused():
    with pytest.raises(ConfigurationError, match="auto, compiled, plain"):
        explore(toy({}), engine="fast")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_states_of_two_words_are_explored_as_those_of_one_are(monkeypatch, threads):
    from statemachines_spec.explorer import layout

    system = toy({"in_flight": 3}, last=3, hushes=1)
    plain = explore(system, engine="plain")
    monkeypatch.setattr(layout, "WORD_BITS", 14)
    walker = walked(system, threads)
    assert walker.layout.words == 2
    assert (walker.count, walker.transitions, f"{walker.edges:016x}") == (plain.states, plain.transitions, plain.edges)


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_each_thread_has_states_of_its_own_whatever_is_handed_over_in_a_turn(monkeypatch, threads):
    from statemachines_spec.explorer import shard

    system = toy({"in_flight": 4}, last=8, hushes=1)
    alone = walked(system, 1)
    monkeypatch.setattr(shard, "OUT_MAX", 4_096)  # many turns
    monkeypatch.setattr(shard, "REDO_MAX", 8)
    monkeypatch.setattr(shard, "TABLE_FIRST", 1_024)  # it grows, also where much is handed over
    shared = walked(system, threads)
    assert alone.count > 10_000
    assert (shared.count, shared.transitions, shared.edges) == (alone.count, alone.transitions, alone.edges)
    assert shared.levels == alone.levels
    counts = [one.count for one in shared.shards]
    assert min(counts) > 0.9 * alone.count / threads
    states = {shared.state(index) for index in range(shared.count)}
    assert len(states) == alone.count
    assert shared.layout.bits != layout_at_first(system)  # some states were packed anew on the way


def test_as_many_threads_as_nobody_has_are_refused():
    with pytest.raises(ConfigurationError, match="1 to 64"):
        walked(toy({}), 65)


def walked(system, threads, at_most=10**6):
    """The walker, when everything is explored, or so many levels."""
    from statemachines_spec.explorer.purity import Entries
    from statemachines_spec.explorer.walker_compiled import CompiledWalker

    walker = CompiledWalker(Entries(system), states_max=10**6, threads=threads)
    while walker.levels[-1] != walker.levels[-2] and len(walker.levels) < at_most:
        walker.advance()
    return walker


def layout_at_first(system):
    """How wide the fields of a state are before anything is explored."""
    from statemachines_spec.explorer.purity import Entries
    from statemachines_spec.explorer.walker_compiled import CompiledWalker

    return CompiledWalker(Entries(system), states_max=1_000).layout.bits


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


def talk_of_post(last=1, each=1, **post):
    """A talker says a word, a listener takes it; time passes."""
    return System(
        "talk", "", (Talker(last, each), Listener(), Post(1, **post), TickClock(1)), Network(1),
        budgets=(Budget("hush", 0, lambda actor, event: isinstance(event, Hush)),),
    )  # fmt: skip


def counts(system):
    plain, compiled = (explore(system, engine=engine) for engine in ("plain", "compiled"))
    assert (plain.states, plain.transitions, plain.edges) == (compiled.states, compiled.transitions, compiled.edges)
    return plain.states, plain.transitions


def test_a_prompt_message_does_not_survive_a_tick_by_hand():
    # nothing said -say-> on its way -hand-> taken; a tick before and after, none while it is on its way
    assert counts(talk_of_post(delay=0)) == (3, 4)


def test_a_message_that_takes_a_tick_at_most_by_hand():
    # on its way for 0 or 1 ticks; handed over from both, and no tick from the second
    assert counts(talk_of_post(delay=1)) == (4, 6)


def test_a_message_may_be_lost_by_hand():
    # and from both it may be lost, to a state of its own, in which time passes
    assert counts(talk_of_post(delay=1, loses=True)) == (5, 9)


def test_a_copy_is_handed_over_and_it_stays_on_its_way():
    # as with a delay of 1; after one copy taken, or two, or three and more, still on its way for 0 or 1 ticks
    states, _ = counts(talk_of_post(delay=1, copies=True))
    assert states == 1 + 2 * 4 + 3


def test_more_than_there_are_places_for_is_cut():
    result = explore(talk_of_post(last=3, delay=1, places=2), engine="plain")
    assert result.cut_by["post"] > 0


@pytest.mark.parametrize("given", [{"delay": 2}, {"delay": 1, "loses": True, "copies": True}])
def test_post_a_naive_search_counts_the_same(given):
    system = talk_of_post(last=2, each=2, **given)
    result, plainest = explore(system, engine="plain"), search(system, 100_000)
    assert (result.states, result.transitions) == (plainest.states, plainest.transitions)


def test_post_spin_counts_the_same(tmp_path):
    entries = Entries(talk_of_post(delay=1, loses=True))
    explore(entries.system, engine="plain", entries=entries)
    counted = promela.judge(entries, tmp_path)
    assert (counted.states, counted.transitions) == (5, 9)


def test_what_it_may_do_is_printed():
    lines = talk_of_post(delay=0, loses=True).describe_bounds()
    assert lines["post: messages"] == "loses, copies nothing, reorders; at most 3 on their way"
    assert lines["post: takes"] == "no tick: whatever is sent arrives before the next"
    assert talk_of_post(delay=2).describe_bounds()["post: takes"] == "2 ticks at most"


@pytest.mark.parametrize("given", [{"delay": -1}, {"places": 0}, {"places": 9}])
def test_a_post_that_cannot_be_explored_is_refused(given):
    with pytest.raises(ConfigurationError, match="a delay of 0 ticks or more, and 1 to 8 places"):
        Post(1, **given)


def test_a_system_has_one_post():
    made = talk_of_post()
    with pytest.raises(ConfigurationError, match="one post"):
        replace(made, actors=(*made.actors, Post(1, name="other"))).check()


SAID = View("talker", 8, lambda local: local.n + 1)
TAKEN = View("listener", 80, lambda local: local.n)
ENGINES = pytest.mark.parametrize("engine", ["plain", "compiled"])


def all_taken(quiet):
    return Always("all taken", "what was said was taken", (SAID, TAKEN), lambda n, took: took == 10 * (n - 1), quiet)


@ENGINES
def test_what_is_in_flight_is_no_disagreement(engine):
    certain = {"in_flight": 1, "lossy": False, "duplicating": False}
    assert explore(toy(certain, properties=(all_taken(True),)), engine=engine).is_held
    always = explore(toy(certain, properties=(all_taken(False),)), engine=engine)
    assert (always.path.broken, len(always.path.legs), always.path.quiet) == ("all taken", 1, False)


@ENGINES
def test_what_was_lost_is_one(engine):
    one = toy({"in_flight": 1, "duplicating": False}, properties=(all_taken(True),))
    result = explore(one, engine=engine)
    assert (result.path.broken, len(result.path.legs), result.path.quiet) == ("all taken", 2, True)  # said, lost
    assert replay(one, result.path).broken == "all taken"


def test_the_plainest_search_judges_the_same():
    certain = {"in_flight": 1, "lossy": False, "duplicating": False}
    assert search(toy(certain, properties=(all_taken(True),)), 1000).broken == ""
    lossy = search(toy({"in_flight": 1, "duplicating": False}, properties=(all_taken(True),)), 1000)
    assert (lossy.broken, lossy.depth) == ("all taken", 2)


@ENGINES
def test_sometimes_counts_quiet_states_only(engine):
    # one word: start, said, taken; the last of them is quiet, and so is the first
    seen = [
        Sometimes(f"said {quiet}", "", (SAID,), lambda n: n == 2, quiet)
        for quiet in (False, True)
    ]  # fmt: skip
    result = explore(
        toy({"in_flight": 1, "lossy": False, "duplicating": False}, last=1, properties=tuple(seen)), engine=engine
    )
    assert result.sometimes == {"said False": 2, "said True": 1}


def test_a_path_that_ends_in_flight_is_not_judged_by_what_holds_where_it_is_quiet():
    one = toy({"in_flight": 1, "duplicating": False}, properties=(all_taken(True),))
    path = explore(one, engine="plain").path
    assert replay(one, type(path)(path.legs[:1], "", "", path.last, quiet=False)).broken == ""
