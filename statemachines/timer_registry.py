"""A registry of timers that says what is wrong where a machine sets a timer that it does not declare.

It stands outside the kernel, since every certificate rests on each file there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Never

from statemachines.kernel import DeclarationError, Delegate, Fsm, TimerFired
from statemachines.kernel.arming import can_arm


class TimerRegistry(dict[str, type[TimerFired]]):
    """Timer name -> event of one machine.  Looking up another name raises `DeclarationError`."""

    def __init__(self, fsm: Fsm[Any]) -> None:
        super().__init__(fsm.timer_registry())
        self.fsm = fsm

    def __missing__(self, timer: str) -> Never:
        rows = " or ".join(list_setting_rows(self.fsm, timer)) or "an action"
        declared = ", ".join(map(repr, self)) or "none"
        raise DeclarationError(
            f"{self.fsm.full_name}: {rows} sets the timer {timer!r}, which the machine does not declare; "
            f"add Timer({timer!r}, ...) to its `timers`, or set one that it declares: {declared}"
        )


def check_timers(machines: Iterable[Fsm[Any]]) -> None:
    """From now on each machine says which timer is not declared, where a driver or the explorer fires one."""
    for machine in machines:
        if not isinstance(machine._registry, TimerRegistry):
            machine._registry = TimerRegistry(machine)


def list_setting_rows(fsm: Fsm[Any], timer: str) -> list[str]:
    """The rows of a machine and its child machines whose action may set this timer, as far as its code tells."""
    found = dict[str, None]()
    for member in fsm.family():
        for line in member.lines:
            action = line.do.run if isinstance(line.do, Delegate) else line.do
            if action is not None and can_arm(action, timer, member.timer_registry()):
                found[f"row {line.number} ({line.action_name}, {line.clause})"] = None
    return list(found)
