"""Implementations in Python: adapters, functions and coroutines, and the plugin of pytest."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from itertools import chain, cycle
from pathlib import Path

import msgspec
import pytest

from statemachines import registry
from statemachines.kernel import ConfigurationError
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.conformance_run import ConformanceRun, FedInput
from statemachines.testing.conformance.conformance_test import ConformanceTest, ShippedMachine, judge
from statemachines.testing.conformance.interface import InterfaceError
from statemachines.testing.conformance.report import event_from
from statemachines.testing.conformance.role import roles_of

sys.path.insert(0, str(Path(__file__).parent))
from door_child import Door
from toy_role import role

sys.path.pop(0)

HERE = Path(__file__).parent


class Lines:
    """The door as an adapter."""

    def answer(self, line):
        """The answer to a line."""
        if "init" in line:
            self.door = Door(line["init"], line["now_ns"])
            return {"effects": []}
        return {"effects": self.door.take(line)}


class LaterLines(Lines):
    """The door, which answers after a turn of its loop."""

    async def answer(self, line):
        """The answer to a line."""
        await asyncio.sleep(0)
        return Lines.answer(self, line)


def loop_threads():
    """The threads that run coroutines of adapters."""
    return [one for one in threading.enumerate() if one.name == "gapless conformance"]


def test_a_coroutine_answers_and_no_thread_is_left():
    assert judge(role(), LaterLines().answer, runs=5).outcome is ConformanceOutcome.PASS
    assert loop_threads() == []


def test_a_coroutine_that_never_answers_is_inconclusive_and_cancelled():
    async def step(line):
        await asyncio.Event().wait()

    verdict = judge(role(), step, patience_s=0.05)
    assert verdict.outcome is ConformanceOutcome.INCONCLUSIVE
    assert "has not answered after 0.05 s; answer each line, or give it longer with patience_s" in verdict.why
    assert loop_threads() == []


def failing(error):
    """A step that answers `init`, and then raises."""

    def step(line):
        if "init" in line:
            return {"effects": []}
        raise error

    return step


@pytest.mark.parametrize("error", [ValueError("no door"), SystemExit("no door")])
def test_an_exception_is_a_failure_that_names_it(error):
    async def later(line):
        return failing(error)(line)

    for step in (failing(error), later):
        verdict = judge(role(), step, runs=0)
        assert verdict.outcome is ConformanceOutcome.FAIL
        assert "the implementation raises" in verdict.why
        assert "no door" in verdict.why
    assert loop_threads() == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "does not keep to the interface: Expected `object`, got `null`"),
        ({"effects": [object()]}, "answers with what is no JSON"),
        ({"effects": [{"effect": "send", "to": "peer", "message": {"type": "opened"}}]}, "missing required field `n`"),
    ],
)
def test_an_answer_that_is_none_is_wrong_usage(answer, said):
    with pytest.raises(InterfaceError) as caught:
        judge(role(), lambda line: answer, runs=0)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_that_failed_is_kept_and_repeated(tmp_path):
    test = ConformanceTest.of(role(), type("Silent", (), {"answer": lambda self, line: {"effects": []}}))
    verdict = test.judge(runs=0)
    text = test.report_to(tmp_path / "failed", verdict)
    path = tmp_path / "failed" / "door-Silent.jsonl"
    assert f"kept in   {path}" in text
    again = test.replay(path)
    assert (again.outcome, again.why) == (ConformanceOutcome.FAIL, verdict.why)
    path.write_text("{}")
    with pytest.raises(ConfigurationError, match="line 1"):
        test.replay(path)


PAGE = """
import sys
sys.path.insert(0, {here!r})
from toy_role import role
from statemachines.testing.conformance.conformance_test import ConformanceTest

class Silent:
    def answer(self, line):
        return {{"effects": []}}

TestSilent = ConformanceTest.of(role(), Silent).TestCase
"""


def run_pytest(path, *options):
    """Pytest with the plugin alone, in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(path), *options]
    if "gapless" not in {one.name for one in entry_points()}:
        command += ["-p", "statemachines.pytest_plugin"]
    return subprocess.run(command, capture_output=True, text=True, cwd=path.parent, timeout=300, check=False)


def entry_points():
    """What is installed as a plugin of pytest."""
    from importlib.metadata import entry_points as installed

    return installed(group="pytest11")


def test_the_plugin_keeps_the_script_of_a_failing_test(tmp_path):
    (tmp_path / "test_page.py").write_text(PAGE.format(here=str(HERE)))
    done = run_pytest(tmp_path / "test_page.py", "--gapless-seed", "7", "--gapless-trace-dir", str(tmp_path / "kept"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "missing: stop" in done.stdout
    assert (tmp_path / "kept" / "door-Silent.jsonl").read_text().startswith('{"begin":0}\n')


ROLES = {f"{protocol}/{name}": one for protocol in registry.names() for name, one in roles_of(protocol).items()}


@pytest.mark.parametrize("name", ROLES)
def test_what_is_drawn_keeps_to_the_interface_of_its_role(name):
    """A line says the whole event, and ranges are short.  What the machine itself answers to drawn runs is an answer of
    the interface, and none that is missed."""
    role, made = ROLES[name], []
    campaign = ConformanceTest.of(role, lambda: ShippedMachine(role)).campaign()
    with campaign._open() as implementation:
        campaign._search(ConformanceRun(role, implementation), made, 60, 0)
    assert campaign.runs == 60
    drawn = [
        campaign._draw_events(start.record, seed, bool(start.services))
        for start, seed in zip(cycle(role.starts), range(200))
    ]
    for event in chain(*drawn, (move.event for move in made if isinstance(move, FedInput))):
        line = msgspec.json.decode(role.interface.event_line(event, 0, 1))
        assert event_from(type(event), line["event"]) == event
        last = getattr(event, "last", 0)
        assert 0 <= last - getattr(event, "first", last) < 8
