"""Implementations in Python: adapters, functions and coroutines, and the plugin of pytest.

The whole kit against a small machine of no protocol: its tour, its verdicts, its scripts.

Implementations that do not keep to the interface: one line names the thing and the mend, and no process is left.

The relation: what of an answer is compared, and what an implementation may choose.
"""

import asyncio
import os
import subprocess
import sys
import threading
from itertools import chain, cycle
from pathlib import Path

import msgspec
import pytest
from door_child import Door
from toy_role import COMMAND, DOOR, IMPLEMENTATION, SECOND, Knock, role
from waiting import turns

from statemachines import cli, registry
from statemachines.kernel import ConfigurationError
from statemachines.testing.conformance import report
from statemachines.testing.conformance.campaign import Campaign, ConformanceOutcome
from statemachines.testing.conformance.child_process import STDERR_BYTES_MAX, ChildProcess, ImplementationEnded
from statemachines.testing.conformance.conformance_run import Begin, ConformanceRun, FedInput, Late, Wait
from statemachines.testing.conformance.conformance_test import ConformanceTest, ShippedMachine, judge
from statemachines.testing.conformance.interface import InterfaceError, alphabet_of
from statemachines.testing.conformance.relation import LateEffect, Output, Relation, match_answer
from statemachines.testing.conformance.report import event_from
from statemachines.testing.conformance.role import role_of_machine, roles_of
from statemachines.testing.conformance.role_graph import RoleGraph

sys.path.insert(0, str(Path(__file__).parent))

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
        await turns()
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
        campaign._search(ConformanceRun(role, implementation), made, 30, 0)
    assert campaign.runs == 30
    drawn = [
        campaign._draw_events(start.record, seed, bool(start.services))
        for start, seed in zip(cycle(role.starts), range(100))
    ]
    for event in chain(*drawn, (move.event for move in made if isinstance(move, FedInput))):
        line = msgspec.json.decode(role.interface.event_line(event, 0, 1))
        assert event_from(type(event), line["event"]) == event
        last = getattr(event, "last", 0)
        assert 0 <= last - getattr(event, "first", last) < 8


sys.path.insert(0, str(Path(__file__).parent))

sys.path.pop(0)


class DoorLines:
    kind = Door

    def answer(self, line):
        if "init" in line:
            self.door = self.kind(line["init"], line["now_ns"])
            return {"effects": []}
        return {"effects": self.door.take(line)}


def lines_of(**changed):
    return type("Changed", (DoorLines,), {"kind": type("ChangedDoor", (Door,), changed)})


def judge_of_door(adapter=DoorLines, relation=Relation(), runs=20):  # noqa: B008 (it is frozen)
    return ConformanceTest.of(role(relation), adapter).judge(runs)


TestDoor = ConformanceTest.of(role(), DoorLines).TestCase


def test_silence_is_an_answer_and_fails_where_an_output_is_owed():
    def take(self, line):
        return [one for one in Door.take(self, line) if one["effect"] != "set_timer"]

    verdict = judge_of_door(lines_of(take=take), runs=0)
    assert verdict.outcome is ConformanceOutcome.FAIL
    text = report.text_of(verdict, role())
    assert "fed       time (no timer of the implementation is due) at 2000 ms, open" in text
    assert "expected  send peer shut(times=1)\n            by TD-03\n  came      nothing" in text
    assert "\n    3  2000 ms pass" in text


def later(seconds):
    def take(self, line):
        effects = Door.take(self, line)
        for one in effects:
            if one["effect"] == "set_timer":
                one["deadline_ns"] += seconds * SECOND
        return effects

    return lines_of(take=take)


def test_what_is_owed_may_be_late_where_a_clause_says_so():
    lenient = Relation(owed=(LateEffect("close", SECOND, "TD-03"),))
    assert judge_of_door(later(1)).outcome is ConformanceOutcome.FAIL
    assert judge_of_door(later(1), lenient).outcome is ConformanceOutcome.PASS
    assert judge_of_door(DoorLines, lenient).outcome is ConformanceOutcome.PASS
    assert judge_of_door(later(2), lenient).outcome is ConformanceOutcome.FAIL


def test_a_script_is_kept_read_and_repeats_the_run(tmp_path):
    moves = (Begin(), FedInput(Knock(2)), Wait(5), Late("close"))
    report.save(tmp_path / "run" / "door.jsonl", moves)
    assert report.load(tmp_path / "run" / "door.jsonl", role()) == moves
    verdict = Campaign(role(), lambda: ChildProcess((sys.executable, str(IMPLEMENTATION)))).replay(moves[:3])
    assert verdict.outcome is ConformanceOutcome.PASS


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "is no move of door"),
        ('{"feed": {"type": "knock"}}', "missing required field `n`"),
        ('{"feed": {"type": "ring"}}', "no event is called 'ring'; there are: knock, lock"),
        ('{"wait_ns": -1}', "'wait_ns' cannot be -1"),
        ('{"begin": 7}', "'begin' cannot be 7"),
        ('{"late": "open"}', "'late' cannot be 'open'"),
        ("[]", "it is no object with one key"),
    ],
)
def test_a_line_of_a_script_that_is_no_move_is_named(tmp_path, line, said):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"begin": 0}\n' + line + "\n")
    with pytest.raises(ConfigurationError, match="line 2") as caught:
        report.load(path, role())
    assert said in str(caught.value)


def test_a_machine_of_which_nothing_is_said_is_tested_all_the_same():
    """One drawn record, drawn events; what passes between is all that its module declares."""
    found = role_of_machine(DOOR)
    assert {kind.__name__ for kind in alphabet_of(DOOR).tells} >= {"Creaked"}
    graph = RoleGraph(found)
    assert {row for _, row, _ in graph.cells} == {0, 1, 2, 3, 4}
    assert ConformanceTest.of(found, DoorLines).judge(runs=2).outcome is ConformanceOutcome.PASS


sys.path.insert(0, str(Path(__file__).parent))

sys.path.pop(0)

PATIENCE_S = 5.0
"""Longer than a busy machine needs to start an implementation."""

BROKEN = {
    "logs": "answers with no JSON (JSON is malformed: invalid character (byte 0)): 'opening the door'; "
    "an answer is one line of it, and logs go to stderr",
    "a long line": "answers with more than 1,000,000 bytes on one line; an answer has fewer",
    "other fields": "does not keep to the interface: Object contains unknown field `deadline` - at `$.effects[0]`; "
    "`gapless schema ROLE` prints what an answer may hold",
    "answers for another": "says that it answers line 2; each line is answered once, before the next one comes",
    "newer": "speaks version 2 of the interface, and this kit speaks 1: install the gapless that it is for",
    "a deep answer": "answers with no JSON (maximum recursion depth exceeded",
    "bytes": "answers with no JSON ('utf-8' codec can't decode byte 0xff",
    "many effects": "answers with 5,000 effects; an answer has 4,096 at most",
    "many timers": "sets more than 10,000 timers; take those back that you do not wait for",
    "answers twice": "each line is answered once, and logs go to stderr",
}
UNCLEAR = {
    "never answers": "has not answered after 5 s; answer each line, and flush the output, or give it longer",
    "half a line": "has begun a line and not ended it after 5 s: '{'; end it, and flush",
    "ever later timers": "timers were due 1,000 times",
}
FAILED = {
    "dies": "has ended with exit code 1; it must answer until its input is closed; its last line on stderr: no more",
    "closes its output": "has closed its output; it must answer until its input is closed",
    "closes its input": "has closed its input; it must answer until its input is closed",
    "timers for ever": "sets timers for now for ever: t",
}


@pytest.fixture
def processes():
    """Those that were started; none lives at the end."""
    started = []
    yield started
    for one in started:
        with pytest.raises(ProcessLookupError):
            os.kill(one._process.pid, 0)


@pytest.fixture
def campaign(processes):
    def make(how):
        def open_one():
            processes.append(ChildProcess((*COMMAND, how), patience_s=PATIENCE_S))
            return processes[-1]

        return Campaign(role(), open_one)

    return make


@pytest.mark.parametrize("how", BROKEN)
def test_an_answer_that_is_no_line_of_the_interface_is_wrong_usage(campaign, how):
    with pytest.raises(InterfaceError) as caught:
        campaign(how).judge(runs=2)
    assert BROKEN[how] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, ImplementationEnded)


@pytest.mark.parametrize("how", UNCLEAR)
def test_what_could_not_be_judged_is_inconclusive(campaign, how):
    verdict = campaign(how).judge(runs=2)
    assert verdict.outcome is ConformanceOutcome.INCONCLUSIVE
    assert UNCLEAR[how] in verdict.why


@pytest.mark.parametrize("how", FAILED)
def test_one_that_ends_or_spins_where_an_answer_is_owed_has_failed(campaign, how, monkeypatch):
    monkeypatch.setattr("statemachines.testing.conformance.child_process.END_S", 0.1)
    monkeypatch.setattr("statemachines.testing.conformance.campaign.REPLAYS_MAX", 5)
    verdict = campaign(how).judge(runs=2)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert FAILED[how] in verdict.why


def test_logs_without_end_are_not_kept(campaign, processes, monkeypatch):
    monkeypatch.setattr("statemachines.testing.conformance.child_process.LINES", 1)
    sizes = []

    def trim(process):
        sizes.append(os.fstat(process._stderr.fileno()).st_size)
        original(process)
        assert os.fstat(process._stderr.fileno()).st_size <= STDERR_BYTES_MAX

    original = ChildProcess._trim_stderr
    monkeypatch.setattr(ChildProcess, "_trim_stderr", trim)
    assert campaign("logs without end").judge(runs=0).outcome is ConformanceOutcome.PASS
    assert STDERR_BYTES_MAX < max(sizes) <= 3_000_000


def test_one_that_ends_at_once_was_never_judged(processes):
    def open_one():
        processes.append(ChildProcess((sys.executable, "-c", "import sys; sys.exit('no such module')")))
        return processes[-1]

    with pytest.raises(
        ImplementationEnded, match=r"line 1 \(init\): the implementation has ended with exit code 1.*no such module"
    ):
        Campaign(role(), open_one).judge()


def test_a_command_that_is_none_says_so():
    with pytest.raises(ConfigurationError, match="cannot be started: No such file or directory; after -- stands"):
        ChildProcess(("no-such-command",))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("conform", "nobody", "--", "cat"), "unknown"),
        (("conform", "door"), "COMMAND"),
        (("schema", "nothing"), "unknown"),
    ],
)
def test_wrong_usage_has_exit_code_2(capsys, arguments, said):
    assert cli.run(arguments) == 2
    assert said in capsys.readouterr().err


def send(name, to="peer", **fields):
    return Output(("send", to), name, to, fields)


def tell(name, about="", **fields):
    return Output(("tell", about), name, "", fields)


ONE, TWO = send("one", n=1), send("two", n=2)
PLAIN = Relation()


def is_allowed(relation, expected, came, binding=None):
    return not isinstance(match_answer(relation, tuple(expected), tuple(came), binding or {}), str)


@pytest.mark.parametrize(
    ("expected", "came", "allowed"),
    [
        ([], [], True),
        ([ONE], [ONE], True),
        ([ONE], [], False),
        ([], [ONE], False),
        ([ONE, TWO], [TWO, ONE], False),
        ([ONE, send("two", to="other")], [send("two", to="other"), ONE], True),
        ([ONE, tell("told")], [tell("told"), ONE], True),
        ([tell("a", "x"), tell("b", "x")], [tell("b", "x"), tell("a", "x")], False),
        ([tell("a", "x"), tell("b", "y")], [tell("b", "y"), tell("a", "x")], True),
        ([ONE], [send("one", n=2)], False),
        ([ONE], [send("one", n=1, to="other")], False),
        ([ONE, ONE], [ONE], False),
        ([ONE], [ONE, ONE], False),
    ],
)
def test_order_binds_within_a_destination_and_nothing_else_is_free(expected, came, allowed):
    assert is_allowed(PLAIN, expected, came) is allowed
