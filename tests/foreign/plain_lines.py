"""The lines of docs/test_your_implementation.md for programs in plain Python: nothing of gapless is imported."""

import json
import sys

MS = 1_000_000


class Instance:
    """A subclass takes the event NAME by `on_NAME(event)`, and the timer "NAME KEY" by `on_timer_NAME(KEY)`."""

    def __init__(self, now):
        self.now = now
        self.effects = []

    def send(self, party, kind, /, **fields):
        self.effects.append({"effect": "send", "to": party, "message": {"type": kind, **fields}})

    def ask(self, service, kind, /, **fields):
        self.effects.append({"effect": "ask", "service": service, "request": {"type": kind, **fields}})

    def tell(self, kind, /, **fields):
        self.effects.append({"effect": "tell", "event": {"type": kind, **fields}})

    def set_timer(self, name, ms, ns=0):
        self.effects.append({"effect": "set_timer", "timer": name, "deadline_ns": self.now + ms * MS + ns})

    def cancel(self, *names):
        self.effects += [{"effect": "cancel_timer", "timer": name} for name in names]

    def stop(self):
        self.effects.append({"effect": "stop"})

    def take(self, line):
        self.now = line["now_ns"]
        if "timer" in line:
            name, *key = line["timer"].split(" ", 1)
            getattr(self, "on_timer_" + name)(*key)
        else:
            getattr(self, "on_" + line["event"]["type"])(line["event"])


def serve(make):
    """Answer every line of standard input; `make(init, now_ns)` begins an instance."""
    for text in sys.stdin:
        line = json.loads(text)
        if "init" in line:
            instance = make(line["init"], line["now_ns"])
        else:
            instance.take(line)
        print(json.dumps({"n": line["n"], "effects": instance.effects}), flush=True)
        instance.effects = []
