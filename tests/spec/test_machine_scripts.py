"""Scripts of declared machines that nobody wrote glue for: what the explorer finds, real nodes with real timers do."""

from __future__ import annotations

import contextlib
import random
from functools import cache

import msgspec
import pytest
from lock_toy import SECOND, lock_system
from msgspec.structs import replace

from statemachines import cli
from statemachines.kernel import ConfigurationError
from statemachines_sim.machine_world import simulate
from statemachines_spec import Clock, System, explore
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.moves import Moves
from statemachines_spec.explorer.path import along
from statemachines_spec.protocol import system_at
from statemachines_spec.script import script as scripts
from statemachines_spec.script.origin import system_of
from statemachines_spec.script.path_to_script import Unscriptable, script_of

HERE = __name__

KINDS = {
    "forgetful": {"asks": 1, "crashes": 1, "disk": False, "pauses": 0},
    "durable": {"asks": 1, "crashes": 1, "pauses": 0},
    "unfenced": {"asks": 1, "honours": False, "remote": True},
    "fenced": {"asks": 1, "honours": True, "remote": True},
    "unordered": {"asks": 1, "order": False},
    "paused": {"asks": 1},
}


def locks(variant: str = "forgetful") -> System:
    """A lock with leases, in one of these kinds."""
    return lock_system(**KINDS[variant])


def unannotated(variant="forgetful"):
    return locks(variant)


@cache
def counterexample(kind):
    system = system_at(f"{HERE}:locks", variant=kind)
    path = explore(replace(system, origin=None), engine="plain", hashing=False).path
    return script_of(system, path, variant=kind)


@pytest.fixture
def gapless(capsys):
    def run(*arguments):
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


# -- what breaks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "breaks"), [("forgetful", "one holder"), ("unfenced", "fenced")])
def test_a_counterexample_breaks_the_same_property_with_real_timers(kind, breaks):
    made = counterexample(kind)
    run = simulate(made)
    assert (run.replayed.name, run.replayed.reached) == (breaks, True)
    assert run.replayed.followed.stopped == ""
    assert not run.replayed.followed.missing
    assert run.rows == simulate(made).rows


@pytest.mark.parametrize(("kind", "mended"), [("unfenced", "fenced"), ("forgetful", "durable")])
def test_by_other_rules_the_same_script_breaks_nothing(kind, mended):
    """A store that looks at tokens; a disk that keeps the number of the last attempt over a crash."""
    assert simulate(counterexample(kind), mended).replayed.broken == {}


def test_every_timer_that_fires_is_due_just_then():
    made = counterexample("unfenced")
    fired = [step for step in made.steps if step.do == "fire"]
    assert fired
    assert made.steps[-1].at_ns >= 8 * SECOND
    early = tuple(replace(step, at_ns=step.at_ns - (step.n >= fired[0].n)) for step in made.steps)
    stopped = simulate(replace(made, steps=early)).replayed.followed.stopped
    assert stopped.startswith(f"step {fired[0].n} (fire ")
    assert stopped.endswith("the timer is not due, or not set")


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


@pytest.mark.parametrize("kind", ["paused", "forgetful", "fenced"])
def test_what_the_explorer_walks_real_nodes_walk_too(kind):
    """Pauses with deadlines that pass meanwhile, crashes and restarts, requests that travel."""
    made = list(walks(kind))
    assert len(made) >= 4
    for one in made:
        replayed = simulate(one).replayed
        assert (replayed.followed.stopped, replayed.followed.missing, replayed.broken) == ("", (), {})
    done = {step.do for one in made for step in one.steps}
    assert {"call", "deliver"} <= done
    assert {"paused": {"pause", "pass"}, "forgetful": {"crash"}, "fenced": {"pause"}}[kind] <= done


# -- files and commands ---------------------------------------------------------------------------------------------


def test_check_writes_it_and_replay_follows_it(gapless, tmp_path):
    path, trace = tmp_path / "one.json", tmp_path / "trace"
    code, _, err = gapless("check", f"{HERE}:locks", "--variant", "unfenced", "--script", path, "--trace", trace)
    assert code == 1
    assert f"repeat it with: gapless replay {path}" in err
    assert "fenced: no write is taken after a later one (store: 1)" in err
    code, out, _ = gapless("replay", path)
    assert code == 1
    assert out.splitlines()[-1] == "VIOLATED fenced: no write is taken after a later one (store: 1)"
    code, out, _ = gapless("replay", path, "--variant", "fenced")
    assert (code, out.splitlines()[-1]) == (0, "fenced does not break here, nor does anything else")


def test_it_comes_back_from_its_file(tmp_path):
    made = counterexample("unfenced")
    scripts.write(tmp_path / "one.json", made)
    assert scripts.read(tmp_path / "one.json") == made


def test_on_the_asyncio_runtime_it_says_that_it_cannot(gapless, tmp_path):
    scripts.write(tmp_path / "one.json", counterexample("unfenced"))
    code, _, err = gapless("replay", tmp_path / "one.json", "--runtime")
    assert code == 2
    assert "followed in the simulator alone; leave --runtime out" in err


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
    toy = replace(made, origin=scripts.Origin("toy_system:toy", {}))
    with pytest.raises(ConfigurationError, match=r"only an FsmActor or a ServiceActor has a counterpart|-> System"):
        simulate(toy)


def test_where_time_is_a_list_of_instants_there_is_no_script():
    system = system_at(f"{HERE}:locks", variant="paused")
    timed = replace(system, actors=(*system.actors, Clock(0, 5)), origin=None)
    entries = Entries(timed)
    with pytest.raises(Unscriptable, match="its time is a list of instants"):
        script_of(timed, along(entries, [Moves(entries).first()]))


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
    assert scripts.decoded(raw) == made
