"""Many topics: a real group starts on all of them at once, beside processes that keep the machine busy.

    python tests/real/many_topics_run.py --topics 70000 --busy 4 --hosts 2

Leader hosts and a member find so many topics with a message each.  When half of the messages are acknowledged a second
member joins, which is given half of the streams; then one topic in ten gets another message.  Every message must be
acknowledged in time, and the second member must get some of them; what was delivered twice is counted, and so is how
often a claim was taken, and renewed late.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from statemachines.demo.shared_subscriptions.account import count_acknowledged
from statemachines.drivers.shared_subscriptions import consumer_file
from statemachines.drivers.shared_subscriptions.sqlite import SqliteStreamStore
from statemachines.kernel import GaplessError
from statemachines.testing.process_harness import free_port
from statemachines.testing.shared_subscriptions.nodes import GroupHarness

SUBSCRIPTION: Final = "$shared/many/#"
AGAIN: Final = 10
"""One topic in so many gets a second message."""

PATIENCE_S: Final = 600.0
LOOK_S: Final = 0.5


class Told(msgspec.Struct, frozen=True):
    """Seconds from the start of the first member: `first_s` until its first message, `all_s` until a message of each
    topic was acknowledged, `shared_s` until the second member had its half of the streams.  `messages` in all; `twice`:
    so many of them were delivered again; `second`: those that the second member got.  `elected`: so often a host took
    the claim; `late`: so often it was renewed late, and `latest_s` after the time before.  `wrong`: what must not be.
    """

    first_s: float
    all_s: float
    shared_s: float
    messages: int
    twice: int
    second: int
    elected: int
    late: int
    latest_s: float
    wrong: tuple[str, ...]


async def publish(store: Path, topics: int, every: int, text: bytes) -> None:
    """A message to one topic in `every`."""
    streams = SqliteStreamStore(store)
    for number in range(0, topics, every):
        await streams.append(f"t/{number:06}", [text])
    await streams.close()


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes compute all the time."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def run(folder: Path, topics: int, processes: int, patience_s: float = PATIENCE_S, hosts: int = 1) -> Told:
    """Such a run with so many leader hosts, its files in `folder`; raises `GaplessError` where something is missing
    after `patience_s`."""
    files = {name: folder / f"{name}.jsonl" for name in ("consumer-1", "consumer-2")}
    again = len(range(0, topics, AGAIN))
    with GroupHarness(folder) as nodes:
        asyncio.run(publish(Path(nodes.store), topics, 1, b"first"))
        addresses = [f"127.0.0.1:{free_port()}" for _ in range(hosts)]
        leaders = []
        for number, address in enumerate(addresses):
            others = [other for other in addresses if other != address]
            peers = ("--peers", ",".join(others)) if others else ()
            leaders.append(nodes.leader(f"leader-{number + 1}", *peers, listen=address))

        def until(has_come: Callable[[], bool], what: str) -> float:
            """Seconds since the first member was started, when it has come."""
            while not has_come():
                if time.monotonic() - began > patience_s:
                    raise GaplessError(f"{what}: not in {patience_s:g} s; see {folder}")
                nodes.check_alive()
                time.sleep(LOOK_S)
            return time.monotonic() - began

        def join(name: str) -> None:
            nodes.consumer(name, SUBSCRIPTION, ",".join(addresses), "--out", str(files[name]))

        with busy(processes):
            began = time.monotonic()
            join("consumer-1")
            first_s = until(lambda: count_acknowledged(files) > 0, "the first message")
            until(lambda: 2 * count_acknowledged(files) >= topics, "half of the messages")
            join("consumer-2")
            all_s = until(lambda: count_acknowledged(files) >= topics, f"all {topics} messages")
            shared_s = until(
                lambda: granted("".join(one.read_log() for one in leaders)) >= topics + topics // 2,
                "half of the streams moved",
            )
            asyncio.run(publish(Path(nodes.store), topics, AGAIN, b"second"))
            until(lambda: count_acknowledged(files) >= topics + again, f"{again} more messages")
        log = "".join(one.read_log() for one in leaders)
        wrong = list(nodes.wrong)
    lines = {name: consumer_file.read_file(path) for name, path in files.items()}
    got = Counter((one.stream, one.offset) for each in lines.values() for one in each if one.what == consumer_file.GOT)
    second = sum(one.what == consumer_file.ACK for one in lines["consumer-2"])
    if not second:
        wrong.append("the second member got nothing")
    if len(got) != topics + again:
        wrong.append(f"{len(got)} of {topics + again} messages were delivered")
    late = [float(seconds) for seconds in re.findall(r"renewed its claim late, (\S+) s", log)]
    claims = (log.count("leads it, under epoch"), len(late), max(late, default=0.0))
    return Told(first_s, all_s, shared_s, len(got), got.total() - len(got), second, *claims, tuple(wrong))


def granted(log: str) -> int:
    """How many streams the leader host has granted, as its log counts them (SS-257)."""
    return sum(int(count) for count in re.findall(r"streams moved: (\d+) granted", log))


def main() -> int:
    """One run; what it came to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=70_000)
    parser.add_argument("--busy", type=int, default=2, help="processes that compute all the time (default 2)")
    parser.add_argument("--hosts", type=int, default=1, help="leader hosts that know each other (default 1)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = run(Path(folder), given.topics, given.busy, hosts=given.hosts)
    print(msgspec.json.encode(told).decode())
    return 1 if told.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
