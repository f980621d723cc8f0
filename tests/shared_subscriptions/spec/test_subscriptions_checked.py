"""The shipped machines of shared subscriptions, explored: what holds, what breaks, and the shortest way there.

Ways that nothing heals, explored: between a member and a leader, and between a leader and its stores.
"""

import re
from contextlib import ExitStack

import msgspec
import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import STAY, ConfigurationError, GaplessError, Row
from statemachines.shared_subscriptions import claim, leader, membership
from statemachines.shared_subscriptions.borrower import BORROWER
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.message import UpdateProgress
from statemachines_spec.bug import change_rows, replace_call, wrap_call
from statemachines_spec.explorer import counterexample
from statemachines_spec.explorer.explore import COMPLETE, explore, follow
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.replay import replay
from statemachines_spec.explorer.service_actor import search
from statemachines_spec.explorer.variant import substitute_rows
from statemachines_spec.liveness.judge import live
from statemachines_spec.shared_subscriptions import SPEC
from statemachines_spec.shared_subscriptions.consumer import Consumer
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.orders import ORDERS
from statemachines_spec.shared_subscriptions.script import GroupSetting
from statemachines_spec.shared_subscriptions.stores import Store
from statemachines_spec.shared_subscriptions.systems import SYSTEMS, build, system
from statemachines_spec.shared_subscriptions.unreachable import ABOUT, WORKS_IN_TIME

PLAIN = {"engine": "plain"}


@pytest.fixture(scope="module")
def as_written():
    one = system("late-copies", "small", "as_written")
    return one, explore(one, **PLAIN)


@pytest.mark.long
def test_both_walkers_agree_on_the_shipped_machines():
    one = system("leader-crash", "small")
    plain, compiled = (explore(one, engine=engine) for engine in ("plain", "compiled"))
    for field in ("states", "transitions", "cuts", "terminal", "levels", "edges", "entries", "locals", "sometimes"):
        assert getattr(plain, field) == getattr(compiled, field), field


@pytest.mark.long
def test_what_the_source_forgets_installs_a_removed_stream(as_written):
    _, result = as_written
    assert not result.always["S5"]
    assert len(result.path.legs) == 21


@pytest.mark.long
def test_no_run_to_it_is_shorter(as_written):
    one, result = as_written
    plainest = search(one, 10**6)
    assert (plainest.broken, plainest.depth) == ("S5", len(result.path.legs))


@pytest.mark.long
def test_without_copies_of_the_network_it_takes_resending_and_two_steps_more():
    about, _ = SYSTEMS["late-copies"]
    setting = GroupSetting(network=Network(2, duplicating=False))
    result = explore(build("late-copies", about, setting, "as_written"), **PLAIN)
    assert len(result.path.legs) == 23
    assert explore(build("late-copies", about, setting), **PLAIN).is_held


@pytest.mark.long
def test_both_walkers_find_the_same_shortest_run(as_written):
    one, result = as_written
    again = explore(one, engine="compiled")
    assert again.path == result.path


def test_fresh_nodes_come_to_the_same_violation(as_written):
    one, result = as_written
    done = replay(one, result.path)
    assert done.broken == "S5"
    assert done.events > 20
    assert {node.fsm.name for node in done.nodes.values()} == {"agent", "borrower", "registry", "leader"}


def test_fresh_nodes_are_judged_by_their_own_records(as_written):
    one, result = as_written
    shorter = msgspec.structs.replace(result.path, legs=result.path.legs[:-1])
    with_last = replay(one, result.path)
    assert with_last.broken == "S5"
    assert replay(one, shorter).broken == ""


def test_the_settled_borrower_does_not_go_that_way(as_written):
    one, result = as_written

    def settled(step):
        return replace(step, fsm=BORROWER) if step.machine == "borrower" else step

    legs = [
        replace(leg, turns=tuple(replace(turn, steps=tuple(map(settled, turn.steps))) for turn in leg.turns))
        for leg in result.path.legs
    ]
    with pytest.raises(GaplessError, match=r"step 1.: consumer-.~1/1 came to"):
        replay(one, replace(result.path, legs=tuple(legs)))


# -- reading a counterexample ---------------------------------------------------------------------------------------


def test_the_text_says_who_did_what_by_which_clause(as_written):
    _, result = as_written
    text = counterexample.describe_path(result.path)
    assert re.search(r"^ 21\. consumer-\d~1/1 takes grant\(", text, re.MULTILINE)
    assert "stream 0.0/a#1: absent -> granted by grant, row 0 [SS-30]" in text
    assert re.search(r"consumer-\d is:  consumer-\d~1/1 connected, .*, leased, granted 0.0/a", text)
    assert text.endswith("broken: S5: no two consumers hold one stream under leases that have not ended")


def test_the_diagram_has_an_arrow_for_each_message(as_written):
    one, result = as_written
    lines = counterexample.draw_mermaid(one, result.path).splitlines()
    assert lines[0] == "sequenceDiagram"
    arrows = [line for line in lines if ">>" in line or "-x" in line]
    notes = [line for line in lines if line.strip().startswith("Note over")]
    assert len(arrows) + len(notes) == len(result.path.legs) + 1  # and the note on what broke


def test_the_function_to_paste_is_a_test_that_passes(as_written):
    one, result = as_written
    source = counterexample.pytest_function(one, result.path)
    space = {}
    exec(compile(source, "pasted", "exec"), space)
    space["test_late_copies_s5"]()


def test_a_script_that_cannot_be_followed_is_refused(as_written):
    one, result = as_written
    script = list(result.path.script)
    with pytest.raises(GaplessError, match="line 2 of the script"):
        follow(one, [script[0], script[9]])


# -- deadline orders ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "order", "rests"),
    [
        ("borrower-crash", "lease before hand-over", "S5"),
        ("revoke-timeout", "lease before hand-over", "S5"),
        ("leader-crash", "lease before the end of the grace", "S5"),
        ("two-leaders", "end of a claim before its age", "S3 claim leader-1"),
    ],
)
def test_without_a_deadline_order_something_breaks(name, order, rests):
    one = system(name, "small", without=(order,))
    result = explore(one, **PLAIN)
    assert result.path.broken == rests
    assert replay(one, result.path).broken == result.path.broken


@pytest.mark.parametrize(
    ("name", "order", "rests"),
    [
        ("revoke-timeout", "lease before hand-over", {"S5"}),
        (
            "two-leaders",
            "end of a claim before its age",
            {"S3 claim leader-1", "S3 claim leader-2", "one leader", "S5"},
        ),
    ],
)
def test_what_rests_on_a_deadline_order_is_all_that_breaks_without_it(name, order, rests):
    one = system(name, "small", without=(order,))
    names = {each.name for each in one.properties}
    assert rests <= names
    others = tuple(each for each in one.properties if each.name not in rests)
    engine = "plain" if name == "revoke-timeout" else "compiled"
    assert explore(replace(one, properties=others, origin=None), engine=engine, hashing=False).is_held


def test_every_order_has_a_system_that_shows_what_rests_on_it():
    shown = {"lease before hand-over", "lease before the end of the grace", "end of a claim before its age"}
    assert {order.name for order in ORDERS} == shown


def test_every_deadline_order_is_printed_with_its_relation():
    bounds = system("leader-crash", "small").describe_bounds()
    for order in ORDERS:
        assert bounds[f"deadline order: {order.name}"] == order.relation


@pytest.mark.long
def test_handing_over_at_once_is_not_exclusive():
    assert not explore(system("borrower-crash", "small", "at_once"), **PLAIN).always["S5"]


@pytest.mark.long
def test_a_store_that_gives_one_stamp_twice_lets_two_leaders_write():
    """A claim that was renewed must not look as it did before: stamps tell batches apart."""

    class Standing(Store):
        def react(self, local, envelope, watch=None):
            reaction = super().react(local, envelope, watch)
            return msgspec.structs.replace(reaction, local=replace(reaction.local, commits=0))

    about, sizes = SYSTEMS["two-leaders"]
    one = build(
        "two-leaders", about, replace(GroupSetting(), **sizes["small"] | {"network": Network(2)}, roots=1, offsets=1)
    )
    stores = [actor for actor in one.actors if isinstance(actor, Store)]
    standing = Standing(stores[0].service, at_once=False, roots=1, state=stores[0].state)
    actors = tuple(standing if actor is stores[0] else actor for actor in one.actors)
    result = explore(replace(one, actors=actors), hashing=False)
    assert result.path.broken == "S3"


# -- broken tables --------------------------------------------------------------------------------------------------


def with_machines(name, *, borrower=BORROWER, leader=LEADER):
    """A small system with other machines in place of the shipped ones."""
    one = system(name, "small")
    for actor in one.actors:
        if isinstance(actor, Consumer):
            actor.use_machine("borrower", borrower)
        elif isinstance(actor, LeaderHost):
            actor.use_machine("leader", leader)
    return msgspec.structs.replace(one, origin=None)


def changed(fsm, on, change):
    """The machine with `change(row)` for every row on `on`."""
    return substitute_rows(fsm, lambda row: change(row) if row.on is on else row)


@pytest.mark.long
def test_a_leader_that_takes_progress_from_anybody_breaks_s4():
    def careless(row):
        return Row(row.on, row.source, row.to, row.do, is_of_stream, row.clause) if row.clause == "SS-143" else row

    def is_of_stream(record, event):
        return event.stream in record.assignments and event.borrower in record.members

    result = explore(with_machines("late-copies", leader=changed(LEADER, UpdateProgress, careless)), **PLAIN)
    assert result.path.broken == "S4"


def test_a_borrower_that_goes_back_breaks_s1():
    def back(row):
        if row.clause != "SS-10":
            return row
        return Row(row.on, row.source, BORROWER.initial, row.do, row.when, row.clause)

    one = with_machines("late-copies", borrower=substitute_rows(BORROWER, back))
    result = explore(one, **PLAIN)
    assert not result.is_held
    assert result.path.broken == "S1"
    assert replay(one, result.path).broken == "S1"


UNSERVED = {"L1 consumer-1", "L2 served", "L5", "L6 reachable"}
"""What a member misses that no leader reaches any more."""


def find_broken(made):
    """Names of the properties and obligations that do not hold, and what happens how often; obligations are judged only
    where all else holds.

    Without an origin nothing is made once more in another process, where no mistake is planted.
    """
    made = replace(made, origin=None)
    entries = Entries(made)
    result = explore(made, engine="plain", hashing=False, entries=entries)
    if broken := {name for name, held in result.always.items() if not held}:
        return broken, result.sometimes
    assert result.ended == COMPLETE
    judged = live(made, SPEC.obligations_of(made), engine="plain", entries=entries)
    assert not any(one.bounded for one in judged), "of some runs beyond the bounds nothing is known"
    return {one.name for one in judged if not one.is_held}, result.sometimes


LARGE = ("leader-to-group-store", "leader-to-stream-store", "member-to-leader")
"""`make soak` explores these."""


@pytest.mark.parametrize("name", mark_long(ABOUT, *LARGE))
def test_a_way_is_cut_and_the_path_that_is_left_serves_the_member(name):
    broken, shown = find_broken(SPEC.system(name))
    assert broken == set()
    assert {"consumer-1 delivers", "L4 rest"} < set(shown)
    assert all(shown.values())


def count_unheard_members(record, event):
    """The rule before SS-279: who is registered keeps the leader from being idle."""
    return not record.members


def keep_heard(forget):
    def count_no_more(draft, borrower, heard=False):
        before = draft.record.heard
        forget(draft, borrower, heard)
        draft.record = replace(draft.record, heard=before)

    return count_no_more


def is_taken_at_once(record, event):
    return claim.is_claimable(replace(record, willing=True), event)


def is_taken_if_released(record, event):
    return claim.is_claimable(replace(record, ripe=False), event)


@pytest.mark.parametrize(
    ("mistake", "name", "what"),
    [
        pytest.param(
            replace_call(leader, "nobody_is_heard", count_unheard_members),
            "leader-to-member",
            UNSERVED | {"L2 leader-1"},
            id="unheard-members-keep-the-claim",
        ),
        pytest.param(
            change_rows(leader.LEADER, "take", when=is_taken_at_once),
            "leader-to-member",
            {"L6 held back"},
            id="claim-taken-again-at-once",
        ),
        pytest.param(
            wrap_call(membership, "forget", keep_heard),
            "member-to-leader",
            UNSERVED,
            id="members-that-are-gone-keep-the-claim",
            marks=pytest.mark.long,
        ),
        pytest.param(
            change_rows(leader.LEADER, "take", when=is_taken_if_released),
            "leader-to-group-store",
            UNSERVED | {"L6"},
            id="old-claim-never-taken",
        ),
        pytest.param(
            change_rows(leader.LEADER, "let_go_blind", when=lambda record, event: False),
            "leader-to-stream-store",
            UNSERVED | {"L6"},
            id="claim-kept-without-streams",
        ),
        pytest.param(
            change_rows(BORROWER, "leave_for_now", to=STAY, do=None),
            "member-to-stream-store",
            {"L2 served", "L5"},
            id="unreadable-streams-kept",
        ),
    ],
)
def test_a_mistake_leaves_the_member_unserved(mistake, name, what):
    with ExitStack() as stack:
        mistake(stack)
        assert find_broken(SPEC.system(name))[0] == what


@pytest.mark.long
def test_deadlines_that_do_not_wait_for_what_works_end_a_second_borrower():
    """The deadline order is no decoration."""
    made = SPEC.system("leader-to-member", without=(WORKS_IN_TIME.name,))
    assert find_broken(made)[0] == {"L8"}


def test_an_unknown_size_is_refused():
    with pytest.raises(ConfigurationError, match="size"):
        SPEC.system("leader-to-member", size="tiny")
