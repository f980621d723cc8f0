"""Three judges of liveness agree on small systems that Hypothesis makes up: the compiled search, the plain one, and a
third that shares no code with them: worlds of plain tuples, and parts by networkx.

Events with a budget that are no fault once nobody speaks for whom they are about, such as the expiry of the dead.

Obligations under weak fairness: what must be met at last, and what is never met.
"""

from __future__ import annotations

from itertools import combinations

import msgspec
import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lock_toy import WAITING, lock_system
from symmetric_system import Count, Hush, Listener, Note, Talker, toy

from statemachines.kernel import ConfigurationError, Event, Message, TimerFired
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction
from statemachines_spec.explorer.explore import COMPLETE, FULL, explore
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Eventually, View
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.system import Budget, Due, System
from statemachines_spec.liveness.faultless_moves import ANSWERS_MAX, Tail
from statemachines_spec.liveness.judge import graph_of, live

NAMES = ("left", "right")
LOCALS = 3


class Tick(TimerFired, frozen=True):
    n: int = 0


class Fault(Event, frozen=True):
    pass


class Alarm(TimerFired, frozen=True):
    """A timer with a budget."""


class Word(Message, frozen=True):
    n: int


class At(msgspec.Struct, frozen=True):
    n: int


class Automaton(Actor):
    """`table[local][event]`: None (it waits), "cut", or (next local state, words to the other one)."""

    def __init__(self, name, timers, table):
        super().__init__(name)
        self.timers = timers
        self.table = table
        self.other = NAMES[1 - NAMES.index(name)]

    def initial(self):
        return At(0)

    def inputs(self, local):
        return self.timers[local.n]

    def react(self, local, envelope, watch=None):
        cell = self.table[local.n][envelope.event]
        if cell is None:
            return None
        if cell == "cut":
            return Reaction(At(-1))
        return Reaction(At(cell[0]), tuple(Envelope(self.name, self.other, word) for word in cell[1]))

    def within(self, local):
        return local.n >= 0


EVENTS = (Tick("", 0), Tick("", 1), Fault(), Alarm(""), Word(0), Word(1))
CELLS = st.one_of(
    st.tuples(st.integers(0, LOCALS - 1), st.lists(st.sampled_from((Word(0), Word(1))), max_size=2).map(tuple)),
    st.tuples(st.integers(0, LOCALS - 1), st.just(())),
    st.none(),
    st.just("cut"),
)


def is_alarm(actor, event):
    return isinstance(event, Alarm)


@st.composite
def systems(draw):
    """Two automata that talk to each other; alarms may say when they are due."""
    actors = []
    for name in NAMES:
        timers = [
            tuple(draw(st.lists(st.sampled_from(EVENTS[:4]), unique=True, max_size=3))) for _ in range(LOCALS)
        ]  # fmt: skip
        table = [{event: draw(CELLS) for event in EVENTS} for _ in range(LOCALS)]
        actors.append(Automaton(name, timers, table))
    keeps = draw(st.sets(st.integers(0, LOCALS - 1)))
    carries = draw(st.sets(st.integers(0, 1)))
    due = Due(
        lambda actor, local, event: actor if isinstance(event, Alarm) else None,
        lambda actor, local: tuple(name for name in NAMES if name != actor and local.n in keeps),
        lambda envelope: (envelope.to,) if isinstance(envelope.event, Word) and envelope.event.n in carries else (),
    )
    budgets = (
        Budget("fault", draw(st.integers(0, 1)), lambda actor, event: isinstance(event, Fault)),
        Budget("alarm", draw(st.integers(0, 2)), is_alarm, draw(st.sampled_from((None, due)))),
    )
    network = Network(draw(st.integers(2, 3)), draw(st.booleans()), draw(st.booleans()), draw(st.booleans()))
    return System("made up", "", tuple(actors), network, (), budgets)


class Judge:
    """The third judge.  A world: local states, what is left of the budgets, messages (by channel, or sorted)."""

    def __init__(self, system):
        self.system = system
        self.first = (tuple(At(0) for _ in NAMES), tuple(one.limit for one in system.budgets), ())

    def placed(self, messages):
        if self.system.network.ordered:
            return tuple(sorted(messages, key=lambda one: one.sender))
        return tuple(sorted(messages, key=lambda one: (one.sender, one.event.n)))

    def ready(self, messages):
        """The messages that may be handed over now."""
        first = {}
        for message in messages:
            first.setdefault(message.sender if self.system.network.ordered else message, message)
        return list(first.values())

    def after(self, world, number, envelope, messages, left, *, calm):
        """(target, ...) of one event; None among them: nobody knows where it leads."""
        locals_before, _, _ = world
        actor, network = self.system.actors[number], self.system.network
        reaction = actor.react(locals_before[number], envelope)
        if reaction is None:
            return []
        if not actor.within(reaction.local):
            return [None]
        locals_after = tuple(reaction.local if n == number else one for n, one in enumerate(locals_before))
        sends = list(reaction.sends)
        if network.duplicating:
            sends = [one for one in dict.fromkeys(sends) if one not in messages]
        answers = calm and envelope.sender
        room = (ANSWERS_MAX if answers else network.in_flight) - len(messages)
        if len(sends) <= room:
            return [(locals_after, left, self.placed((*messages, *sends)))]
        if calm or not network.lossy:
            return [None]
        return [(locals_after, left, self.placed((*messages, *some))) for some in combinations(sends, room)]

    def moves(self, world, *, calm):
        """(envelope, target) of everything that may happen; without faults if it is calm."""
        locals_now, left, messages = world
        for number, actor in enumerate(self.system.actors):
            for event in actor.inputs(locals_now[number]):
                envelope, after = Envelope("", actor.name, event), left
                spends = next((n for n, one in enumerate(self.system.budgets) if one.spends(actor.name, event)), None)
                if spends is not None and calm:
                    budget = self.system.budgets[spends]
                    if budget.due is None:
                        if isinstance(event, Alarm) and budget.limit:
                            yield envelope, None
                        continue
                    if not isinstance(event, Alarm) or self.is_kept(budget.due, actor.name, world):
                        continue
                elif spends is not None:
                    if not left[spends]:
                        continue
                    after = tuple(one - (n == spends) for n, one in enumerate(left))
                for target in self.after(world, number, envelope, messages, after, calm=calm):
                    yield envelope, target
        for message in self.ready(messages):
            place = messages.index(message)
            rest = messages[:place] + messages[place + 1 :]
            number = NAMES.index(message.to)
            for target in self.after(world, number, message, rest, left, calm=calm):
                yield message, target
            if not calm and self.system.network.duplicating:
                for target in self.after(world, number, message, messages, left, calm=calm):
                    yield message, target
            if not calm and self.system.network.lossy:
                yield message, (locals_now, left, rest)

    def is_kept(self, due, subject, world):
        speaks = [one for name, local in zip(NAMES, world[0], strict=True) for one in due.kept(name, local)]
        return subject in [*speaks, *(one for message in world[2] for one in due.carried(message))]

    def closure(self, begin, *, calm):
        seen, todo = set(begin), list(begin)
        while todo:
            for _, target in self.moves(todo.pop(), calm=calm):
                if target is not None and target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    def verdict(self, is_open):
        """(states it is open in, parts of which nothing is claimed, whether it is met)."""
        reached = self.closure([self.first], calm=False)
        worlds = self.closure({(local, (), messages) for local, _, messages in reached}, calm=True)
        links = {world: list(self.moves(world, calm=True)) for world in worlds}
        graph = nx.DiGraph()
        graph.add_nodes_from(world for world in worlds if is_open(world))
        graph.add_edges_from(
            (world, target)
            for world in graph.nodes
            for _, target in links[world]
            if target is not None and is_open(target)
        )
        begun = {(local, (), messages) for local, _, messages in reached} & set(graph)
        led_to = begun.union(*(nx.descendants(graph, world) for world in begun))
        unknown, held = 0, True
        for part in nx.strongly_connected_components(graph.subgraph(led_to)):
            always = set.intersection(*({envelope for envelope, _ in links[world]} for world in part))
            inside = {envelope for world in part for envelope, target in links[world] if target in part}
            leading = {envelope for world in part for envelope, target in links[world] if target is not None}
            missing = always - inside
            held &= bool(missing)
            unknown += bool(missing) and not missing & leading
        return sum(map(is_open, reached)), unknown, held


OPEN = st.sets(st.tuples(st.integers(0, LOCALS - 1), st.integers(0, LOCALS - 1)), min_size=1)


def obligation(some):
    views = tuple(View(name, LOCALS, lambda local: local.n) for name in NAMES)
    return Eventually("made up", "", views, lambda left, right: (left, right) in some)


@pytest.mark.long
@settings(max_examples=40, deadline=None, derandomize=True)
@given(systems(), st.lists(OPEN, min_size=1, max_size=3))
def test_three_judges_agree(system, opens):
    obligations = [obligation(some) for some in opens]
    plain, compiled = (live(system, obligations, engine=engine) for engine in ("plain", "compiled"))
    third = Judge(system)
    for some, one, other in zip(opens, plain, compiled, strict=True):
        expected = third.verdict(lambda world, some=some: (world[0][0].n, world[0][1].n) in some)
        assert (one.open_states, one.bounded, one.is_held) == expected
        assert (other.open_states, other.bounded, other.is_held) == expected
        scripts = [[path and path.script for path in (run.way, run.then, run.round)] for run in (one, other)]
        assert scripts[0] == scripts[1]
        if not one.is_held:
            is_a_counterexample(third, some, one)


def told(verdicts):
    """All that is said of some obligations."""
    return [
        (one.open_states, one.bounded, [path and path.script for path in (one.way, one.then, one.round)])
        for one in verdicts
    ]


@pytest.mark.long
@settings(max_examples=20, deadline=None, derandomize=True)
@given(systems(), st.lists(OPEN, min_size=1, max_size=2))
def test_what_has_been_explored_is_not_explored_again(system, opens):
    obligations = [obligation(some) for some in opens]
    entries = Entries(system)
    assert explore(system, engine="plain", hashing=False, entries=entries).ended == COMPLETE
    assert graph_of(system, entries=entries).walker is entries.walked
    assert told(live(system, obligations, entries=entries)) == told(live(system, obligations, engine="plain"))
    other = Entries(system)
    assert explore(system, engine="plain", hashing=False, entries=other, states_max=1).ended == FULL
    assert other.walked is None
    explore(system, engine="plain", hashing=False, entries=other)
    other.walked = entries.walked  # as in a copy of tables that goes on otherwise
    assert graph_of(system, entries=other).walker.entries is other


def is_a_counterexample(third, some, run):
    """It ends where it began to go round, it is open all along, and nothing that is always possible is left out."""
    worlds = [(local, (), messages) for local, messages in walked(third, run)]
    assert all((world[0][0].n, world[0][1].n) in some for world in worlds)
    assert worlds[0] == worlds[-1]
    possible = set.intersection(*({envelope for envelope, _ in third.moves(world, calm=True)} for world in worlds))
    assert possible <= {leg.envelope for leg in run.round.legs}


def walked(third, run):
    """The worlds of the round, by the legs of all three paths."""
    world = third.first
    for path, calm in ((run.way, False), (run.then, True), (run.round, True)):
        if path is run.round:
            yield world[0], world[2]
        for leg in path.legs:
            world = next(target for target in targets(third, world, leg, calm) if target is not None)
            if path is run.round:
                yield world[0], world[2]
        assert tuple(path.last[name] for name in NAMES) == world[0]


def targets(third, world, leg, calm):
    """Where a leg may lead: the local states that it names."""
    want = {turn.actor: turn.local_after for turn in leg.turns}
    gone = leg.line[0]
    for envelope, target in third.moves(world, calm=calm):
        if envelope != leg.envelope or target is None:
            continue
        handled = all(target[0][NAMES.index(name)] == local for name, local in want.items())
        count = len([one for one in world[2] if one == envelope])
        rest = len([one for one in target[2] if one == envelope])
        if gone == "drop":
            handled = target[0] == world[0] and rest == count - 1
        sent = [one for one in leg.turns[-1].sends if one not in leg.left_out] if leg.turns else []
        handled &= all(one in target[2] for one in sent)
        if gone == "copy":
            handled &= rest >= count
        if handled:
            yield target


@pytest.mark.parametrize("engine", ["plain", "compiled"])
def test_systems_that_are_made_up_are_no_empty_ones(engine):
    """Among them are all the verdicts there are."""
    found = set()

    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @given(systems(), OPEN)
    def look(system, some):
        (one,) = live(system, [obligation(some)], engine=engine)
        found.add((one.open_states > 0, one.bounded > 0, one.is_held))

    look()
    assert found >= {(True, True, True), (True, False, True), (True, False, False)}


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
