"""Schedules: counterexamples as data, with times that real timers allow."""

from __future__ import annotations

import json
import random

import pytest
from counterexamples import PLANTED, of_bug, random_walk, scripted, stale_grant
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.borrower import LeaseEnd
from statemachines_spec.script import script as scripts
from statemachines_spec.script.path_to_script import Bound, Contradiction, Unscriptable, moments, script_of
from statemachines_spec.shared_subscriptions.systems import system

# -- as data --------------------------------------------------------------------------------------------------------


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


def test_a_message_is_delivered_once_and_a_lost_one_never():
    made = stale_grant()
    taken = next(step for step in made.steps if step.do == "deliver")
    again = replace(taken, n=99, at_ns=made.steps[-1].at_ns + 1)
    with pytest.raises(ConfigurationError, match="step 99"):
        replace(made, steps=(*made.steps, again)).check()
    lost = next(step for step in made.steps if any(sent.lost for sent in step.sends) and step.n)
    words = next(sent for sent in lost.sends if sent.lost).words
    late = scripts.ScriptStep(
        99, again.at_ns, "deliver", words.to, words.what, words.about, words.sender, words.final, lost.n
    )
    with pytest.raises(ConfigurationError, match=f"sent in step {lost.n}"):
        replace(made, steps=(*made.steps, late)).check()


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


def test_every_timer_that_fires_is_due_just_then():
    made = stale_grant()
    started = {step.node: step.at_ns for step in made.steps if step.do == "start"}
    first = {}
    for step in made.steps:
        if step.what == "find_leader_timer":
            first.setdefault(step.node, step.at_ns)
    for node, at_ns in first.items():
        assert at_ns - started[node] == made.own.configuration_of(node).find_leader_ms * 10**6
    assert sorted(step.at_ns for step in made.steps) == [step.at_ns for step in made.steps]


def test_a_node_gets_a_longer_time_of_its_own_where_the_run_needs_it():
    one = system("reordering", "small")
    made = script_of(one, random_walk(one, 6, 20), protocol="shared_subscriptions")
    (node,) = made.own.times
    assert node in made.own.consumers
    assert made.own.configuration_of(node).find_leader_ms > made.own.configuration.find_leader_ms


def test_timers_that_the_system_leaves_out_are_due_after_hours():
    made = scripted(system("reordering", "small", "as_written"), variant="as_written")
    assert made.timers == ()
    assert made.own.configuration.check().renew_streams_ms * 10**6 > 100 * made.steps[-1].at_ns


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
