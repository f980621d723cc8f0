"""The whole kit against a small machine of no protocol: its tour, its verdicts, its scripts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from statemachines.kernel import ConfigurationError
from statemachines.testing.conformance import report
from statemachines.testing.conformance.campaign import Campaign, ConformanceOutcome
from statemachines.testing.conformance.child_process import ChildProcess
from statemachines.testing.conformance.conformance_run import (
    Begin,
    ConformanceRun,
    FedInput,
    Late,
    Violated,
    Wait,
)
from statemachines.testing.conformance.conformance_test import ConformanceTest, InProcess
from statemachines.testing.conformance.interface import alphabet_of
from statemachines.testing.conformance.relation import LateEffect, Relation
from statemachines.testing.conformance.role import role_of_machine
from statemachines.testing.conformance.role_graph import RoleGraph

sys.path.insert(0, str(Path(__file__).parent))
from door_child import Door
from toy_role import DOOR, IMPLEMENTATION, SECOND, Knock, role

sys.path.pop(0)


class Lines:
    kind = Door

    def answer(self, line):
        if "init" in line:
            self.door = self.kind(line["init"], line["now_ns"])
            return {"effects": []}
        return {"effects": self.door.take(line)}


def lines_of(**changed):
    return type("Changed", (Lines,), {"kind": type("ChangedDoor", (Door,), changed)})


def judge(adapter=Lines, relation=Relation(), runs=20):  # noqa: B008 (it is frozen)
    return ConformanceTest.of(role(relation), adapter).judge(runs)


TestDoor = ConformanceTest.of(role(), Lines).TestCase


def test_silence_is_an_answer_and_fails_where_an_output_is_owed():
    def take(self, line):
        return [one for one in Door.take(self, line) if one["effect"] != "set_timer"]

    verdict = judge(lines_of(take=take), runs=0)
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
    assert judge(later(1)).outcome is ConformanceOutcome.FAIL
    assert judge(later(1), lenient).outcome is ConformanceOutcome.PASS
    assert judge(Lines, lenient).outcome is ConformanceOutcome.PASS
    assert judge(later(2), lenient).outcome is ConformanceOutcome.FAIL


def test_a_wrong_answer_says_what_was_fed_expected_and_came():
    def take(self, line):
        effects = Door.take(self, line)
        for one in effects:
            if one["effect"] == "send" and "n" in one["message"]:
                one["message"]["n"] = 1
        return effects

    run = ConformanceRun(role(), InProcess(lines_of(take=take)()))
    run.make(Begin())
    with pytest.raises(Violated) as caught:
        run.make(FedInput(Knock(2)))
    found = caught.value.violation
    assert (found.fed, found.states, found.wrong) == ("knock(n=2)", ("closed",), "opened: n is 1, expected 2")
    (outputs, clauses), *others = found.expected
    assert ([str(one) for one in outputs], clauses, others) == (
        ["send peer opened(n=2)", "tell creaked"],
        ("TD-01",),
        [],
    )


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
    assert ConformanceTest.of(found, Lines).judge(runs=2).outcome is ConformanceOutcome.PASS
