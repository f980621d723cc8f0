"""Of states that differ only in who is who one is explored: the orbits of the full search, with the same verdicts."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from symmetric_system import KINDS, NUMBERS, Rule, Sending, peers

from statemachines_spec.entries import Entries
from statemachines_spec.explore import COMPLETE, VIOLATED, explore
from statemachines_spec.moves import Moves
from statemachines_spec.network import Network
from statemachines_spec.path import follow
from statemachines_spec.plain import PlainWalker

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


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
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


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(systems)
def test_the_verdicts_are_those_of_the_full_search(drawn):
    """The shortest run to what breaks is as long, can be followed, and breaks the same."""
    reduced, full = (
        explore(peers(**drawn, symmetric=one), engine="plain", states_max=STATES_MAX) for one in (True, False)
    )
    if full.ended not in (COMPLETE, VIOLATED):
        return
    assert (reduced.ended, reduced.always, reduced.shown) == (full.ended, full.always, full.shown)
    assert len(reduced.levels) == len(full.levels)
    if full.path is None:
        assert reduced.stand_for == full.states
        assert reduced.states <= full.states
        return
    assert len(reduced.path.legs) == len(full.path.legs)
    for symmetric in (True, False):
        again = follow(peers(**drawn, symmetric=symmetric), reduced.path.script)
        assert (again.broken, again.last) == (full.path.broken, reduced.path.last)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(systems)
def test_both_walkers_agree_with_symmetry(drawn):
    plain, compiled = (
        explore(peers(**drawn), engine=engine, states_max=STATES_MAX) for engine in ("plain", "compiled")
    )
    if plain.ended not in (COMPLETE, VIOLATED):
        return
    for field in COUNTED:
        assert getattr(plain, field) == getattr(compiled, field), field
    assert plain.path == compiled.path
