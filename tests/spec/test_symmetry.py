"""Of states that differ only in who is who one is explored: the orbits of the full search, with the same verdicts.

Canonical names: states that differ only in names are one, and nothing that can be seen is lost.

Packing of states: Hypothesis over widths and values.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from projected_states import projected
from symmetric_system import KINDS, NUMBERS, PeerLocal, Rule, Sending, Step, peers

from statemachines.kernel import ConfigurationError, Event, Fifo, Map, Message
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction
from statemachines_spec.explorer.entry_tables import Nondeterministic
from statemachines_spec.explorer.explore import COMPLETE, VIOLATED, explore, follow
from statemachines_spec.explorer.layout import StateLayout
from statemachines_spec.explorer.moves import Moves
from statemachines_spec.explorer.naming import by_first_use, rebase_queue
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.order import Order
from statemachines_spec.explorer.property import Always, Stepwise, View
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.service_actor import search
from statemachines_spec.explorer.symmetry import Asymmetric, Symmetry, one_after_another, rename_value, renamings
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.walker_plain import PlainWalker

STATES_MAX = 3_000

COUNTED = (
    "ended", "states", "transitions", "cuts", "terminal", "levels", "edges", "entries", "locals", "messages", "always",
    "sometimes", "stand_for",
)  # fmt: skip


def rules(to):
    """A table for every (number, what it takes, kind)."""
    sending = st.builds(
        Sending, st.integers(0, KINDS - 1), st.sampled_from(to), st.sampled_from(("", "me", "friend", "sender"))
    )
    rule = st.builds(
        Rule,
        st.integers(0, NUMBERS - 1),
        st.sampled_from(("", "sender", "about")),
        st.lists(sending, max_size=2).map(tuple),
        st.sampled_from((False, False, True)),
    )
    cells = [(n, taken, kind) for n in range(NUMBERS) for taken in ("Step", "Word") for kind in range(KINDS)]
    return st.fixed_dictionaries(dict.fromkeys(cells, rule))


networks = st.builds(Network, st.integers(1, 2), st.booleans(), st.booleans(), st.booleans())
systems = st.fixed_dictionaries(
    {
        "rules": rules(("hub", "friend", "all others", "sender")),
        "hub_rules": rules(("sender", "friend", "all others")),
        "network": networks,
        "count": st.integers(2, 4),
        "faults": st.integers(0, 1),
        "order": st.booleans(),
    }
)


def all_states(entries):
    """Every state that can be reached, one by one, without symmetry; None if there are too many."""
    moves = Moves(entries)
    seen = {moves.first()}
    queue = list(seen)
    for state in queue:
        for move in moves.of(state):
            if move.target is not None and move.target not in seen:
                seen.add(move.target)
                queue.append(move.target)
        if len(seen) > STATES_MAX:
            return None
    return seen


def walked(entries):
    """The states that the reduced search keeps."""
    walker = PlainWalker(entries, states_max=10**6)
    while walker.levels[-1] != walker.levels[-2]:
        walker.advance()
    return [walker.state(index) for index in range(walker.count)]


@pytest.mark.long
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(systems)
def test_exactly_one_state_of_every_orbit_is_explored(drawn):
    entries = Entries(peers(**drawn, properties=()))
    moves = Moves(entries)
    seen = all_states(entries)
    if seen is None:
        return
    kept = walked(entries)
    assert len(set(kept)) == len(kept)
    assert {moves.least(state) for state in seen} == set(kept)
    assert set().union(*map(moves.orbit, kept)) == seen
    result = explore(entries.system, engine="plain", entries=entries)
    assert (result.states, result.stand_for) == (len(kept), len(seen))


@pytest.mark.long
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(systems)
def test_the_verdicts_are_those_of_the_full_search(drawn):
    """The shortest run to what breaks is as long, can be followed, and breaks the same."""
    reduced, full = (
        explore(peers(**drawn, symmetric=one), engine="plain", states_max=STATES_MAX) for one in (True, False)
    )
    if full.ended not in (COMPLETE, VIOLATED):
        return
    assert (reduced.ended, reduced.always, reduced.is_shown) == (full.ended, full.always, full.is_shown)
    assert len(reduced.levels) == len(full.levels)
    if full.path is None:
        assert reduced.stand_for == full.states
        assert reduced.states <= full.states
        return
    assert len(reduced.path.legs) == len(full.path.legs)
    for symmetric in (True, False):
        again = follow(peers(**drawn, symmetric=symmetric), reduced.path.script)
        assert (again.broken, again.last) == (full.path.broken, reduced.path.last)


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2])
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(systems)
def test_both_walkers_agree_with_symmetry(threads, drawn):
    plain = explore(peers(**drawn), engine="plain", states_max=STATES_MAX)
    compiled = explore(peers(**drawn), engine="compiled", states_max=STATES_MAX, threads=threads)
    if plain.ended not in (COMPLETE, VIOLATED):
        return
    for field in COUNTED:
        assert getattr(plain, field) == getattr(compiled, field), field
    assert plain.path == compiled.path


# -- what is refused ------------------------------------------------------------------------------------------------

CHATTY = {
    **{(n, taken, kind): Rule(n) for n in range(NUMBERS) for taken in ("Step", "Word") for kind in range(KINDS)},
    (0, "Step", 0): Rule(1, sends=(Sending(0, "hub", "me"),)),
    (1, "Step", 1): Rule(2, sends=(Sending(1, "all others", "me"),)),
    (1, "Word", 1): Rule(0, friend="sender"),
    (0, "Word", 0): Rule(1, friend="about"),
}
HUB = {**CHATTY, (0, "Word", 0): Rule(1, friend="sender", sends=(Sending(1, "all others", "sender"),))}


def chatty(**other):
    return peers(CHATTY, HUB, **{"network": Network(1, duplicating=False), **other})


def four():
    """Four peers that say little."""
    return peers({**CHATTY, (1, "Step", 1): Rule(0)}, CHATTY, Network(1, lossy=False), count=4, properties=())


def refused(system):
    """What the error says."""
    with pytest.raises(Asymmetric) as error:
        explore(system, engine="plain")
    return str(error.value)


@pytest.mark.long
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(CHATTY)), st.integers(0, NUMBERS - 1), st.sampled_from(("", "about")), st.booleans())
def test_one_peer_with_a_rule_of_its_own_is_refused_or_nothing_ever_follows_from_it(cell, n, friend, waits):
    """Refused with the pair that takes the rule; only where none ever does (or the rule is the same) it is not."""
    odd = chatty(odd={cell: Rule(n, friend=friend, waits=waits)}, properties=())
    entries = Entries(odd.in_full())
    explore(odd.in_full(), engine="plain", entries=entries)
    taken = {
        (entries.components[entries.dest[event]].locals[local].n, type(one).__name__, one.kind)
        for event, local in entries.pairs
        if entries.dest[event] != entries.place["hub"] and hasattr(one := entries.envelopes[event].event, "kind")
    }
    mine, usual = Rule(n, friend=friend, waits=waits), CHATTY[cell]
    same = mine == usual or (mine.n, mine.waits, usual.sends, cell[1]) == (usual.n, False, (), "Step")
    if same or cell not in taken:  # who has no friend yet, or takes no word, may be told to keep one
        assert explore(odd, engine="plain").ended == COMPLETE
        return
    assert "takes" in refused(odd)


def test_an_entry_that_differs_is_named_with_both_results():
    text = refused(chatty(odd={(0, "Step", 0): Rule(2)}))
    assert "p1 takes Step(kind=0)" in text
    assert "and p3 takes Step(kind=0)" in text
    assert "renamed, the first comes to (PeerLocal(n=1, friend='')), sends Word(kind=0, about='p3') to hub" in text
    assert "the second comes to (PeerLocal(n=2, friend=''))" in text
    assert "renamed, n: 1, not 2" in text


def test_an_event_that_only_one_waits_with_is_named():
    assert "the second comes to nothing, it waits" in refused(chatty(odd={(0, "Step", 0): Rule(waits=True)}))


def test_a_deadline_order_of_one_peer_alone_is_refused():
    first = Order(
        "p1 first",
        "a relation",
        lambda actor, local: "p1" if actor == "p1" and local.n == 0 else None,
        lambda actor, local, event: actor if isinstance(event, Step) and actor != "p1" else None,
        lambda pending, waiting: True,
    )
    assert "the deadline orders change where" in refused(replace(chatty(), orders=(first,)))


def test_a_view_that_knows_a_name_is_refused():
    views = tuple(View(name, 2, lambda local: int(local.friend == "p1")) for name in ("p1", "p2", "p3"))
    known = Always("nobody knows p1", "", views, lambda *on: not any(on))
    assert "the properties do not see the same of" in refused(chatty(properties=(known,)))


def test_a_property_that_tells_its_views_apart_is_refused():
    views = tuple(View(name, NUMBERS, lambda local: local.n) for name in ("p1", "p2", "p3"))
    assert "changes its verdict" in refused(chatty(properties=(Always("p1 leads", "", views, lambda a, *on: a == 0),)))
    other = Always("p1 alone", "", views[:1], lambda one: one < 2)
    assert "reads p1 and not p2" in refused(chatty(properties=(other,)))
    coarse = (View("p1", 2, lambda local: int(local.n > 0)), *views[1:])
    assert "differ in size" in refused(chatty(properties=(Always("sizes", "", coarse, lambda *on: True),)))


def test_a_step_property_of_one_peer_alone_is_refused():
    mine = Stepwise("p1 stays", "", lambda actor, before, event, after: actor != "p1" or after.n < 2)
    assert "breaks step property 2" in refused(chatty(properties=(mine,)))


def test_a_renaming_that_is_none_is_refused():
    def forgetful(value, names):
        """Everybody's friend becomes p1."""
        after = rename_value(value, names)
        return replace(after, friend="p1") if getattr(after, "friend", "") else after

    assert refused(replace(chatty(), symmetries=(Symmetry(("p1", "p2", "p3"), forgetful),)))


def test_at_most_four_may_change_places():
    result = explore(four(), engine="plain")
    assert result.states < result.stand_for == explore(four().in_full(), engine="plain").states
    with pytest.raises(ConfigurationError, match="120"):
        explore(chatty(count=5), engine="plain")
    with pytest.raises(ConfigurationError, match="twice"):
        explore(replace(chatty(), symmetries=(Symmetry(("p1", "p2")), Symmetry(("p2", "p3")))), engine="plain")


def test_a_part_of_them_may_change_places_while_another_does_not():
    """p3 has a rule of its own; the other two are alike."""
    odd = chatty(odd={(0, "Step", 0): Rule(2)}, properties=())
    reduced = explore(replace(odd, symmetries=(Symmetry(("p1", "p2")),)), engine="plain")
    assert reduced.states < reduced.stand_for == explore(odd.in_full(), engine="plain").states


def test_two_sets_of_equals_change_places_each_for_itself():
    two = (Symmetry(("p1", "p2")), Symmetry(("p3", "p4")))
    results = [explore(replace(four(), symmetries=two), engine=engine) for engine in ("plain", "compiled")]
    assert len({(one.states, one.stand_for, one.edges) for one in results}) == 1
    assert results[0].states < results[0].stand_for == explore(four().in_full(), engine="plain").states


@pytest.mark.long
def test_the_plainest_search_counts_what_they_stand_for():
    assert explore(chatty(properties=()), engine="plain").stand_for == search(chatty(properties=()), 10**6).states


# -- renaming -------------------------------------------------------------------------------------------------------

SWAP = {"p1": "p2", "p2": "p1"}


class Register(msgspec.Struct, frozen=True):
    """Keeps names sorted."""

    names: tuple[str, ...]

    def rename(self, names):
        return Register(tuple(sorted(rename_value(self.names, names))))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("p1", "p2"),
        ("p1~3/4", "p2~3/4"),
        ("p12", "p12"),
        ("0.0/p1", "0.0/p1"),
        (("p1", ("p3", "p2~1/1")), ("p2", ("p3", "p1~1/1"))),
        (Map({"p1": 1, "p3": "p1"}), Map({"p2": 1, "p3": "p2"})),
        (frozenset({"p1"}), frozenset({"p2"})),
        ({"p1": ["p2"]}, {"p2": ["p1"]}),
        (PeerLocal(1, "p2"), PeerLocal(1, "p1")),
        (Envelope("p1~1/1", "hub", Step(1)), Envelope("p2~1/1", "hub", Step(1))),
        (Register(("p1", "p3")), Register(("p2", "p3"))),
        (Register(("p2", "p3")), Register(("p1", "p3"))),
        (7, 7),
        (None, None),
    ],
)
def test_names_are_replaced_wherever_they_stand(value, expected):
    assert rename_value(value, SWAP) == expected
    assert rename_value(expected, SWAP) == value


def test_what_holds_no_name_stays_the_same_object():
    value = PeerLocal(1, "p3")
    assert rename_value(value, SWAP) is value


def test_renamings_are_all_permutations_and_closed():
    them = renamings((Symmetry(("a", "b", "c")),))
    after = one_after_another(them)
    assert len({tuple(one.names.items()) for one in them}) == 6
    assert after[0] == tuple(range(6)) == tuple(row[0] for row in after)
    assert all(sorted(row) == list(range(6)) for row in after)


PLAIN = {"engine": "plain"}


class Take(Event, frozen=True):
    pass


class Give(Event, frozen=True):
    pass


class Given(Message, frozen=True):
    waiting: int


class Queue(msgspec.Struct, frozen=True):
    """Tickets that wait, in their order; `last`: the number that was given out last."""

    tickets: tuple[int, ...] = ()
    last: int = 0


class Counter(Actor):
    """Gives out tickets with running numbers: without canonical names, up to `last_max`."""

    def __init__(self, last_max=50):
        super().__init__("counter")
        self.last_max = last_max

    def initial(self):
        return Queue()

    def inputs(self, local):
        return (Take(), Give())

    def react(self, local, envelope, watch=None):
        if isinstance(envelope.event, Take):
            return Reaction(Queue((*local.tickets, local.last + 1), local.last + 1)) if len(local.tickets) < 3 else None
        if isinstance(envelope.event, Give) and local.tickets:
            given = Envelope("counter", "sink", Given(len(local.tickets) - 1))
            return Reaction(Queue(local.tickets[1:], local.last), (given,))
        return None

    def within(self, local):
        return local.last <= self.last_max


class ByFirstUse(Counter):
    def canonical(self, local):
        numbers = by_first_use(local.tickets)
        return Queue(tuple(numbers.values()), len(numbers))


class Downwards(Counter):
    """Not canonical: what it gives depends on what was there."""

    def canonical(self, local):
        return Queue(local.tickets, (local.last + 1) % 3)


class Sink(Counter):
    def __init__(self):
        super().__init__()
        self.name = "sink"

    def inputs(self, local):
        return ()

    def react(self, local, envelope, watch=None):
        return Reaction(Queue((), envelope.event.waiting))


def of(counter):
    return System("tickets", "", (counter, Sink()), Network(1, duplicating=False))


NAMES = {Counter: ByFirstUse.canonical}


def test_what_grows_only_in_names_becomes_finite_and_small():
    named, counted = explore(of(ByFirstUse()), **PLAIN), explore(of(Counter()), **PLAIN)
    assert named.cuts == 0
    assert counted.cuts > 0
    assert named.states < 100 < counted.states


def test_the_plainest_search_uses_the_same_names():
    one = of(ByFirstUse())
    result, plainest = explore(one, **PLAIN), search(one, 10**4)
    assert (plainest.states, plainest.transitions) == (result.states, result.transitions)


def test_nothing_is_lost_and_nothing_is_added():
    named, counted = (projected(Entries(of(one)), NAMES)[1] for one in (ByFirstUse(), Counter()))
    assert named == counted


def test_names_that_change_when_given_twice_are_refused():
    with pytest.raises(Nondeterministic, match="given once more"):
        explore(of(Downwards()), **PLAIN)


def test_a_queue_is_numbered_from_its_head():
    queue = Fifo().push("a").push("b").push("c")
    _, later = queue.pop()
    assert (later.head, rebase_queue(later)) == (1, Fifo().push("b").push("c"))
    assert rebase_queue(queue) is queue


def test_numbers_go_by_first_use():
    assert by_first_use((7, 3, 7, 9)) == {7: 1, 3: 2, 9: 3}
    assert by_first_use("", first=0) == {}


WIDTHS = st.lists(st.integers(1, 24), min_size=1, max_size=8).filter(lambda widths: sum(widths) <= 100)


@given(WIDTHS, st.data())
def test_what_is_packed_is_unpacked(widths, data):
    layout = StateLayout(widths)
    state = tuple(data.draw(st.integers(0, (1 << bits) - 1)) for bits in widths)
    words = layout.pack(state)
    assert len(words) == layout.words <= 2
    assert all(0 <= word < 1 << 64 for word in words)
    assert layout.unpack(words) == state


def test_one_word_where_it_fits():
    assert StateLayout([32, 32]).words == 1
    assert StateLayout([32, 32, 1]).words == 2


def test_fields_only_grow():
    layout = StateLayout([4, 4])
    assert layout.widen([15, 3]) is layout
    assert layout.widen([16, 3]).bits == (6, 4)


def test_what_grows_gets_a_bit_to_spare_only_within_one_word():
    assert StateLayout([32, 31]).widen([1 << 32, 1]).bits == (33, 31)
    assert StateLayout([32, 31]).widen([1 << 32, 1]).words == 1
    assert StateLayout([32, 30]).widen([1 << 32, 1]).bits == (34, 30)
    assert StateLayout([32, 32]).widen([1 << 32, (1 << 32) - 1]).bits == (33, 32)


def test_bits_to_spare_are_given_back_before_a_second_word_is_taken():
    assert StateLayout([32, 32]).widen([1 << 32, 1 << 30]).bits == (33, 31)
    assert StateLayout([32, 32]).widen([1 << 32, 1 << 30]).words == 1


def test_beyond_two_words_is_refused():
    with pytest.raises(ConfigurationError, match="two words"):
        StateLayout([60, 60, 60])
