"""How many Python functions a node calls for one message of an MQTT session: publish, store, deliver, acknowledge.

    .venv/bin/python tools/count_calls.py            # 1 and 20 messages under way
    .venv/bin/python tools/count_calls.py --files    # by file, too; --functions: by function

It counts the calls of all threads of the node (the thread of its store, too) by `sys.setprofile`.  The clients are a
process of their own.  Calls without any message (pings, looks) are counted first and subtracted.  How much the
collector deletes meanwhile depends on the time that it has: on a busy machine it is more for each message.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
TOPIC: Final = "t"
CLIENT: Final = f"""
import sys
from statemachines.testing.mqtt_connections.mqtt_socket import MqttSocket, publish_all
with MqttSocket(int(sys.argv[1]), "reader") as reader, MqttSocket(int(sys.argv[1]), "writer") as writer:
    reader.subscribe("{TOPIC}")
    publish_all([writer], "{TOPIC}", [b"first"])
    reader.acknowledge(reader.read_messages())
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(sys.argv[2])):
        left = int(sys.argv[3])
        publish_all([writer], "{TOPIC}", [b"x" * 100] * left, left)
        while left:
            found = reader.read_messages()
            reader.acknowledge(found)
            left -= len(found)
    print("done", flush=True)
    sys.stdin.readline()
"""


class CallCounter:
    """Counts calls of Python functions in this and all later threads, by their code, while it `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.found: Counter[CodeType] = Counter()
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def note(self, frame: Any, event: str, argument: object) -> None:
        """One event of the interpreter."""
        if self.is_on and event == "call":
            self.found[frame.f_code] += 1

    def take(self) -> Counter[CodeType]:
        """What was counted since the last time."""
        found, self.found = self.found, Counter()
        return found


async def count_calls(rounds: int, under_way: int, *, collects: bool = True) -> Counter[CodeType]:
    """Calls by function for `rounds * under_way` messages."""
    from statemachines.drivers.mqtt_connections import MqttNode
    from statemachines.drivers.persistent_sessions import SessionNode
    from statemachines.persistent_sessions.collector import GRACES

    counter = CallCounter()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            SessionNode(Path(folder) / "s.db", name="n", graces=GRACES if collects else None) as node,
            MqttNode(node, listen=("127.0.0.1", 0)) as mqtt,
        ):
            words = (str(mqtt.address[1]), str(rounds), str(under_way))
            pipe = asyncio.subprocess.PIPE
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, *words, stdin=pipe, stdout=pipe)
            assert child.stdin is not None
            assert child.stdout is not None
            await child.stdout.readline()
            idle, _ = await measure_span(counter, asyncio.sleep(2))
            child.stdin.write(b"\n")
            busy, seconds = await measure_span(counter, child.stdout.readline())
            child.stdin.write(b"\n")
            await child.wait()
    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]
    for code, count in idle.items():
        busy[code] -= int(count * seconds / 2)
    return busy


async def measure_span(counter: CallCounter, work: Any) -> tuple[Counter[CodeType], float]:
    """What is called while this is awaited, and for how many seconds that was."""
    counter.take()
    began, counter.is_on = time.monotonic(), True
    await work
    counter.is_on = False
    return counter.take(), time.monotonic() - began


def sum_by(found: Counter[CodeType], name: Callable[[CodeType], str]) -> Counter[str]:
    """The calls by whatever name a function is given."""
    summed: Counter[str] = Counter()
    for code, count in found.items():
        summed[name(code)] += count
    return summed


def file_of(code: CodeType) -> str:
    """The file of a function, from the root of the repository where it is of ours."""
    path = Path(code.co_filename)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT / "statemachines") else path.name


def function_of(code: CodeType) -> str:
    """The name of a function behind its file."""
    return f"{file_of(code)}:{code.co_qualname}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--files", action="store_true", help="list the files")
    parser.add_argument("--functions", action="store_true", help="list the functions")
    parser.add_argument("--without-collector", action="store_true", help="nothing of what was delivered is deleted")
    given = parser.parse_args()
    for under_way in (1, 20):
        rounds = max(1, given.messages // under_way)
        found = asyncio.run(count_calls(rounds, under_way, collects=not given.without_collector))
        messages = rounds * under_way
        ours = sum(count for code, count in found.items() if file_of(code).startswith("statemachines"))
        print(
            f"{under_way} under way: {found.total() / messages:.0f} calls a message, {ours / messages:.0f} of them ours"
        )
        for is_wanted, name, most in ((given.files, file_of, 40), (given.functions, function_of, 200)):
            for one, count in sum_by(found, name).most_common(most if is_wanted else 0):
                print(f"  {count / messages:6.1f}  {one}")


if __name__ == "__main__":
    main()
