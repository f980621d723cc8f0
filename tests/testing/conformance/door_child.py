"""A door in plain Python; `door_child.py HOW` misbehaves: see the end."""

import json
import os
import sys
import time


class Door:
    def __init__(self, init, now_ns):
        self.peer, self.is_open, self.times = init["peer"], False, 0

    def take(self, line):
        if "timer" in line:
            if not self.is_open:
                return []
            self.is_open = False
            return [send(self.peer, {"type": "shut", "times": self.times})]
        event = line["event"]
        if event["type"] == "lock":
            return [] if self.is_open else [{"effect": "stop"}]
        opened = [send(self.peer, {"type": "opened", "n": event["n"]})]
        if self.is_open:
            return opened
        self.is_open = True
        self.times += 1
        timer = {"effect": "set_timer", "timer": "shut it", "deadline_ns": line["now_ns"] + 2_000_000_000}
        return [{"effect": "tell", "event": {"type": "creaked"}}, *opened, timer]


def send(to, message):
    return {"effect": "send", "to": to, "message": message}


def main(how):
    door = None
    for number, text in enumerate(sys.stdin, 1):
        line = json.loads(text)
        if "init" in line:
            door, effects = Door(line["init"], line["now_ns"]), []
        elif line.get("timer") == "t":
            effects = []
        else:
            effects = door.take(line)
        answer = {"effects": effects, "n": line["n"]}
        if how == "starts others" and number == 4:
            os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "1000")
        if how == "never answers" and number == 4:
            time.sleep(1000)
        if how == "dies" and number == 4:
            raise SystemExit("no more doors")
        if how == "closes its output" and number == 4:
            os.close(1)
            time.sleep(1000)
        if how == "closes its input" and number == 4:
            os.close(0)  # before it answers: the next line must not find a reader
            print(json.dumps(answer), flush=True)
            time.sleep(1000)
        if how == "logs without end":
            sys.stderr.write("x" * 3_000_000)
        if how == "a deep answer":
            answer["state"] = "?"
            print(json.dumps(answer).replace('"?"', "[" * 100_000 + "]" * 100_000), flush=True)
            continue
        if how == "bytes":
            sys.stdout.buffer.write(b'{"effects": [{"effect": "send", "to": "\xff"}]}\n')
            sys.stdout.flush()
            continue
        if how == "many effects":
            effects += [{"effect": "cancel_timer", "timer": "t"}] * 5_000
        if how == "many timers":
            base = 4_000 * number
            later = line["now_ns"] + 10**18
            effects += [{"effect": "set_timer", "timer": f"{base + n}", "deadline_ns": later} for n in range(4_000)]
        if how == "logs":
            print("opening the door", flush=True)
        if how == "a long line":
            sys.stdout.write("x" * 5_000_000)
        if how == "half a line":
            sys.stdout.write("{")
            sys.stdout.flush()
            time.sleep(1000)
        if how == "other fields":
            answer = {"effects": [{**one, "deadline": 1} for one in effects]}
        if how == "answers for another":
            answer["n"] += 1
        if how == "newer":
            answer = {"interface": 2, "actions": effects}
        if how == "timers for ever":
            answer["effects"] = [{"effect": "set_timer", "timer": "t", "deadline_ns": line["now_ns"]}]
        if how == "ever later timers":
            effects.append({"effect": "set_timer", "timer": "t", "deadline_ns": line["now_ns"] + 1})
        print(json.dumps(answer), flush=True)
        if how == "answers twice":
            time.sleep(0.001)
            print(json.dumps({"effects": []}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
