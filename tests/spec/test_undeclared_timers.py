"""An action that sets a timer which its machine does not declare: one error names the machine, the row and the mend."""

import sys
import unittest

import pytest
from hypothesis import Phase, settings
from lock_toy import (
    HOLDER,
    HOLDING,
    IDLE,
    LOCK,
    WAITING,
    Granted,
    HolderRecord,
    HolderStatus,
    LockRecord,
    Want,
    few_asks,
    few_tokens,
    is_answer,
)
from msgspec.structs import replace

from statemachines import cli
from statemachines.drivers.node import one_machine
from statemachines.kernel import DeclarationError, Fsm, Row, SetTimer
from statemachines.testing.machine import MachineTest
from statemachines_spec import FsmActor, Network, System

SAID = (
    "lock_made_up/holder: row 1 (hold_and_look, LK-12) sets the timer 'look', which the machine does not declare; "
    "add Timer('look', ...) to its `timers`, or set one that it declares: 'lease'"
)


def hold_and_look(record, event, now_ns):
    return replace(record, token=event.token), (SetTimer("look", now_ns + 10**9),)


def declare_stray():
    """The holder of the lock, whose answer sets a timer that nobody declared."""
    wanted, _, *others = HOLDER.declared
    return Fsm(
        "holder",
        protocol="lock_made_up",
        record=HOLDER.record_type,
        states=HolderStatus,
        initial=IDLE,
        rows=(wanted, Row(Granted, WAITING, HOLDING, hold_and_look, is_answer, "LK-12"), *others),
        timers=HOLDER.timers,
    )


def make_system():
    calls = {IDLE: (Want(),)}
    holder = FsmActor(
        "holder-1",
        declare_stray(),
        HolderRecord("holder-1"),
        calls=lambda record: calls.get(record.status, ()),
        bound=few_asks,
    )
    return System("stray", "", (FsmActor("lock", LOCK, LockRecord(), bound=few_tokens), holder), Network(2), ())


@pytest.mark.parametrize("command", ["check", "explore"])
def test_a_command_says_it_in_one_line(command, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "stray_system", sys.modules[__name__])
    html = ("--html", str(tmp_path / "page.html")) if command == "explore" else ()
    assert cli.run([command, "stray_system:make_system", "--engine", "plain", *html]) == 2
    assert capsys.readouterr().err == f"error: {SAID}\n"


def test_a_node_says_it_when_the_timer_fires():
    host = one_machine(declare_stray(), HolderRecord)("holder-1~1/1", 0, lambda *step: None)
    (node,) = host.nodes.values()
    node.feed(Want(), 0)
    node.feed(Granted(1, 1), 0)
    with pytest.raises(DeclarationError, match="sets the timer 'look'"):
        node.fire(10**9)


def test_the_tests_of_a_machine_say_it():
    result, case = unittest.TestResult(), MachineTest.of(declare_stray()).TestCase
    case.settings = settings(case.settings, phases=[Phase.generate])
    case("runTest").run(result)
    ((_, failure),) = result.errors or result.failures
    assert SAID in failure
