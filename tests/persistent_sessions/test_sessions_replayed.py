"""What the explorer finds in sessions, followed by real nodes: in the simulator, and on the asyncio runtime over
SQLite (`gapless check persistent_sessions --system NAME --variant as_written --script F`, `gapless replay F`).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from counterexamples import random_walk
from msgspec.structs import replace

from statemachines import cli
from statemachines.kernel import ConfigurationError
from statemachines_sim.persistent_sessions import script_world
from statemachines_sim.persistent_sessions.asyncio_stage import run_live
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.explore import explore
from statemachines_spec.liveness.judge import live
from statemachines_spec.persistent_sessions.counterexamples import ASIDE
from statemachines_spec.protocol import choose_systems
from statemachines_spec.script import script as scripts
from statemachines_spec.script.path_to_script import script_of

PS = "persistent_sessions"
SETTLED = "settled"


def simulate(script, variant=""):
    return script_world.simulate(script, variant).replayed


@pytest.fixture(params=[simulate, run_live], ids=["simulated", "runtime"])
def follow(request):
    return request.param


@cache
def script_to(name):
    """The shortest run to what breaks there."""
    return found_in(name, ASIDE[name].rules)


def found_in(name, variant, bug=""):
    (made,) = choose_systems(PS, (name,), variant=variant).systems
    alone = replace(made, origin=None)  # no other process has the bug
    path = explore(alone, engine="plain", hashing=False).path
    return script_of(made, path, protocol=PS, variant=variant, bug=bug)


def test_a_file_has_no_replica_that_shows_entries_later():
    (made,) = choose_systems(PS, ("buffer",)).systems
    script = script_of(made, random_walk(made, 0, 30), protocol=PS, variant=SETTLED)
    replayed = run_live(script)
    assert (replayed.broken, replayed.followed.steps) == ({}, [one.what for one in script.steps].index("appear"))
    assert "a file has no replica that shows entries later" in replayed.followed.stopped


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_takeovers_are_for_the_simulator(seed):
    (made,) = choose_systems(PS, ("old-dies",)).systems
    script = script_of(made, random_walk(made, seed, 24), protocol=PS, variant=SETTLED)
    replayed = simulate(script)
    assert (replayed.broken, replayed.followed.stopped, replayed.followed.missing) == ({}, "", ())
    with pytest.raises(ConfigurationError, match=r"old-dies.*has takeovers.*leave --runtime out"):
        run_live(script)


def test_what_cannot_happen_ends_the_run_and_is_named(follow):
    """Nothing was published, so nothing is on the path that is to break."""
    script = script_to("path-broken")
    assert (script.steps[-2].what, script.steps[-1].what) == ("publish_to", "break")
    less = replace(script, steps=(*script.steps[:-2], script.steps[-1])).check()
    replayed = follow(less)
    assert (replayed.broken, replayed.followed.steps) == ({}, len(less.steps) - 1)
    assert "cannot happen to cluster now" in replayed.followed.stopped


PLANTED = {
    "live-kept-before-the-marker": "overtaking",
    "link-is-not-watched": "break",
    "fenced-row-dropped": "silence",
    "redelivery-not-marked": "at-least-once",
    "dead-writers-left-out": "range",
}
"""Bug -> a system that finds it."""


@cache
def script_of_bug(bug):
    with plant_bug(f"{PS}/{bug}"):
        return found_in(PLANTED[bug], SETTLED, f"{PS}/{bug}")


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_breaks_the_same_and_nothing_breaks_without_it(bug, follow):
    script = script_of_bug(bug)
    replayed = follow(script)
    assert (replayed.reached, replayed.followed.stopped) == (True, "")
    assert follow(script, SETTLED).broken == {}


def test_a_run_of_what_is_never_met_comes_as_a_script_too():
    """The explorer gives a silent writer no timeout; nodes have one, and are done."""
    bug = f"{PS}/marker-not-shown"
    (made,) = choose_systems(PS, ("marked",)).systems
    with plant_bug(bug):
        judged = live(replace(made, origin=None), made.obligations, engine="plain")
        script = script_of(made, next(one.run for one in judged if not one.is_held), protocol=PS, bug=bug)
    assert script.breaks.startswith("ENDS")
    assert simulate(script).broken == {}


LAGGING = ("silence", "buffer")
WALKED = ("overtaking", "break", "marked", "leaving", "receive-maximum", "exactly-once", "slow-fence", "writer-begins")
WALKS = 3


@pytest.mark.parametrize("name", [*LAGGING, *WALKED])
def test_what_the_explorer_walks_real_nodes_walk_too(name):
    """Random runs of the shipped machines, with all that a system has: what is sent is the same, and nothing breaks; on
    a file, too, where no replica lags."""
    (made,) = choose_systems(PS, (name,)).systems
    for seed in range(WALKS):
        script = script_of(made, random_walk(made, seed, 30), protocol=PS, variant=SETTLED)
        assert len(script.steps) > 8
        for follow in (simulate,) if name in LAGGING else (simulate, run_live):
            replayed = follow(script)
            assert (replayed.broken, replayed.followed.stopped, replayed.followed.missing) == ({}, "", ()), seed


def test_a_script_is_kept_and_followed_by_the_command(tmp_path, capsys):
    """Exit code 1: it breaks, 0: it does not."""
    file = str(tmp_path / "path.json")
    checked = ["check", PS, "--system", "path-broken", "--variant", "as_written", "--engine", "plain"]
    assert cli.run([*checked, "--script", file]) == 1
    assert scripts.read(Path(file)) == script_to("path-broken")
    assert "replay" in capsys.readouterr().err
    assert cli.run(["replay", file, "--runtime"]) == 1
    assert "VIOLATED COMPLETE" in capsys.readouterr().out
    assert cli.run(["replay", file, "--runtime", "--variant", SETTLED]) == 0


def test_what_breaks_is_listed_apart_and_no_part_of_a_whole_check(capsys):
    assert cli.run(["check", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)[PS]
    assert set(listed["aside"]) == set(ASIDE)
    assert not set(listed["aside"]) & set(listed["systems"])
    assert cli.run(["check", PS, "--system", "path-brokens"]) == 2
