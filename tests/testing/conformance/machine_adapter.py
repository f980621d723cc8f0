"""A shipped machine as an implementation of itself: it takes the lines of the interface and answers them."""

from __future__ import annotations

import json
import sys
from typing import get_type_hints

import msgspec

from statemachines.kernel import Ask, CancelTimer, Send, SetTimer, Stop, Tell, name_of
from statemachines.testing.conformance.json_values import make_plain
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.script_file import event_from


class MachineAdapter:
    """The machine of a role; `changed(effects)` is what it answers instead of its effects."""

    def __init__(self, role, changed=lambda effects: effects):
        self.fsm = role.fsm
        self.kinds = {name_of(kind): kind for kind in role.interface.alphabet.takes}
        self.timers = role.fsm.timer_registry()
        self.changed = changed
        self.record = None

    def answer(self, line):
        """The effects of one line."""
        return {"effects": self.changed(list(self._effects(line))), "n": line["n"]}

    def _effects(self, line):
        now_ns = line["now_ns"]
        if "init" in line:
            hints = get_type_hints(self.fsm.record_type, include_extras=True)
            given = {field: msgspec.convert(value, hints[field]) for field, value in line["init"].items()}
            self.record = self.fsm.record_type(**given)
            effects = self.fsm.start(self.record, now_ns)
        else:
            step = self.fsm.step(self.record, self._event(line), now_ns)
            self.record, effects = step.record, step.effects
        for effect in effects:
            yield self._line_of(effect)
        if self.record.status in self.fsm.final and Stop() not in effects:
            yield {"effect": "stop"}

    def _event(self, line):
        if "timer" in line:
            name, _, key = line["timer"].partition("/")
            return self.timers[name](key)
        return event_from(self.kinds[line["event"]["type"]], line["event"])

    def _line_of(self, effect):
        match effect:
            case Send(to, message):
                return {"effect": "send", "to": to, "message": make_plain(message)}
            case Tell(event):
                return {"effect": "tell", "event": make_plain(event)}
            case Ask(service, request):
                return {"effect": "ask", "service": service, "request": make_plain(request)}
            case Stop():
                return {"effect": "stop"}
            case CancelTimer(timer, key):
                return {"effect": "cancel_timer", "timer": f"{timer}/{key}"}
        assert isinstance(effect, SetTimer)
        first = effect.timer in self.fsm.authority
        timer = f"{effect.timer}/{effect.key}"
        return {"effect": "set_timer", "timer": timer, "deadline_ns": effect.deadline_ns, "authority": first}


def main(name):
    """Serve lines, as a process of its own."""
    adapter = MachineAdapter(role_of(name))
    for text in sys.stdin:
        sys.stdout.write(json.dumps(adapter.answer(json.loads(text))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
