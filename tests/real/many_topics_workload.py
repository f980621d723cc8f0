"""Many topics: a real group starts on all of them at once, beside processes that keep the machine busy.

    python tests/real/run.py many_topics --topics 70000 --busy 4 --hosts 2

Leader hosts and a member find so many topics with a message each.  When half of the messages are acknowledged a second
member joins, which is given half of the streams; then one topic in ten gets another message.  Every message must be
acknowledged in time, and the second member must get some of them; what was delivered twice is counted, and so is how
often a claim was taken, and renewed late.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from typing import ClassVar

from faults import FAULTS
from workload import Workload

from statemachines.demo.shared_subscriptions.account import count_acknowledged
from statemachines.drivers.shared_subscriptions import consumer_file
from statemachines.drivers.shared_subscriptions.sqlite import SqliteStreamStore
from statemachines.testing.process_harness import free_port
from statemachines.testing.shared_subscriptions.nodes import GroupHarness

SUBSCRIPTION = "$shared/many/#"
AGAIN = 10
"""One topic in so many gets a second message."""
PATIENCE_S = 600.0
LOOK_S = 0.5


class ManyTopicsWorkload(Workload):
    """`busy`: processes that compute all the time; `hosts`: leader hosts that know each other."""

    options: ClassVar = {"topics": 70_000, "busy": 2, "hosts": 1}

    @contextlib.asynccontextmanager
    async def open(self):
        self.files = {name: self.folder / f"{name}.jsonl" for name in ("consumer-1", "consumer-2")}
        with GroupHarness(self.folder) as self.harness:
            await self.publish(1, b"first")
            self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(self.hosts)]
            self.leaders = []
            for number, address in enumerate(self.addresses, 1):
                others = [other for other in self.addresses if other != address]
                peers = ("--peers", ",".join(others)) if others else ()
                self.leaders.append(self.harness.leader(f"leader-{number}", *peers, listen=address))
            async with FAULTS["busy"](self.busy):
                self.began = time.monotonic()
                yield
        self.wrong += self.harness.wrong

    async def publish(self, every, text):
        """A message to one topic in `every`."""
        streams = SqliteStreamStore(self.harness.store)
        for number in range(0, self.topics, every):
            await streams.append(f"t/{number:06}", [text])
        await streams.close()

    def until(self, count, what, counted=None):
        """Seconds since the first member was started, when so many are acknowledged (or `counted`); raises
        `HarnessError` if it does not come."""

        def look():
            time.sleep(LOOK_S)
            return (counted or self.count_acknowledged)() >= count

        self.harness.until(look, what, PATIENCE_S)
        return round(time.monotonic() - self.began, 1)

    def count_acknowledged(self):
        return count_acknowledged(self.files)

    def count_granted(self):
        """How many streams the leader host has granted, as its log counts them (SS-257)."""
        return sum(int(count) for count in re.findall(r"streams moved: (\d+) granted", self.read_log()))

    def read_log(self):
        return "".join(one.read_log() for one in self.leaders)

    def join(self, name):
        self.harness.consumer(name, SUBSCRIPTION, ",".join(self.addresses), "--out", str(self.files[name]))

    async def finish(self):
        """Until the first message, one of each topic, and half of the streams moved; and some more messages."""
        topics, more = self.topics, len(range(0, self.topics, AGAIN))
        self.join("consumer-1")
        self.first_s = self.until(1, "the first message")
        self.until(topics / 2, "half of the messages")
        self.join("consumer-2")
        self.all_s = self.until(topics, f"all {topics} messages")
        self.shared_s = self.until(topics + topics // 2, "half of the streams moved", self.count_granted)
        await self.publish(AGAIN, b"second")
        self.messages = topics + more
        self.until(self.messages, f"{more} more messages")
        self.log = self.read_log()

    def judge(self):
        lines = [line for path in self.files.values() for line in consumer_file.read_file(path)]
        self.got = Counter((one.stream, one.offset) for one in lines if one.what == consumer_file.GOT)
        second = consumer_file.read_file(self.files["consumer-2"])
        self.second = sum(one.what == consumer_file.ACK for one in second)
        wrong = [] if self.second else ["the second member got nothing"]
        if len(self.got) != self.messages:
            wrong.append(f"{len(self.got)} of {self.messages} messages were delivered")
        return self.wrong + wrong

    def tally(self):
        """`elected`: so often a host took the claim; `late`: so often it was renewed late, and `latest_s` after the
        time before; seconds until the first message, one of each topic, and half of the streams moved."""
        late = [float(seconds) for seconds in re.findall(r"renewed its claim late, (\S+) s", self.log)]
        elected = self.log.count("leads it, under epoch")
        claims = {"elected": elected, "late": len(late), "latest_s": max(late, default=0.0)}
        twice = self.got.total() - len(self.got)
        seconds = {"first_s": self.first_s, "all_s": self.all_s, "shared_s": self.shared_s}
        return {"messages": len(self.got), "twice": twice, "second": self.second, **claims, **seconds}
