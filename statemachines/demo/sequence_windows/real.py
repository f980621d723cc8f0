"""Real: three publishers and two receivers as processes over UDP multicast on loopback, with a forwarder between."""

from __future__ import annotations

import os
from collections import Counter
from io import FileIO
from pathlib import Path

import msgspec

from statemachines.demo.protocol import DemoStage, Figures, sum_accounts
from statemachines.demo.real_run import RealRun
from statemachines.demo.sequence_windows.forwarder import ForwardedMessage, Forwarder
from statemachines.drivers.sequence_windows.loss_report import ask_node
from statemachines.drivers.sequence_windows.multicast import Group, by_chance
from statemachines.testing.process_harness import ProcessHarness

LINES, LONGEST = 360, 120
"""So many lines, of all publishers together, of so many bytes at most."""
PUBLISHERS, RECEIVERS = 3, 2
LOSS, COPIES, SEED = 0.15, 0.1, 16
BATCH = 30
"""So many lines are published until all receivers have them: no buffer is ever full but where the forwarder drops."""
CLOSING = b"the end"


class WindowRun(RealRun):
    """Each publisher reads its lines from a pipe, one at a time; while the forwarder is `careful` it loses nothing."""

    poll_s = 0.0005

    def __init__(self, stage: DemoStage) -> None:
        super().__init__(stage, ProcessHarness(stage.out, trace=stage.out / "trace"))
        # Numbers make every line another.
        self._lines = [b"%d %s" % numbered for numbered in enumerate(stage.options.read_lines(LINES, LONGEST))]
        self.whole = len(self._lines)
        pid = os.getpid()
        address = f"239.{87 + pid % 100}.{pid // 100 % 256}.{1 + pid // 25_600 % 250}"
        self._source, self._to = Group(address, 7600), Group(address, 7601)
        self._careful = True
        lose, repeat = by_chance(LOSS, SEED), by_chance(COPIES, SEED + 1)
        self.forwarder = Forwarder(
            self._source,
            self._to,
            self.trace,
            lambda number: lose(number) and not self._careful,
            lambda number: repeat(number) and not self._careful,
        )
        self._shown = {f"receiver-{number + 1}": -1 for number in range(RECEIVERS)}
        self.closing.callback(self.forwarder.close)
        self.closing.callback(self._end_publishers)
        self._pipes: dict[str, FileIO] = {}

    async def play(self) -> None:
        """All start; lines are published; a publisher is killed half way; each ends with a message that comes."""
        for name in self._shown:
            self._start("multicast-subscriber", name, self._to, "--losses", str(self.out / f"{name}.losses"))
        await self.await_output()
        for number in range(1, PUBLISHERS + 1):
            path = self.out / f"lines-{number}"
            os.mkfifo(path)
            self._pipes[f"publisher-{number}"] = path.open("r+b", buffering=0)
            self._start_publisher(number)
        self.stage.tell(
            f"{PUBLISHERS} publishers, {RECEIVERS} receivers at {self._source.address}, a forwarder between them"
        )
        for at, line in enumerate(self._lines):
            await self._publish(1 + at % PUBLISHERS, line, careful=at < PUBLISHERS)
            if at % BATCH == BATCH - 1:
                await self._catch_up()
            if at == self.whole // 2:
                await self._renew(1)
                self.stage.tell("SIGKILL to publisher-1; it comes back under another id")
        for number in range(1, PUBLISHERS + 1):
            await self._publish(number, CLOSING)
        # A message waits a moment for those that it may have overtaken, and an advisory a second.
        await self.until(
            lambda: all(not one["missing"] and one["advised"] >= one["told"] for one in self._list_accounts()),
            "the last messages and advisories",
        )
        self._shown = {name: ask_node(self.out / f"{name}.losses").lost_messages for name in self._shown}

    def _end_publishers(self) -> None:
        """The end of its input ends a publisher."""
        for name, pipe in self._pipes.items():
            pipe.close()
            self.nodes.nodes[name].wait()

    def look_after(self) -> None:
        """Forward meanwhile."""
        super().look_after()
        self.forwarder.forward()

    def count_done(self) -> int:
        """Messages that the forwarder had."""
        return len(self.forwarder.passed)

    def make_account(self) -> Figures:
        """`untold`: losses that receivers said nothing of."""
        sums, passed = sum_accounts(self._list_accounts()), self.forwarder.passed
        return {
            **sums,
            "receivers": len(self._shown),
            "untold": sums["dropped"] - sums["told"],
            "sent": len(passed),
            "repeated": sum(one.copies > 1 for one in passed),
        }

    def _list_accounts(self) -> list[Figures]:
        passed = self.forwarder.passed
        return [account_for(self.out / f"{name}.out", passed, shown) for name, shown in self._shown.items()]

    def _start_publisher(self, number: int) -> None:
        words = ("--subject", f"lines.{number}", "--input", str(self.out / f"lines-{number}"))
        self._start("multicast-publisher", f"publisher-{number}", self._source, *words)

    def _start(self, role: str, name: str, group: Group, *words: str) -> None:
        self.nodes.start(role, name, "--group", f"{group.address}:{group.port}", *words, ends=True)

    async def _publish(self, number: int, line: bytes, careful: bool = True) -> None:
        """The next line waits until this one is at the forwarder."""
        self._careful = careful
        self._pipes[f"publisher-{number}"].write(line + b"\n")
        await self.reach(len(self.forwarder.passed) + 1)

    async def _renew(self, number: int) -> None:
        """Its last message comes: else nothing would follow that could show a loss.  The same of its next life."""
        await self._publish(number, CLOSING)
        self.kill(f"publisher-{number}")
        self._start_publisher(number)
        await self._publish(number, b"back again")

    async def _catch_up(self) -> None:
        """Until every receiver has the last message that was handed over."""
        words = msgspec.json.encode(next(one for one in reversed(self.forwarder.passed) if one.copies).payload)
        files = [self.out / f"{name}.out" for name in self._shown]
        await self.until(lambda: all(words in path.read_bytes() for path in files), "the receivers to catch up")


def account_for(path: Path, passed: list[ForwardedMessage], shown: int = -1) -> Figures:
    """Of the receiver whose lines of JSON these are.

    Messages that were `dropped` on the way to it, losses that it `told` (`unknown`: of unknown size), those that its
    advisories came to (`advised`), and those that `show_loss` counts (`shown`; -1: nobody asked); messages that `came`,
    that were `missing` although nobody dropped them, came `twice`, or that nobody sent (`foreign`); `misjudged`:
    publishers of whom another number was told than dropped.
    """
    told: Counter[str] = Counter()
    came: Counter[tuple[str, str]] = Counter()
    advised = unknown = 0
    for line in path.read_bytes().splitlines():
        said = msgspec.json.decode(line)
        if "advisory" in said:
            advised += said["advisory"]["lost"]
        elif "payload" in said:
            came[said["from"], said["payload"]] += 1
            lost = said.get("lost", 0)
            unknown += lost == "unknown"
            told[said["from"]] += 1 if lost == "unknown" else lost
    dropped = Counter(one.publisher for one in passed if not one.copies)
    handed = {(one.publisher, one.payload) for one in passed if one.copies}
    return {
        "receiver": path.stem,
        "dropped": dropped.total(),
        "told": told.total(),
        "unknown": unknown,
        "advised": advised,
        "unadvised": abs(advised - told.total()),
        "shown": shown,
        "unshown": shown not in (-1, told.total()),
        "came": came.total(),
        "missing": len(handed - came.keys()),
        "twice": came.total() - len(came),
        "foreign": len(came.keys() - handed),
        "misjudged": ", ".join(sorted(who for who in {*told, *dropped} if told[who] != dropped[who])),
    }
