"""Borrowers of others over the wire: they pass, mistakes in them are found, and our real leader serves them.

Leaders and owners of sessions over the wire: mistakes in the shipped nodes are found.  (docs/wire.md: they pass.)

Programs that others could have written: they pass, every row is taken, and each mistake in them is found.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from foreign_programs import BORROWER, FOREIGN, HERE, plant
from long_cases import mark_long
from node_mistakes import NODES, judge_node

from statemachines.drivers.credentials import Credentials
from statemachines.drivers.shared_subscriptions import Publisher, declare
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.testing.conformance.campaign import RUNS, ConformanceOutcome
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_run import WireRun, load_script, save_script, shrink_run
from statemachines.testing.conformance.wire_verdict import WireOptions, text_of

ROLE = role_of("shared_subscriptions/borrower")
PASS_S, BUG_S = 3.0, 45.0
"""A run that passes takes so long; one with a mistake ends when it is found, after two seconds as a rule."""

LATE_COPY = "a late copy of a grant installs a stream that was revoked"
MISTAKES = {
    **{name: BORROWER[name] for name in (LATE_COPY, "the last report is lost and never repeated")},
    "an id is used again": ('"id": f"{self.connection.life}/{self.count}"', '"id": f"{self.connection.life}/1"'),
    "timers outlive the instance that set them": ("        self.timers.clear()\n", ""),
    "the first leader is written to for ever": (
        'self.connection.send(self.borrower.id, effect["to"], effect["message"])',
        'self.connection.send(self.borrower.id, "leader", effect["message"])',
    ),
}


def command(folder):
    python = (sys.executable, str(folder / "borrower_wire.py"), "{address}", "{configuration}")
    return (*python, "--life", "{life}", "--seed", "1")


def judge(command, **options):
    return asyncio.run(WireRun(ROLE, WireOptions(**options), command).judge(lambda address: None))


def test_a_foreign_borrower_passes_over_the_wire():
    verdict = judge(command(HERE), seconds=PASS_S, tolerance_s=30.0, seed=1)
    assert verdict.outcome is ConformanceOutcome.PASS, text_of(verdict, ROLE)
    assert len(verdict.cells) >= 4


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found_over_the_wire(tmp_path, name):
    plant(tmp_path, ("borrower_wire.py", "borrower.py"), *MISTAKES[name])
    verdict = judge(command(tmp_path), seconds=BUG_S, rate=40.0, seed=1)
    assert verdict.outcome is ConformanceOutcome.FAIL
    shown = text_of(verdict, ROLE) if verdict.violation else verdict.why
    assert "by SS-" in shown or (name not in BORROWER and "has ended with exit code 1" in shown)


def test_a_borrower_proves_its_secret_to_the_kit(tmp_path):
    secret = "0123456789abcdef"
    own, credentials = (*command(HERE), "--secret", secret), Credentials(secret=secret.encode())
    verdict = judge(own, seconds=0.8, tolerance_s=30.0, faults=0.0, credentials=credentials)
    assert verdict.outcome is ConformanceOutcome.PASS, text_of(verdict, ROLE)


def test_a_failing_run_is_made_shorter_and_repeats(tmp_path):
    plant(tmp_path, ("borrower.py",), *BORROWER[LATE_COPY])
    own, options = command(tmp_path), WireOptions(seconds=BUG_S, rate=40.0, seed=2)
    before = judge(own, seconds=BUG_S, rate=40.0, seed=2)
    assert before.outcome is ConformanceOutcome.FAIL
    shrunk = asyncio.run(shrink_run(ROLE, options, own, before, bound_s=6.0))
    sizes = [len(one.inputs) + len(one.faults) for one in (before, shrunk.verdict)]
    assert shrunk.attempts > 0
    assert (sizes[1] < sizes[0]) == (shrunk.failed > 0)
    assert shrunk.verdict.outcome is ConformanceOutcome.FAIL
    save_script(tmp_path / "run.json", ROLE.fsm.full_name, shrunk.options)
    script = load_script(tmp_path / "run.json", ROLE.fsm.full_name)
    assert script.apply(WireOptions()).without == shrunk.options.without
    with pytest.raises(ConfigurationError, match="is of the role shared_subscriptions/borrower"):
        load_script(tmp_path / "run.json", "shared_subscriptions/leader")


async def prepare(store, times: Configuration):
    await declare("$shared/g/#", store=store, start="beginning", configuration=times)
    async with Publisher(store) as publisher:
        await publisher.publish("a", [b"x"] * 3)
        await publisher.publish("b", [b"y"] * 7)


TESTED = {
    "a stream is handed over before the lease of its owner has ended",
    "a registration that is over is served",
    "a message that is sent again is not marked",
    "a clean start has the session of before",
}
"""All of them are found by `make soak`."""
NODE_WIRE_MISTAKES = [(role, name) for role, node in NODES.items() for name in node.mistakes]

LONGEST_S = 240.0
"""A run ends when the mistake is found, in some seconds; on a busy machine fewer inputs are drawn in each."""


@pytest.mark.parametrize(("role", "name"), NODE_WIRE_MISTAKES)
def test_a_mistake_changes_a_piece_of_text_that_is_there_once(role, name):
    """`make soak` puts all of them in."""
    module, piece, _ = NODES[role].mistakes[name]
    spec = importlib.util.find_spec(module)
    assert Path(spec.origin).read_text().count(piece) == 1


@pytest.mark.parametrize(("role", "name"), [one for one in NODE_WIRE_MISTAKES if one[1] in TESTED])
def test_a_mistake_in_a_shipped_node_is_found_over_the_wire(role, name):
    """A run over sockets whose answers cross leaves more states possible than are followed, and says so: then another
    is played."""
    for seed in range(1, 6):
        verdict = judge_node(role, name, seconds=LONGEST_S, seed=seed)
        if verdict.outcome is not ConformanceOutcome.INCONCLUSIVE:
            break
    assert verdict.outcome is ConformanceOutcome.FAIL
    shown = text_of(verdict, role_of(role)) if verdict.violation else verdict.why
    assert re.search(NODES[role].said, shown)


FOREIGN_PROGRAMS_MISTAKES = [
    pytest.param(one, name, id=f"{one.file}: {name}", marks=[pytest.mark.long] * (name in one.slow))
    for one in FOREIGN
    for name in one.mistakes
]
LONG_TOURS = ("borrower.py", "borrower.js", "session.py")
"""They take ten seconds and more; drawn runs take some three."""


@pytest.mark.long
@pytest.mark.parametrize("program", FOREIGN, ids=lambda one: one.file)
def test_a_foreign_program_passes_drawn_runs(program):
    verdict = program.campaign(program.quick).judge(RUNS, tour=False)
    assert verdict.outcome is ConformanceOutcome.PASS, verdict


@pytest.mark.parametrize("program", mark_long(FOREIGN, *LONG_TOURS, name=lambda one: one.file))
def test_a_foreign_program_passes_the_tour_and_takes_every_row(program):
    verdict = program.campaign().judge(0)
    assert verdict.outcome is ConformanceOutcome.PASS, verdict
    assert verdict.coverage.is_whole
    assert verdict.coverage.missed == ()


@pytest.mark.parametrize(("program", "name"), FOREIGN_PROGRAMS_MISTAKES)
def test_a_planted_mistake_is_found_and_its_run_is_short(tmp_path, program, name):
    campaign = program.plant(name, tmp_path)
    verdict = campaign.judge(2 * RUNS)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert 2 <= len(verdict.moves) <= program.longest
    again = campaign.replay(verdict.moves)
    assert (again.outcome, again.why) == (ConformanceOutcome.FAIL, verdict.why)
