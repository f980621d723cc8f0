"""ShippedMachine: a declared machine as an implementation of itself, through the lines of the interface.

    ConformanceTest.of(BORROWER, lambda: ShippedMachine(role_of_machine(BORROWER)))

It must pass; with a mutant in place of its machine it shows which mistakes a tour and a search find.
"""

from __future__ import annotations

from typing import Any, get_type_hints

from statemachines.kernel import Ask, CancelTimer, Effect, Fsm, Send, SetTimer, Tell, name_of
from statemachines.testing.conformance.json_values import make_plain
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.script_file import event_from, value_from

SEPARATOR = " "
"""Between the name of a timer and its key; names have none."""


class ShippedMachine:
    """An adapter (`conformance_test.Adapter`).  `fsm`: another machine with the same events, such as a mutant."""

    def __init__(self, role: ConformanceRole, fsm: Fsm[Any] | None = None) -> None:
        self._role = role
        self._fsm = fsm or role.fsm
        self._record: Any = None
        self._hints = get_type_hints(role.fsm.record_type, include_extras=True)
        self._kinds = {name_of(kind): kind for kind in role.interface.alphabet.takes}
        self._timers = self._fsm.timer_registry()

    def answer(self, line: dict[str, Any]) -> dict[str, Any]:
        """The answer to a line."""
        now_ns = line["now_ns"]
        if "init" in line:
            given = {field: value_from(self._hints[field], value) for field, value in line["init"].items()}
            self._record = self._fsm.record_type(**given)
            return {"effects": [_line_of(one, self._fsm) for one in self._fsm.start(self._record, now_ns)]}
        if "timer" in line:
            name, _, key = line["timer"].partition(SEPARATOR)
            event = self._timers[name](key)
        else:
            event = event_from(self._kinds[line["event"]["type"]], line["event"])
        step = self._fsm.step(self._record, event, now_ns)
        self._record = step.record
        effects = [_line_of(one, self._fsm) for one in step.effects]
        stops = step.record.status in self._fsm.final and {"effect": "stop"} not in effects
        return {"effects": [*effects, {"effect": "stop"}] if stops else effects, "n": line["n"]}


def _line_of(effect: Effect, fsm: Fsm[Any]) -> dict[str, Any]:
    """An effect as JSON has it."""
    match effect:
        case Send(to, message):
            return {"effect": "send", "to": to, "message": make_plain(message)}
        case Ask(service, request):
            return {"effect": "ask", "service": service, "request": make_plain(request)}
        case Tell(event):
            return {"effect": "tell", "event": make_plain(event)}
        case SetTimer(timer, deadline_ns, key):
            first = {"authority": True} if timer in fsm.authority else {}
            return {"effect": "set_timer", "timer": _joined(timer, key), "deadline_ns": deadline_ns, **first}
        case CancelTimer(timer, key):
            return {"effect": "cancel_timer", "timer": _joined(timer, key)}
    return {"effect": "stop"}


def _joined(timer: str, key: str) -> str:
    return f"{timer}{SEPARATOR}{key}" if key else timer
