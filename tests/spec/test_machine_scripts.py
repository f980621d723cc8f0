"""Scripts of declared machines that nobody wrote glue for: what the explorer finds, real nodes with real timers do.

Schedules: counterexamples as data, with times that real timers allow.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from functools import cache
from typing import Any

import msgspec
import pytest
from counterexamples import PLANTED, of_bug, random_walk, scripted, stale_grant
from hypothesis import given
from hypothesis import strategies as st
from lock_toy import (
    HOLDER,
    HOLDING,
    IDLE,
    LOCK,
    HolderRecord,
    LockRecord,
    Want,
    few_asks,
    few_tokens,
    lock_system,
    wrote_system,
)
from msgspec.structs import asdict, replace

from statemachines import cli
from statemachines.kernel import ConfigurationError, Invariant
from statemachines.shared_subscriptions.borrower import LeaseEnd
from statemachines_sim.machine_runtime import run_live
from statemachines_sim.machine_stage import simulate
from statemachines_spec import Always, Clock, FsmActor, Network, Stepwise, System, explore
from statemachines_spec.explorer.explore import along
from statemachines_spec.explorer.moves import Moves
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.protocol import system_at
from statemachines_spec.script import script as scripts
from statemachines_spec.script.origin import system_of
from statemachines_spec.script.path_to_script import Bound, Contradiction, Unscriptable, moments, script_of
from statemachines_spec.shared_subscriptions.systems import system

HERE = __name__

KINDS = {
    "forgetful": {"asks": 1, "crashes": 1, "disk": False, "pauses": 0},
    "durable": {"asks": 1, "crashes": 1, "pauses": 0},
    "unfenced": {"asks": 1, "honours": False, "remote": True},
    "fenced": {"asks": 1, "honours": True, "remote": True},
    "unordered": {"asks": 1, "order": False},
    "paused": {"asks": 1},
}


def simulated(script, variant=""):
    """What came of it in the simulator."""
    return simulate(script, variant).replayed


FOLLOW = pytest.mark.parametrize("follow", [simulated, run_live])
"""In the simulator, and on the asyncio runtime."""


def locks(variant: str = "forgetful") -> System:
    """A lock with leases, in one of these kinds."""
    return lock_system(**KINDS[variant])


def counting_store() -> System:
    """The store takes whatever comes, and a property of its steps says that it should not."""

    def overtakes(actor: str, before: Any, event: Any, after: Any) -> bool:
        return actor != "store" or before.state.overtaken or not after.state.overtaken

    rule = Stepwise("overtakes", "no write is taken after a later one", overtakes)
    return replace(locks("unfenced"), properties=(rule,))


def told_applications() -> System:
    """One holder is too many."""
    return wrote_system(highest=0)


def two_locks() -> System:
    """What the holder sends goes to both, and the second grants as well."""
    both = ("lock-1", "lock-2")
    first, second = (FsmActor(name, LOCK, LockRecord(), bound=few_tokens) for name in both)
    holder = FsmActor(
        "holder-1",
        HOLDER,
        HolderRecord("holder-1"),
        calls=lambda record: (Want(),) if record.status is IDLE else (),
        route=lambda to: both,
        bound=few_asks,
    )
    grants = second.view(lambda record: min(record.token, 1))
    rule = Always("idle", "the second lock grants nothing", (grants,), lambda token: token == 0)
    return System("two-locks", "two locks hear the same", (first, second, holder), Network(2), properties=(rule,))


def explored(name, **arguments):
    """The system that a function here makes, and its counterexample."""
    system = system_at(f"{HERE}:{name}", **arguments)
    return system, explore(replace(system, origin=None), engine="plain", hashing=False).path


def unannotated(variant="forgetful"):
    return locks(variant)


@cache
def counterexample(kind):
    return script_of(*explored("locks", variant=kind), variant=kind)


@pytest.fixture
def gapless(capsys):
    def run(*arguments):
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


# -- what breaks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "breaks"), [("forgetful", "one holder"), ("unfenced", "fenced")])
@FOLLOW
def test_a_counterexample_breaks_the_same_property_with_real_timers(kind, breaks, follow):
    replayed = follow(counterexample(kind))
    assert (replayed.name, replayed.reached) == (breaks, True)
    assert replayed.followed.stopped == ""
    assert not replayed.followed.missing


def test_a_script_is_followed_the_same_way_each_time():
    made = counterexample("unfenced")
    assert simulate(made).rows == simulate(made).rows


@pytest.mark.parametrize(("kind", "mended"), [("unfenced", "fenced"), ("forgetful", "durable")])
@FOLLOW
def test_by_other_rules_the_same_script_breaks_nothing(kind, mended, follow):
    """A store that looks at tokens; a disk that keeps the number of the last attempt over a crash."""
    assert follow(counterexample(kind), mended).broken == {}


def test_what_no_real_timers_do_is_said_with_their_times():
    with pytest.raises(Unscriptable, match=r"lease of holder-. .8000 ms. .*expiry of lock .10000 ms."):
        counterexample("unordered")


# -- any run --------------------------------------------------------------------------------------------------------


def walks(kind, seeds=range(60), steps=14):
    """Random runs, those that real timers allow."""
    system = system_at(f"{HERE}:locks", variant=kind)
    entries = Entries(system)
    for seed in seeds:
        moves, chance = Moves(entries), random.Random(seed)
        states = [moves.first()]
        for _ in range(steps):
            options = [move.target for move in moves.of(states[-1]) if move.target is not None and not move.broken]
            options = [target for target in options if target not in states]
            if not options:
                break
            states.append(chance.choice(options))
        with contextlib.suppress(Unscriptable):
            yield script_of(system, along(entries, states), variant=kind)


@FOLLOW
@pytest.mark.parametrize("kind", ["paused", "forgetful", "fenced"])
def test_what_the_explorer_walks_real_nodes_walk_too(kind, follow):
    """Pauses with deadlines that pass meanwhile, crashes and restarts, requests that travel."""
    made = list(walks(kind))
    assert len(made) >= 4
    for one in made:
        replayed = follow(one)
        assert (replayed.followed.stopped, replayed.followed.missing, replayed.broken) == ("", (), {})
    done = {step.do for one in made for step in one.steps}
    assert {"call", "deliver"} <= done
    assert {"paused": {"pause", "pass"}, "forgetful": {"crash"}, "fenced": {"pause"}}[kind] <= done


# -- files and commands ---------------------------------------------------------------------------------------------


def test_it_comes_back_from_its_file(tmp_path):
    made = counterexample("unfenced")
    scripts.write(tmp_path / "one.json", made)
    assert scripts.read(tmp_path / "one.json") == made


def test_d_240_the_command_follows_it_on_the_asyncio_runtime(gapless, tmp_path):
    path = tmp_path / "one.json"
    scripts.write(path, counterexample("unfenced"))
    code, out, _ = gapless("replay", path, "--runtime")
    assert code == 1
    assert out.splitlines()[-1] == "VIOLATED fenced: no write is taken after a later one (store: 1)"
    code, out, _ = gapless("replay", path, "--runtime", "--variant", "fenced")
    assert (code, out.splitlines()[-1]) == (0, "fenced does not break here, nor does anything else")


def test_logs_are_of_registered_protocols(gapless, tmp_path):
    """A log says by whose tables it is judged; `tests/cli/test_made_up_protocol.py` has one that is registered."""
    scripts.write(tmp_path / "one.json", counterexample("unfenced"))
    code, _, err = gapless("replay", tmp_path / "one.json", "--runtime", "--trace", tmp_path / "logs")
    assert code == 2
    assert "protocol = 'lock_made_up': is not registered" in err
    assert "leave --trace out, or register it" in err


@FOLLOW
def test_an_invariant_that_raises_ends_the_run_under_its_name(monkeypatch, follow):
    broken = Invariant("never-holds", "X-1", lambda record: record.status is not HOLDING)
    made = counterexample("unfenced")
    monkeypatch.setattr(HOLDER, "invariants", (broken,))
    replayed = follow(made)
    assert (replayed.ended, replayed.reached) == ("holder:never-holds", False)


@FOLLOW
@pytest.mark.parametrize(
    ("of", "breaks"), [("counting_store", "overtakes"), ("told_applications", "few"), ("two_locks", "idle")]
)
def test_d_242_what_a_service_does_in_a_step_and_what_is_told_is_judged(of, breaks, follow):
    """A property of the store's steps, one of an observer that holders tell what they wrote, one about a route."""
    system, path = explored(of)
    replayed = follow(script_of(system, path))
    assert (path.broken, replayed.name, replayed.reached) == (breaks, breaks, True)


def test_a_file_calls_no_function_that_does_not_make_systems():
    made = counterexample("forgetful")
    for place in ("os:system", f"{HERE}:unannotated", "subprocess:run"):
        other = replace(made, origin=scripts.Origin(place, {}))
        with pytest.raises(ConfigurationError, match="only if it says that it makes a system"):
            system_of(other)
        with pytest.raises(ConfigurationError, match="only if it says that it makes a system"):
            system_of(replace(made, origin=scripts.Origin("statemachines_spec.protocol:system_at", {"place": place})))
    with pytest.raises(ConfigurationError, match="does not say how its system is made"):
        system_of(replace(made, origin=None))


def test_what_is_no_declared_machine_is_named():
    made = counterexample("forgetful")
    toy = replace(made, origin=scripts.Origin("symmetric_system:toy", {}))
    with pytest.raises(ConfigurationError, match=r"only an FsmActor or a ServiceActor has a counterpart|-> System"):
        simulate(toy)


def test_where_time_is_a_list_of_instants_there_is_no_script():
    system = system_at(f"{HERE}:locks", variant="paused")
    timed = replace(system, actors=(*system.actors, Clock(0, 5)), origin=None)
    entries = Entries(timed)
    with pytest.raises(Unscriptable, match="its time is a list of instants"):
        script_of(timed, along(entries, [Moves(entries).first()]))


def test_components_of_other_kinds_have_no_script(gapless, tmp_path):
    words = ("check", "missed_samples", "--system", "gap", "--variant", "as_written")
    code, _, err = gapless(*words, "--script", tmp_path / "one.json")
    assert code == 1
    assert re.search(r"no script and no trace: \S+: \S+ is a \w+, and only an FsmActor or a ServiceActor can", err)


def test_a_call_of_another_shape_stops_the_run_at_its_step():
    made = counterexample("forgetful")
    call = next(step for step in made.steps if step.do == "call")
    for changed, words in (({"what": "wish"}, "knows no call 'wish'"), ({"fields": "[1"}, "want: ")):
        steps = tuple(replace(step, **changed) if step is call else step for step in made.steps)
        stopped = simulate(replace(made, steps=steps)).replayed.followed.stopped
        assert stopped.startswith(f"step {call.n} (call")
        assert words in stopped


def test_an_unknown_word_is_refused_with_those_there_are():
    made = counterexample("forgetful")
    steps = (replace(made.steps[0], do="dance"), *made.steps[1:])
    with pytest.raises(ConfigurationError, match="nobody can do that; there are: start, crash"):
        replace(made, steps=steps).check()
    raw = msgspec.to_builtins(made)
    assert scripts.decode_script(raw) == made


# -- as data --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_schedule_comes_back_from_its_file(tmp_path):
    made = stale_grant()
    scripts.write(tmp_path / "deep" / "one.json", made)
    assert scripts.read(tmp_path / "deep" / "one.json") == made
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["one.json"]


def test_it_has_a_line_for_each_step_and_says_what_it_is(tmp_path):
    made = stale_grant()
    lines = scripts.encode(made).splitlines()
    assert sum(line.startswith(b'  {"n":') for line in lines) == len(made.steps) == 23
    assert scripts.looks_like_one(scripts.encode(made))
    assert not scripts.looks_like_one(b'{"scenario": {}}')


def changed(made, at, fields):
    steps = tuple(replace(step, **fields) if step.n == at else step for step in made.steps)
    return replace(made, steps=steps)


@pytest.mark.parametrize(
    ("n", "fields", "words"),
    [
        (4, {"what": "grant_finished"}, "step 4 .*no such message is in flight, sent in step 3"),
        (4, {"sent_in": 2}, "step 4 .*no such message is in flight, sent in step 2"),
        (12, {"nth": 7}, "step 12 .*no such message"),
        (12, {"sent_in": 20}, "step 12 .*no such message is in flight, sent in step 20"),
        (9, {"at_ns": 5}, "step 9 = 5: comes before the step before it"),
        (21, {"at_ns": 10**15}, "is not a script: Expected .int. <= 86400000000000"),
        (9, {"n": 3}, "step 3 = 3: steps are numbered upwards"),
        (7, {"node": "consumer-3"}, "step 7 = 'consumer-3': no such node; there are: consumer-1, consumer-2"),
    ],
)
def test_a_schedule_that_was_altered_is_refused_with_the_step(n, fields, words, tmp_path):
    altered = changed(stale_grant(), n, fields)
    path = tmp_path / "altered.json"
    path.write_bytes(scripts.encode(altered))
    with pytest.raises(ConfigurationError, match=rf"altered.json.*{words}"):
        scripts.read(path)
    with pytest.raises(ConfigurationError, match=f"script, step {fields.get('n', n)} "):
        altered.check()


@pytest.mark.parametrize(
    ("do", "node", "words"),
    [
        ("unsubscribe", "leader-1", "a leader host cannot unsubscribe: it must be a consumer"),
        ("start", "leader-1", "a leader host cannot start: it must be a consumer"),
        ("crash", "group_store", "a store cannot crash: it must be a consumer or leader host"),
        ("start", "consumer-1", "is started already"),
    ],
)
def test_who_cannot_do_it_is_not_told_to(do, node, words):
    made = stale_grant()
    step = scripts.ScriptStep(99, made.steps[-1].at_ns, do, node)
    with pytest.raises(ConfigurationError, match=f"step 99 = '{node}': {words}"):
        replace(made, steps=(*made.steps, step)).check()


def test_who_was_not_started_does_nothing():
    made = stale_grant()
    steps = tuple(step for step in made.steps if step.do != "start")
    with pytest.raises(ConfigurationError, match=r"step 1 = 'consumer-.': is not started yet"):
        replace(made, steps=steps).check()


GARBAGE = (
    b"",
    b"{}",
    b"[]",
    b"\xff\xfe",
    b'{"format": "gapless script 2"}',
    b'{"format": "gapless script 2", ' * 50,
)


@pytest.mark.parametrize("data", [*GARBAGE, b"[" * 100_000, b"a" * (scripts.SIZE_MAX + 1)])
def test_what_is_no_schedule_is_refused(data, tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"is not a script|has more than"):
        scripts.read(path)


def test_a_random_schedule_is_refused_or_sound(tmp_path):
    """Whatever one field is changed to: an error that names something, or a schedule that can be written again."""
    made = json.loads(scripts.encode(stale_grant()))
    chance = random.Random(0)
    path, refused = tmp_path / "random.json", []
    for _ in range(300):
        copy = json.loads(json.dumps(made))
        place = copy if chance.random() < 0.3 else chance.choice(copy["steps"])
        place[chance.choice(list(place))] = chance.choice([-1, 0, 7, 2**70, "", "x" * 999, "grant", None, [], {}, True])
        path.write_text(json.dumps(copy))
        try:
            scripts.encode(scripts.read(path))
        except ConfigurationError as error:
            refused.append(str(error))
    assert len(refused) > 150
    assert all("random.json" in words for words in refused)


# -- times ----------------------------------------------------------------------------------------------------------


def test_a_node_gets_a_longer_time_of_its_own_where_the_run_needs_it():
    one = system("reordering", "small")
    made = script_of(one, random_walk(one, 6, 20), protocol="shared_subscriptions")
    (node,) = made.own.times
    assert node in made.own.consumers
    assert made.own.configuration_of(node).find_leader_ms > made.own.configuration.find_leader_ms


@pytest.mark.long
def test_timers_that_the_system_leaves_out_are_due_after_hours():
    made = scripted(system("reordering", "small", "as_written"), variant="as_written")
    assert made.timers == ()
    assert made.own.configuration.check().renew_streams_ms * 10**6 > 100 * made.steps[-1].at_ns


@pytest.mark.long
def test_one_that_must_fire_all_the_same_is_named():
    """A lease ends after the next ping: whoever leaves out pings and lets leases end meets them."""
    one = system("reordering", "small")
    found = [script_of(one, path, protocol="shared_subscriptions") for path in leases_that_end(one)]
    assert any("ping of consumer-" in line and "may fire of itself" in line for made in found for line in made.timers)


def leases_that_end(one):
    walks = (random_walk(one, seed, 24) for seed in (0, 3, 11))
    return [path for path in walks if any(isinstance(leg.envelope.event, LeaseEnd) for leg in path.legs)]


@pytest.mark.parametrize(
    ("name", "order", "words"),
    [
        (
            "borrower-crash",
            "lease before hand-over",
            "hand_over of leader-1~1/1 for consumer-[12]~1/1 .3060 ms. is set in",
        ),
        # Who watches a claim looks at it every second, and in these runs only once: that is named first.
        ("leader-crash", "lease before the end of the grace", "retry of leader-1~2/1 .500 ms. .* age of the claim of"),
        ("two-leaders", "end of a claim before its age", "retry of leader-2~1/1 .500 ms. .* age of the claim of"),
    ],
)
def test_no_real_run_breaks_a_deadline_order(name, order, words):
    """What the explorer finds without an order cannot be had with real timers: the contradiction names them."""
    with pytest.raises(Unscriptable, match=words):
        scripted(system(name, "small", without=(order,)))


def test_bounds_that_contradict_each_other_are_named():
    bounds = (Bound(0, 1, 10, "ten later"), Bound(1, 0, -5, "five later at most"), Bound(0, 2, 1, "no matter"))
    with pytest.raises(Contradiction, match=r"^ten later; five later at most$|^five later at most; ten later$"):
        moments(3, bounds)
    soft = replace(bounds[1], soft=True)
    found = moments(3, (bounds[0], soft, bounds[2]))
    assert (found.at_ns, found.given_up) == ((0, 10, 1), ("five later at most",))


@given(
    st.lists(st.integers(0, 1000), min_size=2, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 50)), max_size=30),
)
def test_bounds_that_some_moments_keep_are_kept(at, drawn):
    count = len(at)
    bounds = [Bound(a % count, b % count, at[b % count] - at[a % count] - slack, "") for a, b, slack in drawn]
    found = moments(count, bounds).at_ns
    assert all(found[bound.later] - found[bound.earlier] >= bound.least_ns for bound in bounds)
    assert all(low <= high for low, high in zip(found, (one + 10**6 for one in at), strict=True))


# -- what is in them ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", PLANTED)
def test_a_schedule_says_what_breaks_and_by_which_mistake(bug):
    made = of_bug(bug)
    assert (made.bug, made.breaks) == (bug, PLANTED[bug][1])


def test_no_number_of_the_explorer_is_in_it():
    made = stale_grant()
    numbers = {"epoch", "registration", "grant", "progress"}
    assert not numbers & set().union(*(asdict(step) for step in made.steps))
