"""Three hosts race for the claim: explored by symmetry and in full, with equal verdicts; and what breaks if planted."""

import pytest
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Row
from statemachines.shared_subscriptions.claim import RetryTimer
from statemachines.shared_subscriptions.leader import LEADER
from statemachines_spec.explorer import promela, shard
from statemachines_spec.explorer.explore import COMPLETE, explore, follow
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, View
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.replay import replay
from statemachines_spec.explorer.symmetry import Asymmetric, Symmetry
from statemachines_spec.explorer.system import Budget
from statemachines_spec.explorer.variant import substitute_rows
from statemachines_spec.liveness.judge import live
from statemachines_spec.shared_subscriptions import properties
from statemachines_spec.shared_subscriptions.consumer import Consumer
from statemachines_spec.shared_subscriptions.succession import Election, build
from statemachines_spec.shared_subscriptions.systems import obligations_of, system

PLAIN = {"engine": "plain"}
TINY = Election(network=Network(2, lossy=False, duplicating=False))


@pytest.fixture(scope="module")
def in_full():
    return explore(system("election", "small").in_full(), **PLAIN)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["plain", "compiled"])
def test_the_states_that_are_explored_stand_for_all(in_full, engine):
    result = explore(system("election", "small"), engine=engine)
    assert (result.ended, result.is_held, result.is_shown) == (COMPLETE, True, True)
    assert result.stand_for == in_full.states
    assert 5.5 * result.states < in_full.states <= 6 * result.states
    assert len(result.levels) == len(in_full.levels)


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2])
def test_both_walkers_agree_with_symmetry_and_with_each_other(monkeypatch, threads):
    monkeypatch.setattr(shard, "REDO_MAX", 8)  # so that states are put aside again while others still are
    plain = explore(build(TINY), engine="plain")
    compiled = explore(build(TINY), engine="compiled", threads=threads)
    for field in ("states", "transitions", "cuts", "levels", "edges", "entries", "locals", "sometimes", "stand_for"):
        assert getattr(plain, field) == getattr(compiled, field), field


@pytest.mark.long
def test_spin_counts_the_states_that_they_stand_for(tmp_path):
    """The entries of the orbits are those of the full search: SPIN, which knows of no symmetry, counts all states."""
    entries = Entries(build(TINY))
    result = explore(entries.system, entries=entries, **PLAIN)
    assert promela.judge(entries, tmp_path).states == result.stand_for > result.states


@pytest.mark.long
def test_that_it_was_used_is_said_beside_the_verdict(in_full):
    bounds = system("election", "small").describe_bounds()
    assert bounds["symmetry"].startswith("leader-1, leader-2 and leader-3 are interchangeable")
    assert "symmetry" not in in_full.bounds
    assert in_full.stand_for == 0


# -- counterexamples ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_leaders():
    one = system("election", "small", without=("end of a claim before its age",))
    return one, explore(one, **PLAIN)


@pytest.mark.long
def test_a_counterexample_is_a_true_run_and_as_short_as_without_symmetry(two_leaders):
    one, result = two_leaders
    full = explore(one.in_full(), **PLAIN)
    assert result.path.broken == full.path.broken == "one leader"
    assert len(result.path.legs) == len(full.path.legs)
    assert result.states < full.states


@pytest.mark.long
def test_it_can_be_followed_where_nothing_is_symmetric(two_leaders):
    one, result = two_leaders
    assert follow(one.in_full(), result.path.script).last == result.path.last


@pytest.mark.long
def test_fresh_nodes_come_to_the_same(two_leaders):
    one, result = two_leaders
    assert replay(one, result.path).broken == "one leader"


@pytest.mark.long
def test_both_walkers_find_the_same_run(two_leaders):
    one, result = two_leaders
    assert explore(one, engine="compiled").path == result.path


# -- planted --------------------------------------------------------------------------------------------------------


def with_leader(setting, change):
    """The election with other rows in every host."""
    one = build(setting)
    for actor in one.actors:
        if hasattr(actor, "fsm"):
            actor.use_machine("leader", substitute_rows(LEADER, change))
    return one


def test_hosts_that_take_the_claim_whoever_holds_it_write_at_the_same_time():
    def unlooked(record, event):
        return event.n == record.load_n

    def careless(row):
        return (
            Row(row.on, row.source, row.to, row.do, unlooked, row.clause)
            if row.clause == "SS-120" and row.when
            else row
        )

    result = explore(with_leader(TINY, careless), **PLAIN)
    assert result.path.broken == "S3"


@pytest.mark.long
def test_somebody_leads_at_last(in_full):
    one = build(TINY)
    (result,) = live(one, obligations_of(one))
    assert (result.name, result.is_held) == ("L6", True)
    assert result.open_states > 10_000


def test_hosts_that_never_look_again_leave_the_group_without_a_leader():
    """Somebody holds the claim and is gone; who follows it does not notice."""

    def blind(row):
        return Row(row.on, row.source, row.to, None, row.when, row.clause) if row.on is RetryTimer else row

    one = with_leader(replace(TINY, hosts=2, crashes=1), blind)
    (result,) = live(one, obligations_of(one))
    assert not result.is_held


# -- what is not interchangeable ------------------------------------------------------------------------------------


def test_consumers_are_not_interchangeable_since_streams_are_shared_out_in_the_order_of_their_ids():
    one = system("late-copies", "small")
    names = tuple(actor.name for actor in one.actors if isinstance(actor, Consumer))
    wrong = replace(one, properties=one.over_steps, symmetries=(Symmetry(names),))
    with pytest.raises(Asymmetric) as refused:
        explore(wrong, **PLAIN)
    text = str(refused.value)
    assert "leader-1 takes LeaderWanted(borrower='consumer-1~1/1'" in text
    assert "where consumer-1 is consumer-2" in text
    assert ".share: 0, not 1" in text


def test_hosts_with_other_bounds_are_not_interchangeable():
    one = build(TINY)
    one.actors[2].epochs = 1
    with pytest.raises(Asymmetric, match="nothing within the bounds"):
        explore(one, **PLAIN)


def test_hosts_that_begin_otherwise_are_not_interchangeable():
    one = build(TINY)
    first = one.actors[0].initial()
    one.actors[0].initial = lambda: replace(first, awaited=1)
    with pytest.raises(Asymmetric, match=r"do not begin alike .*awaited: 1, not 0"):
        explore(one, **PLAIN)


def test_a_property_of_one_host_alone_is_refused():
    leads = Always("leads", "the first leads", (View("leader-1", 2, properties.leads),), bool)
    one = replace(build(TINY), properties=(leads,))
    with pytest.raises(Asymmetric, match=r"'leads' reads leader-1.*state it for all"):
        explore(one, **PLAIN)


def test_a_crash_that_costs_one_host_alone_is_refused():
    one = build(replace(TINY, crashes=1))
    mine = Budget("crash of leader-1", 1, lambda actor, event: actor == "leader-1" and type(event).__name__ == "Crash")
    with pytest.raises(Asymmetric, match="the same inputs"):
        explore(replace(one, budgets=(mine, *one.budgets)), **PLAIN)


@pytest.mark.parametrize(
    ("names", "word"),
    [
        (("leader-1",), "at least two"),
        (("leader-1", "leader-9"), "no such component"),
        (("leader-1", "leader-1"), "twice"),
    ],
)
def test_a_symmetry_of_what_is_not_there_is_refused(names, word):
    with pytest.raises(ConfigurationError, match=word):
        explore(replace(build(TINY), symmetries=(Symmetry(names),)), **PLAIN)
