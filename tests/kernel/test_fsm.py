"""The declaration and the step: what DESIGN calls "Declaration", "Step", "Compiled dispatch"."""

from __future__ import annotations

from enum import Enum

import pytest
from door import DOOR, Bell, Door, DoorRecord, Draught, Knock, Pull, Push, Remove

from statemachines import kernel


def test_the_first_row_whose_guard_holds_is_taken():
    strong = DOOR.step(DoorRecord(), Push(force=2), 0)
    weak = DOOR.step(DoorRecord(), Push(force=1), 0)
    assert (strong.row, strong.record.status) == (0, Door.CLOSED)
    assert (weak.row, weak.record.status) == (1, Door.OPEN)


def test_entering_arms_and_leaving_cancels():
    assert DOOR.start(DoorRecord(), 7) == (kernel.SetTimer("draught", 107),)
    assert (
        DOOR.step(DoorRecord(), Push(force=2), 0).effects
        == (kernel.CancelTimer("draught"), kernel.CancelTimer("bell"))[:1]
    )
    back = DOOR.step(DoorRecord(status=Door.CLOSED), Pull(), 50)
    assert back.effects == (kernel.CancelTimer("bell"), kernel.SetTimer("draught", 150))


def test_a_reflexive_row_leaves_and_enters_and_an_internal_one_does_not():
    assert DOOR.step(DoorRecord(), Pull(), 9).effects == (
        kernel.CancelTimer("draught"),
        kernel.SetTimer("draught", 109),
    )
    assert DOOR.step(DoorRecord(), Push(), 9).effects == ()


def test_an_ignore_is_a_numbered_row_without_effect():
    step = DOOR.step(DoorRecord(), Bell(), 0)
    assert (step.record, step.effects) == (DoorRecord(), ())
    assert DOOR.lines[step.row].kind == "ignore"


def test_a_refused_call_is_the_hosts_fault_and_names_state_event_and_clause():
    with pytest.raises(kernel.LocalProtocolError, match=r"door in state closed got push: .* \[T-10\]"):
        DOOR.step(DoorRecord(status=Door.CLOSED), Push(), 0)


def test_an_unknown_event_is_an_error_of_whoever_sent_it():
    class Letter(Knock, frozen=True):
        pass

    class Kick(Push, frozen=True):
        pass

    with pytest.raises(kernel.RemoteProtocolError, match="does not take"):
        DOOR.step(DoorRecord(), Letter("x"), 0)
    with pytest.raises(kernel.LocalProtocolError, match="does not take"):
        DOOR.step(DoorRecord(), Kick(), 0)


def test_a_final_state_takes_nothing():
    with pytest.raises(kernel.LocalProtocolError, match="has stopped"):
        DOOR.step(DoorRecord(status=Door.GONE), Pull(), 0)


def test_a_wildcard_source_is_every_state_that_is_not_final():
    line = next(line for line in DOOR.lines if line.event is Remove)
    assert line.sources == (Door.OPEN, Door.CLOSED)
    assert DOOR.step(DoorRecord(), Remove(), 0).effects == (kernel.CancelTimer("draught"), kernel.Stop())


def test_actions_see_the_event_and_the_time():
    step = DOOR.step(DoorRecord(status=Door.CLOSED), Knock("ann"), 10)
    assert step.effects == (kernel.Send("ann", Knock("door")), kernel.SetTimer("bell", 15))


def test_guards_that_all_fail_take_no_row():
    fsm = kernel.Fsm(
        "shy",
        record=DoorRecord,
        states=Door,
        initial=Door.OPEN,
        final=(Door.CLOSED, Door.GONE),
        rows=(kernel.Row(Push, Door.OPEN, Door.CLOSED, None, lambda record, event: False, "T-1"),),
    )
    for engine in (fsm.step, fsm.reference_step):
        step = engine(DoorRecord(), Push(), 0)
        assert (step.record, step.effects, step.row) == (DoorRecord(), (), -1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((kernel.Row(Push, Door.OPEN, Door.CLOSED, None, None, "T-1"),), "undecided cells.*closed x push"),
        ((kernel.Row(Push, Door.GONE, Door.OPEN, None, None, "T-1"),), "leaves a final state"),
        ((kernel.Row(Push, Door.OPEN, Enum("Other", "X").X, None, None, "T-1"),), "not one of its states"),
        ((kernel.Ignore((Push,), (Door.OPEN, Door.CLOSED), ""),), "no clause"),
    ],
)
def test_a_table_that_is_not_a_machine_is_refused_by_name(rows, message):
    with pytest.raises(kernel.DeclarationError, match=message):
        kernel.Fsm("bad", record=DoorRecord, states=Door, initial=Door.OPEN, final=(Door.GONE,), rows=rows)


def test_a_timer_that_nothing_takes_is_refused():
    with pytest.raises(kernel.DeclarationError, match="nothing takes draught"):
        kernel.Fsm(
            "deaf",
            record=DoorRecord,
            states=Door,
            initial=Door.OPEN,
            final=(Door.GONE,),
            rows=(kernel.Ignore((Push,), (Door.OPEN, Door.CLOSED), "T-1"),),
            timers=(kernel.Timer("draught", Draught, (Door.OPEN,), lambda record: 1),),
        )
