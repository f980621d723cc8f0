"""Stage: what a scenario over real processes says: publish, join, leave, kill, wait until; and what came of it.

Times of the group are a tenth of the defaults; `CALM` where nobody is to be given up, however slow the machine is.
Nothing here sleeps for a condition: it waits until it holds.
"""

import asyncio
import time
from collections import Counter
from itertools import pairwise

from carried_workload import TENTH, write_times

from statemachines.demo.shared_subscriptions import account
from statemachines.drivers.lives import begin_log
from statemachines.drivers.shared_subscriptions import consumer_file
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore
from statemachines.shared_subscriptions.group_store import Scan
from statemachines.shared_subscriptions.names import record_name
from statemachines.testing.process_harness import free_port
from statemachines.testing.shared_subscriptions.nodes import GroupHarness
from statemachines.trace import fault_row
from statemachines.trace.log import kill_row, read_logs
from statemachines_reports.pipeline import analyze

SUBSCRIPTION = "$shared/g/#"
CALM = {"validity_ms": 600_000, "ping_timeout_ms": 540_000, "revoke_timeout_ms": 600_000, "claim_ttl_ms": 600_000}
"""Nobody expires, nothing is taken from anybody who has not answered: what comes twice has no excuse."""

LEADER, ONE, TWO, THREE, FOUR = "leader-1", "consumer-1", "consumer-2", "consumer-3", "consumer-4"


class Stage:
    """A store, a leader host, consumers with files of their own, and all that was published, by topic."""

    def __init__(self, folder, **times):
        config = write_times(folder, {**TENTH, **times})
        self.trace = folder / "trace"
        self.nodes = GroupHarness(folder / "nodes", config=config, trace=self.trace)
        self.nemesis = begin_log(self.trace, "nemesis~1")
        self.publishers = 1
        self.folder = folder
        self.published = {}
        self.files = {}
        self.blows = []
        self.leader = ""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, where):
        wrong = self.nodes.close()
        self.nemesis.close()
        if kind is None:
            assert wrong == [], wrong
            broken = self.judged()
            assert broken == [], broken

    def judged(self):
        """What does not hold by the logs of all nodes: every step, and what was delivered, by whom and when."""
        analysis = analyze(self.trace, self.folder / "report", spark=False)
        assert {check.name for check in analysis.checks} >= {"rows", "exclusivity", "duplicates", "acknowledged"}
        assert {check.name for check in analysis.checks if not check.checked} <= {"faults", "replay"}, "may have none"
        assert analysis.absent == []
        broken = [(check.name, check.wrong) for check in analysis.checks if not check.held]
        return broken and [*broken, *analysis.tables["findings"]]

    # -- what happens -------------------------------------------------------------------------------------------

    def lead(self, *more):
        """A leader host; one that comes back listens where it did."""
        self.leader = self.nodes.leader(LEADER, *more, listen=self.leader or f"127.0.0.1:{free_port()}").address

    def join(self, name, *more, work_ms=2, batch=5, leader=None):
        """A consumer."""
        self.files[name] = self.folder / f"{name}.jsonl"
        arguments = ("--out", str(self.files[name]), "--work-ms", str(work_ms), "--batch", str(batch), *more)
        self.nodes.consumer(name, SUBSCRIPTION, leader or self.leader, *arguments)

    def leave(self, name):
        """It says goodbye, and is gone; one that has not begun to live yet could not, and would just die."""
        node = self.nodes.nodes[name]
        self.until(lambda: node.began, f"{name} to begin its life")
        node.terminate()
        assert node.wait() == 0

    def kill(self, name):
        """SIGKILL."""
        self.blow(name)
        killed_ns = time.time_ns()
        self.nodes.kill(name)
        self.nemesis.write([kill_row(killed_ns, name, self.trace)])

    def blow(self, name):
        """What the node has in hand may come again, to others."""
        self.blows.append(account.Blow(time.time_ns(), "" if name.startswith("leader") else name))

    def note(self, fault, name):
        """What is done to a node, for the judges."""
        if fault in ("pause", "partition", "cut"):
            self.blow(name)
        self.nemesis.write([fault_row(time.time_ns(), name, fault)])

    def publish(self, *topics, count=1):
        """`count` more messages to each topic."""
        asyncio.run(self._publish(topics, count))

    async def _publish(self, topics, count):
        self.publishers += 1
        async with Publisher(self.nodes.store, trace=self.trace, number=self.publishers) as publisher:
            for topic in topics:
                messages = self.published.setdefault(topic, [])
                more = [f"{topic} {len(messages) + number}".encode() for number in range(count)]
                messages += more
                await publisher.publish(topic, more)

    def publish_slowly(self, topics, count, rate):
        """A publisher process: `count` messages to each topic, `rate` a second in all."""
        folder = self.folder / "input"
        folder.mkdir()
        for topic in topics:
            assert topic not in self.published
            self.published[topic] = [f"{topic} {number}".encode() for number in range(count)]
            (folder / topic).write_bytes(b"".join(line + b"\n" for line in self.published[topic]))
        self.nodes.publisher("publisher-2", "--input", str(folder), "--rate", str(rate), "--batch", "5")

    # -- what is waited for -------------------------------------------------------------------------------------

    def until(self, holds, what, *, load=()):
        """Wait; meanwhile one more message to each topic of `load`, again and again."""

        def held():
            if holds():
                return True
            if load:
                self.publish(*load)
            return False

        self.nodes.until(held, what)

    def until_done(self):
        """All that was published is acknowledged."""
        self.until(lambda: self.acked() >= self.total(), f"{self.total()} messages to be acknowledged")

    def until_serving(self, *names, load):
        """Each of them gets messages from now on."""
        before = {name: len(self.got(name)) for name in names}
        everybody = f"messages for {', '.join(names)}"
        self.until(lambda: all(len(self.got(name)) > before[name] for name in names), everybody, load=load)

    # -- what came of it ----------------------------------------------------------------------------------------

    def total(self):
        """How much was published."""
        return sum(len(messages) for messages in self.published.values())

    def acked(self):
        """How many different messages are acknowledged."""
        return account.count_acknowledged(self.files)

    def got(self, name):
        """The messages it was handed, in order."""
        return [line for line in consumer_file.read_file(self.files[name]) if line.what == consumer_file.GOT]

    def owners(self, since):
        """Topic -> who got messages of it since; `since`: name -> how many it had got before."""
        owners = {}
        for name in self.files:
            for line in self.got(name)[since.get(name, 0) :]:
                owners.setdefault(line.stream.partition("/")[2], set()).add(name)
        return owners

    def marks(self):
        """How many messages each has got so far."""
        return {name: len(self.got(name)) for name in self.files}

    def twice(self):
        """(stream, offset) of what was got more than once, by anybody."""
        times = Counter((line.stream, line.offset) for name in self.files for line in self.got(name))
        return sorted(message for message, count in times.items() if count > 1)

    def wrong(self):
        """What does not hold, by the consumers' own files: content, order, gaps, and repetition without a reason."""
        return account.check(self.published, self.files, [*self.blows, *self.lapses()]).wrong

    def lapses(self):
        """Consumers whose lease ended by their own logs, for whatever reason: that too excuses what comes again.  One
        that got no processor time may write that down long after, so it counts from the step before."""
        logs = [log for log in read_logs(self.trace) if log.head.node in self.files]
        return [
            account.Blow(before[0], log.head.node)
            for log in logs
            for before, row in pairwise(log.rows)
            if (row[4], row[5]) == ("timer", "lease_end")
        ]

    def committed(self):
        """Topic -> progress that the group store keeps."""

        async def scan():
            store = SqliteGroupStore(self.nodes.store)
            try:
                (answer,) = await store.ask(Scan(1, "", "", 10_000))
            finally:
                await store.close()
            return {
                record_name(key).stream.partition("/")[2]: stored.value
                for key, stored in answer.records
                if record_name(key).stream
            }

        return asyncio.run(scan())


def topics(count):
    """t0, t1 and so on."""
    return [f"t{number}" for number in range(count)]
