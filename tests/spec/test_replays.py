"""Replays: a counterexample of the explorer leads real hosts to the same violation.

Planted bugs: simulation and Hypothesis find them where the tables of `planted_bugs.md` say.

After a change of a machine, a scenario or a system: `python tools/planted.py --protocol P --write`, as the pages say.
Exploration's column is repeated in `tests/spec/test_replays.py`.

Planted bugs of all protocols: exploration finds each in the system, and after the states, that the table says.

After a change of a machine or a system: `python tools/planted.py --protocol P --method exploration --write`, as the
pages say.  Those of shared subscriptions, whose runs are replayed, too: `tests/shared_subscriptions/testing/`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from counterexamples import PLANTED, of_bug, random_walk, stale_grant
from long_cases import mark_long
from msgspec.structs import replace
from planted_cells import PAGES, STATES_MAX, read_found, read_rows

from statemachines import cli
from statemachines.testing.bug_search import driven_run, simulation_run
from statemachines_sim.scenario import find_scenario
from statemachines_sim.shared_subscriptions.asyncio_stage import run_live, simulate
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug
from statemachines_spec.directed_system import explore_directed
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.protocol import all_parts, of_protocol
from statemachines_spec.script import script as scripts
from statemachines_spec.script.path_to_script import Unscriptable, script_of
from statemachines_spec.shared_subscriptions.systems import SYSTEMS, system

GOLDEN = Path(__file__).parents[1] / "golden" / "stale-grant.script.json"
SETTLED = "settled"


RUNTIMES = {"simulator": lambda made, variant="": simulate(made, variant).replayed, "asyncio": run_live}


@pytest.fixture(params=RUNTIMES)
def follow(request):
    """What breaks, and how far the schedule was followed: in the simulator, and on the asyncio runtime."""
    return RUNTIMES[request.param]


@pytest.fixture
def gapless(capsys):
    def run(*arguments):
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


# -- the source's stale grant ---------------------------------------------------------------------------------------


def test_the_stale_grant_lets_two_sessions_deliver_one_stream(follow):
    replayed = follow(stale_grant())
    assert (replayed.reached, replayed.followed.stopped) == (True, "")
    assert "delivers 0.0/a while consumer-" in replayed.broken["S5"]
    assert not replayed.followed.missing


def test_the_settled_rules_do_not_break_under_the_same_schedule(follow):
    replayed = follow(stale_grant(), SETTLED)
    assert replayed.broken == {}
    # The late copy of the grant is ignored: the borrower says nothing to it.
    (missing,) = replayed.followed.missing
    assert "update_progress about 0.0/a from consumer-2 to leader-1" in missing


def test_the_run_that_was_kept_still_leads_there(follow):
    made = scripts.read(GOLDEN)
    assert len(made.steps) == 23
    assert follow(made).reached
    assert follow(made, SETTLED).broken == {}


def test_the_same_schedule_is_the_same_run_byte_for_byte(tmp_path):
    """On the asyncio runtime too, in processes whose strings hash otherwise."""
    made = stale_grant()
    assert simulate(made).rows == simulate(made).rows
    logs = []
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "statemachines", "replay", GOLDEN, "--runtime", "--trace", tmp_path / seed]
        assert subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True).returncode == 1
        logs.append({path.name: path.read_bytes() for path in (tmp_path / seed).iterdir()})
    assert logs[0] == logs[1]
    assert len(logs[0]) == 4


# -- planted bugs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_breaks_the_same_property(bug, follow):
    replayed = follow(of_bug(bug))
    assert replayed.name == PLANTED[bug][2]
    assert replayed.reached


@pytest.mark.parametrize("bug", PLANTED)
def test_without_the_bug_nothing_breaks(bug, follow):
    assert follow(of_bug(bug), SETTLED).broken == {}


# -- any run --------------------------------------------------------------------------------------------------------

WALKS = 5
NO_MESSAGE = "for its application to take"
"""The explorer's session acknowledges without a lease; a real one has nothing to acknowledge then."""


FOLLOWED = (
    "late-copies", "borrower-crash", "false-timeouts", "pause", "unsubscribe", "revoke-timeout", "leader-crash",
    "two-leaders", "reordering", "old-answers", "grant-window",
)  # fmt: skip
REFUSED = {
    "generations": "rotate", "vanished": "rotate", "store-failures": "fail", "late-timers": "late_firing",
    "election": "leader_wanted",
}  # fmt: skip
"""What these systems are about, no runtime can be told to do."""
BARELY = ("rebalance", "idle-stop", "fail-over")
"""Real timers rule nearly all of their random runs out."""
MORE = {"borrower-crash": 36, "false-timeouts": 24, "pause": 8}
"""Real timers rule most of their random runs out: a leader that has heard no member lets its claim go when the first
of them expires."""
UNSAID = ("lies", "two-lies", "unanswered", "pretender", "pretended-epochs", "restored-claim")
"""A shipped session says nothing that its reader has not read, and answers every grant: it cannot be told otherwise;
nor can anybody be told to lie, or a store to be put back."""


@pytest.mark.long
def test_every_system_is_followed_or_refused():
    sessions = {name for name in SYSTEMS if "account" in [one.name for one in system(name, "small").actors]}
    assert {*FOLLOWED, *REFUSED, *BARELY, *UNSAID, *sessions} == set(SYSTEMS)
    for name in sorted(sessions):
        with pytest.raises(Unscriptable, match=f"{name}: what whole sessions do has no steps"):
            script_of(one := system(name, "small"), random_walk(one, 0, 3), protocol="shared_subscriptions")


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_runtime_can_be_told_to_do_is_named(name):
    one, reasons = system(name, "small"), set()
    entries = Entries(one.in_full())
    for seed in range(WALKS):
        try:
            script_of(one, random_walk(one, seed, 20, entries), protocol="shared_subscriptions")
        except Unscriptable as error:
            reasons.add(str(error))
    assert any(f"nobody can be told to do {REFUSED[name]}" in reason for reason in reasons)


@pytest.mark.parametrize("name", mark_long(FOLLOWED, *MORE))
def test_what_the_explorer_walks_real_hosts_walk_too(name):
    """Random runs with crashes, pauses, claims that age, requests that travel: wherever real timers allow them."""
    one = replace(system(name, "small"), properties=())  # who follows it judges
    seeds = range(MORE.get(name, WALKS))
    entries = Entries(one.in_full())
    made = [found for seed in seeds if (found := walked(one, seed, entries)) is not None]
    assert len(made) >= 2
    followed = [(simulate(one).replayed, run_live(one)) for one in made]
    assert all(not one.broken for pair in followed for one in pair)
    stops = [pair[0].followed.stopped for pair in followed]
    assert stops == [pair[1].followed.stopped for pair in followed]
    assert all(NO_MESSAGE in stop for stop in stops if stop)
    assert any(not stop for stop in stops)


def test_a_grant_that_is_lost_and_never_repeated_shows_after_the_schedule(follow):
    """What a schedule leaves in flight is lost; who repeats nothing leaves a stream unread for ever."""
    made = scripts.read(GOLDEN)
    patient = replace(made.own, configuration=replace(made.own.configuration, grant_timeout_ms=3_600_000))
    begun = replace(made, own=patient, variant=SETTLED, steps=tuple(step for step in made.steps if step.n <= 3)).check()
    assert [sent.what for sent in begun.steps[-1].sends] == ["leader_connect_response", "grant"]
    assert follow(replace(begun, bug="grant-never-repeated")).broken == {
        "L5": "0.0/a: published and never acknowledged"
    }
    assert follow(begun).broken == {}


def walked(one, seed, entries):
    """The schedule of a random run; None: no real timers allow it."""
    path = random_walk(one, seed, 20, entries)
    try:
        return script_of(one, path, protocol="shared_subscriptions")
    except Unscriptable:
        return None


# -- schedules that cannot be followed ------------------------------------------------------------------------------


def test_a_timer_that_is_not_due_ends_the_run_at_its_step(follow):
    made = stale_grant()
    steps = tuple(replace(step, at_ns=step.at_ns - 500_000_000 * (step.n > 0)) for step in made.steps)
    replayed = follow(replace(made, steps=steps).check())
    assert not replayed.reached
    assert "step 1 (fire consumer-2 find_leader_timer): the timer is not due, or not set" in replayed.followed.stopped


def test_a_message_that_nobody_sends_ends_the_run_at_its_step(follow):
    made = stale_grant()
    step = next(step for step in made.steps if step.n == 1)
    sent = replace(step.sends[0], what="disconnect")
    wrong = replace(step, sends=(sent,))
    taken = next(one for one in made.steps if one.n == 2)
    steps = (*(one for one in made.steps if one.n < 1), wrong, replace(taken, what="disconnect"))
    replayed = follow(replace(made, steps=steps).check())
    assert "step 2 (copy disconnect from consumer-2 to leader-1, sent in step 1)" in replayed.followed.stopped
    assert replayed.followed.missing == ("step 1: disconnect from consumer-2 to leader-1",)


@pytest.mark.parametrize("do", ["crash", "pause", "wake", "unsubscribe", "acknowledge"])
def test_who_is_gone_does_nothing(do, follow):
    made = stale_grant()
    at_ns = made.steps[-1].at_ns
    gone = (
        scripts.ScriptStep(98, at_ns, "crash", "consumer-1"),
        scripts.ScriptStep(99, at_ns, do, "consumer-1", about="0.0/a"),
    )
    replayed = follow(replace(made, steps=(*made.steps, *gone)).check())
    assert replayed.followed.stopped.endswith("consumer-1 is not running")
    assert replayed.followed.stopped.startswith(f"step 99 ({do} consumer-1")


def test_nobody_unsubscribes_twice(follow):
    made = stale_grant()
    at_ns = made.steps[-1].at_ns
    twice = (
        scripts.ScriptStep(98, at_ns, "unsubscribe", "consumer-1"),
        scripts.ScriptStep(99, at_ns + 1, "unsubscribe", "consumer-1"),
    )
    replayed = follow(replace(made, steps=(*made.steps, *twice)).check())
    assert "step 99" in replayed.followed.stopped
    assert replayed.followed.stopped.endswith("consumer-1 has unsubscribed already")


def test_a_crashed_leader_host_comes_back_and_a_paused_one_fires_late(follow):
    made = stale_grant()
    at_ns = made.steps[-1].at_ns
    more = (
        scripts.ScriptStep(97, at_ns, "pause", "leader-1"),
        scripts.ScriptStep(98, at_ns + 2_000_000_000, "wake", "leader-1"),
        scripts.ScriptStep(99, at_ns + 2_000_000_001, "crash", "leader-1"),
    )
    replayed = follow(replace(made, steps=(*made.steps, *more)).check())
    assert replayed.followed.stopped == ""
    # The grant to consumer-1 is repeated when the process goes on, one second late; its claim lasts three.
    assert "step 98: grant about 0.0/a from leader-1 to consumer-1" in replayed.followed.unknown


# -- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_check_writes_a_schedule_and_a_trace_and_analyze_finds_the_violation(gapless, tmp_path):
    schedule, trace = tmp_path / "stale.json", tmp_path / "trace"
    found = gapless(
        "check", "shared_subscriptions", "--system", "late-copies", "--variant", "as_written",
        "--script", schedule, "--trace", trace,
    )  # fmt: skip
    assert found[0] == 1
    assert f"gapless replay {schedule}" in found[2]
    code, out, _ = gapless("analyze", trace, "--engine=local", "--out", tmp_path / "report")
    assert code == 1
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert lines["rows"].split()[2] == lines["continuity"].split()[2] == "held"
    assert lines["exclusivity"].split()[2] == "VIOLATED"
    page = (tmp_path / "report" / "index.html").read_text()
    assert "consumer-2~1/0 delivers" in page
    assert "copy of grant a" in page  # what went wrong, on the sequence diagram
    code, out, _ = gapless("replay", schedule)
    assert code == 1
    assert "followed 23 of 23 steps" in out
    assert out.splitlines()[-1].startswith("VIOLATED S5: consumer-2~1 delivers 0.0/a while consumer-1~1 may under")


def test_on_the_asyncio_runtime_the_trace_is_the_logs_of_its_nodes(gapless, tmp_path):
    code, out, _ = gapless("replay", GOLDEN, "--runtime", "--trace", tmp_path / "logs")
    assert code == 1
    assert out.splitlines()[-1].startswith("VIOLATED S5: consumer-2~1 delivers 0.0/a while consumer-1~1 may under")
    logs = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert logs == [f"{life}~1.ndjson" for life in ("consumer-1", "consumer-2", "leader-1", "publisher-1")]
    code, out, _ = gapless("analyze", tmp_path / "logs", "--engine=local", "--out", tmp_path / "report")
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert lines["rows"].split()[2] == lines["continuity"].split()[2] == "held"
    assert lines["exclusivity"].split()[2] == "VIOLATED"


def test_a_run_file_takes_no_rules(gapless, tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"scenario": {"name": "quiet"}, "seed": 0, "schedule": []}')
    code, _, err = gapless("replay", path, "--runtime")
    assert (code, "--variant and --runtime are for scripts" in err) == (2, True)


@pytest.mark.parametrize("where", [(), ("--runtime",)])
def test_replay_follows_by_other_rules_and_then_everything_is_delivered(where, gapless, tmp_path):
    code, out, _ = gapless("replay", GOLDEN, "--variant", "settled", "--trace", tmp_path, *where)
    assert code == 0
    assert out.splitlines()[-1] == "S5 does not break here, nor does anything else"
    code, out, _ = gapless("analyze", tmp_path, "--engine=local", "--out", tmp_path / "report")
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert code == 0
    assert lines["exclusivity"].split()[2] == lines["acknowledged"].split()[2] == "held"


def test_where_nothing_breaks_there_is_nothing_to_write(gapless, tmp_path):
    code, _, err = gapless(
        "check", "shared_subscriptions", "--system", "revoke-timeout", "--script", tmp_path / "none.json"
    )
    assert code == 0
    assert "nothing broke, so there is nothing to write of it" in err
    assert list(tmp_path.iterdir()) == []


def test_what_real_timers_do_not_allow_is_said_and_not_written(gapless, tmp_path):
    code, _, err = gapless(
        "check", "shared_subscriptions", "--system", "borrower-crash", "--without", "lease before hand-over",
        "--script", tmp_path / "never.json",
    )  # fmt: skip
    assert code == 1
    assert err.startswith("no script and no trace: no real run takes these steps, timers contradict each other")
    assert list(tmp_path.iterdir()) == []


def test_bad_input_is_named(gapless, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"format": "gapless script 2", "steps": 3}')
    code, _, err = gapless("replay", bad)
    assert (code, "bad.json" in err, "is not a script" in err) == (2, True, True)
    code, _, err = gapless("replay", GOLDEN, "--variant", "wishful")
    assert (code, "wishful" in err, "there are: settled" in err) == (2, True, True)
    code, _, err = gapless("replay", tmp_path / "missing.json")
    assert (code, "cannot be read" in err) == (2, True)


def test_a_schedule_that_stops_early_decides_nothing(gapless, tmp_path):
    made = stale_grant()
    steps = tuple(replace(step, at_ns=step.at_ns - 500_000_000 * (step.n > 0)) for step in made.steps)
    scripts.write(tmp_path / "early.json", replace(made, steps=steps))
    code, out, _ = gapless("replay", tmp_path / "early.json")
    assert code == 3
    assert "followed 2 of 23 steps; step 1 (fire" in out


LEAST = {
    ("missed_samples", "simulation"): 60,
    ("missed_samples", "hypothesis"): 40,
    ("persistent_sessions", "hypothesis"): 38,
}
"""How many bugs of a protocol the first runs of a method find; to repeat the rest as well would take long."""
RUN = {"simulation": simulation_run, "hypothesis": driven_run}
AT_ONCE = {
    (protocol, method): {
        bug: said for bug, said in read_found(protocol)[method].items() if said["where"].endswith(", seed 0")
    }
    for protocol, method in LEAST
}


def is_explored(protocol, bug):
    """Whether `make test` finds the bug by exploration."""
    said = read_found(protocol)["exploration"].get(bug)
    return said is not None and int(said["states"]) <= STATES_MAX


@pytest.mark.parametrize(("protocol", "method"), LEAST)
def test_so_many_are_found_by_it(protocol, method):
    assert None not in read_found(protocol)[method].values()
    assert len(AT_ONCE[protocol, method]) >= LEAST[protocol, method]


EVERY = 12
CELLS = [
    pytest.param(*of, bug, marks=[pytest.mark.long] * (number % EVERY != 0 and is_explored(of[0], bug)))
    for of, found in AT_ONCE.items()
    for number, bug in enumerate(found)
]
"""`make test` repeats every twelfth, and those that exploration does not find there; `make soak` repeats the rest."""


@pytest.mark.parametrize(("protocol", "method", "bug"), CELLS)
def test_a_planted_bug_is_found_where_the_table_says(protocol, method, bug):
    said = AT_ONCE[protocol, method][bug]
    with plant_bug(f"{protocol}/{bug}"):
        assert RUN[method](protocol, said["where"]).what == said["what"]


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(("protocol", "method"), LEAST)
def test_nothing_breaks_there_where_nothing_is_planted(protocol, method, every):
    places = sorted({said["where"] for said in AT_ONCE[protocol, method].values()})
    assert len(places) > 5
    assert [(one, RUN[method](protocol, one).what) for one in places[::every]] == [(one, "") for one in places[::every]]


@pytest.mark.parametrize(
    ("bug", "scenario"),
    [
        ("all-but-the-newest", "answers_for_the_dead"),
        ("history-of-one", "late_with_history"),
        ("newest-is-oldest", "short_history_only"),
    ],
)
def test_NOGAP_what_a_cache_has_and_nobody_gets_is_seen_by_who_looks_into_the_cache_alone(bug, scenario):
    made = find_scenario(f"missed_samples/{scenario}")
    with plant_bug(f"missed_samples/{bug}"):
        assert World(made, 0, trace=False).run().monitor == "NOGAP"
        blind = World(replace(made, out_of_scope=("NOGAP",)), 0, trace=False)
        outcome = blind.run()
    assert (outcome.monitor, blind.watch.judge.noted.keys()) == ("", {"NOGAP"})


PROTOCOLS = ("cursor_recovery", "missed_samples", "mqtt_connections", "persistent_sessions", "sequence_windows")
NOT_EXPLORED = {
    "missed_samples": {"dead-are-not-asked"},
    "persistent_sessions": {"leap-is-believed", "lead-is-forgotten"},
}
"""The page of the protocol says why."""
FOUND = {
    f"{protocol}/{bug}": said for protocol in PROTOCOLS for bug, said in read_found(protocol)["exploration"].items()
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_bug_is_in_the_table_and_found(protocol):
    rows = read_rows(PAGES / protocol / "planted_bugs.md")
    assert list(rows) == [bug.name for bug in of_protocol(protocol).bugs]
    found = read_found(protocol)["exploration"]
    assert None not in found.values()
    assert set(rows) - set(found) == NOT_EXPLORED.get(protocol, set())


@pytest.mark.parametrize("bug", mark_long(FOUND, *(bug for bug in FOUND if int(FOUND[bug]["states"]) > STATES_MAX)))
def test_planted_bugs_a_planted_bug_is_found_where_the_table_says(bug):
    """Found anew in the one system that found it first (`tools/planted.py` goes through all)."""
    said, protocol = FOUND[bug], bug.partition("/")[0]
    directed = next(one for one in of_protocol(protocol).list_directed() if one.name == said["where"])
    with plant_bug(bug):
        found = explore_directed(directed, twice=protocol == "missed_samples")  # some raise in the second step alone
    assert (found.what, found.steps, found.states) == (said["what"], int(said["steps"]), int(said["states"]))


@pytest.mark.long
@pytest.mark.parametrize("bug", sorted(NOT_EXPLORED["persistent_sessions"]))
def test_a_planted_bug_of_a_clock_is_found_by_the_simulation_that_the_table_names(bug):
    said = read_found("persistent_sessions")["simulation"][bug]
    assert simulation_run("persistent_sessions", said["where"]).what == ""
    with plant_bug(bug):
        assert simulation_run("persistent_sessions", said["where"]).what == said["what"]


def test_no_two_planted_bugs_have_one_name():
    """Of all protocols of ours: a table, a report and `tools/planted.py` name them by it alone."""
    names = [bug.name for part in all_parts().values() for bug in part.bugs]
    assert len(names) == len(set(names)) > 100
