"""A run of a group with real processes that are killed, stopped, replaced, cut off and lied to, over a store that is
locked, on hosts whose wall clocks step; `groups_judge` says what came of it, and shares nothing with what it judges.

    python tests/real/groups_run.py --first 7 --runs 3 --faults 8
    python tests/real/groups_run.py --runs 3 --store postgresql://USER@HOST/DATABASE   (its group's tables are emptied)
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from stage import TENTH  # noqa: E402

from tests.real.groups_judge import Blow, acknowledged, judge, twice  # noqa: E402
from tests.real.outside import Stranger, gapless  # noqa: E402
from tests.real.relay import Relay  # noqa: E402

TOPICS, LINES, RATE = 6, 80, 120
LEADERS, CONSUMERS = ("leader-1", "leader-2"), ("consumer-1", "consumer-2", "consumer-3")
END = 2**63 - 1
PATIENCE_S = 90
KINDS = ("kill", "stop", "stop", "replace", "cut", "silence", "step", "lock", "lie")
"""What goes wrong, as often as it stands here."""
SUPERSEDED = 4
FRESH_S = 5
"""A process that was begun so lately may not know yet what to do about SIGTERM; nor may one, on a busy machine, that
has not taken the number of its life."""


class Run:
    """Two leader hosts, three consumers, a publisher; what was done to them, and what is left."""

    def __init__(self, folder, store, seed, times):
        self.folder, self.store = folder, store
        self.chance = random.Random(seed)
        self.done = Counter()
        self.blows, self.wrong, self.children = [], [], []
        self.of, self.begun = {}, {}
        self.ports = {name: free_port() for name in LEADERS}
        self.config = folder / "group.toml"
        self.config.write_text("".join(f"{key} = {value}\n" for key, value in times.items()))
        self.seed = seed
        self.topics = {
            f"t{topic}": [f"{seed} {topic} {line}".encode() for line in range(LINES)] for topic in range(TOPICS)
        }

    # -- processes ----------------------------------------------------------------------------------------------

    def start(self, name, *arguments, ahead=None):
        """A process under this name; what it says goes on in one file."""
        module = (
            ["-m", "statemachines"] if ahead is None else [str(Path(__file__).with_name("stepped_clock.py")), ahead]
        )
        with (self.folder / f"{name}.log").open("ab") as log, (self.folder / f"{name}.out").open("ab") as out:
            command = [sys.executable, *map(str, (*module, "node", *arguments))]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        self.children.append(child)
        self.of[name] = child
        self.begun[name] = time.time()
        return child

    def lead(self, name):
        ahead = self.folder / f"{name}.ahead"
        if not ahead.exists():
            ahead.write_text("0")
        peers = ",".join(f"127.0.0.1:{port}" for other, port in self.ports.items() if other != name)
        listen = ("--listen", f"127.0.0.1:{self.ports[name]}", "--peers", peers)
        self.start(name, "leader", *self.common(name), *listen, ahead=ahead)

    def consume(self, name):
        first, second = (self.ports[leader] for leader in LEADERS)
        ports = {CONSUMERS[0]: [self.relay.port, second], CONSUMERS[1]: [first, second], CONSUMERS[2]: [second, first]}[
            name
        ]
        leaders = ("--leader", ",".join(f"127.0.0.1:{port}" for port in ports))
        out = ("--out", self.folder / f"{name}.jsonl", "--work-ms", "5", "--batch", "5")
        self.start(name, "consumer", "$shared/g/#", *self.common(name), *leaders, *out)

    def common(self, name):
        return ("--store", self.store, "--config", self.config, "--state", self.folder, "--name", name)

    def until_said(self, name, words, times, where="log"):
        """It has logged (or printed) them so often."""
        end = time.monotonic() + PATIENCE_S
        while (self.folder / f"{name}.{where}").read_text().count(words) < times:
            assert time.monotonic() < end, f"{name} did not say {words!r}"
            time.sleep(0.02)

    def end(self):
        """Everybody in good order; who does not end, or ends otherwise, is wrong."""
        for name in (*CONSUMERS, *LEADERS):
            child = self.of[name]
            fresh = (-signal.SIGTERM,) if self.is_fresh(name) else ()
            child.send_signal(signal.SIGTERM)
            try:
                code = child.wait(30)
            except subprocess.TimeoutExpired:
                self.wrong.append(f"{name} did not end within 30 s")
                continue
            if code not in (0, *fresh):
                self.wrong.append(f"{name} ended with {code}")
        for path in self.folder.glob("*.log"):
            if "Traceback" in path.read_text(errors="replace"):
                self.wrong.append(f"{path.name} has an error that nobody expected")

    def is_fresh(self, name):
        life = self.folder / f"{name}.life"
        lives = life.exists() and life.stat().st_mtime > self.begun[name]
        return not lives or time.time() - self.begun[name] < FRESH_S

    def __enter__(self):
        self.relay = Relay(self.ports[LEADERS[0]])
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        self.relay.__exit__()

    # -- what goes wrong ----------------------------------------------------------------------------------------

    def hurt(self):
        """One fault, of any kind."""
        kind = self.chance.choice(KINDS)
        getattr(self, kind)()
        self.done[kind] += 1

    def again(self, name):
        (self.lead if name in LEADERS else self.consume)(name)

    def kill(self):
        name = self.chance.choice(LEADERS + CONSUMERS)
        self.of[name].kill()
        self.of[name].wait()
        self.again(name)

    def stop(self):
        """Up to beyond the end of a claim (1.5 s) and of every lease."""
        name = self.chance.choice(LEADERS + CONSUMERS)
        child, begin = self.of[name], time.time_ns()
        child.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.choice([0.1, 0.4, 1.0, 2.5]))
        child.send_signal(signal.SIGCONT)
        self.blows.append(Blow(name, begin, time.time_ns()))

    def replace(self):
        """Another process under the name of one that lives, which is told so and ends."""
        name = self.chance.choice(CONSUMERS)
        before = self.of[name]
        self.again(name)
        both = (before, self.of[name])
        end = time.monotonic() + 30
        while time.monotonic() < end and all(one.poll() is None for one in both):
            time.sleep(0.02)
        codes = [one.poll() for one in both]
        if sorted(codes, key=str) != sorted([SUPERSEDED, None], key=str):
            self.wrong.append(f"{name} was replaced, and then the two had ended with {codes}")
        # Of two that begin at once either may be the one that takes the name later.
        self.of[name] = both[1] if codes[1] is None else before

    def cut(self):
        self.relay.cut()

    def silence(self):
        self.relay.open.clear()
        time.sleep(self.chance.uniform(0.1, 1.5))
        self.relay.open.set()

    def step(self):
        """The wall clock of a leader host is set."""
        self.set_clock(self.chance.choice(LEADERS), self.chance.choice([-86_400, -60, -20, 0, 20, 60, 86_400]))

    def set_clock(self, name, seconds):
        """So far ahead of the true time."""
        ahead = self.folder / f"{name}.ahead"
        written = ahead.with_suffix(".new")
        written.write_text(str(seconds))
        os.replace(written, ahead)

    def lock(self):
        """Somebody stops inside a transaction that has everything locked; or PostgreSQL stands still."""
        seconds = self.chance.choice([0.2, 1.0, 2.5])
        if self.store.startswith("postgresql"):
            import psycopg
            from still import standing_still

            if self.chance.random() < 0.5:
                with standing_still(self.store):
                    time.sleep(seconds)
                return
            with contextlib.suppress(psycopg.Error), psycopg.connect(self.store) as connection:
                connection.execute("SET lock_timeout = '3s'")
                connection.execute("LOCK TABLE gapless.group_records, gapless.messages IN ACCESS EXCLUSIVE MODE")
                time.sleep(seconds)
            return
        connected = contextlib.closing(sqlite3.connect(self.store, timeout=3, isolation_level=None))
        with connected as connection, contextlib.suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")

    def lie(self):
        """A stranger takes part, and says of whatever it is granted that all of it, and more, has been read."""
        life = f"liar-{self.chance.getrandbits(32)}~1"
        port = self.ports[self.chance.choice(LEADERS)]
        with contextlib.suppress(OSError), Stranger(port, life, store=self.identity()) as liar:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                liar.say(f"{life}/1", "leader", "leader_wanted", f"{life}/1", "g", "#")
                heard = liar.hear("leader_connect_response", "grant", seconds=0.3)
                if heard is not None and heard[3][0] == "grant":
                    _, borrower, epoch, registration, stream, grant, *_ = heard[3]
                    word = self.chance.choice([2**62, END, LINES + 1])
                    about = (borrower, epoch, registration, stream, grant, word, True)
                    liar.say(f"{life}/1", heard[0], "update_progress", *about)

    def identity(self):
        """Of the store, as anybody hears it in a hello."""
        if self.store.startswith("postgresql"):
            import psycopg

            with psycopg.connect(self.store) as connection:
                return str(connection.execute("SELECT identity FROM gapless.store").fetchone()[0])
        with contextlib.closing(sqlite3.connect(self.store)) as connection:
            return connection.execute("SELECT identity FROM store").fetchone()[0]

    # -- what came of it ----------------------------------------------------------------------------------------

    def lines(self, name):
        """(what, stream, grant, offset, digest, owner, when) of each line that is whole."""
        path = self.folder / f"{name}.jsonl"
        data = path.read_bytes() if path.exists() else b""
        found = []
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            with contextlib.suppress(msgspec.DecodeError):  # cut by the death of its writer
                found.append(msgspec.json.decode(line))
        return found

    def all_lines(self):
        return {name: self.lines(name) for name in CONSUMERS}

    def judge(self):
        """What is wrong, in words, and how many messages came again."""
        lines = self.all_lines()
        return [*self.wrong, *judge(self.topics, lines, self.blows)], twice(lines)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def begin(run):
    """Everybody, and the publisher, whose process it gives back.  The first leader host leads, and the second follows,
    since one consumer asks that one first."""
    given = ("--store", run.store, "--start", "beginning", "--config", run.config)
    gapless("group", "declare", "$shared/g/#", *given, check=True)
    run.lead(LEADERS[0])
    for name in CONSUMERS[:2]:
        run.consume(name)
    run.until_said(LEADERS[0], "leads it, under epoch 1", 1)
    run.lead(LEADERS[1])
    run.until_said(LEADERS[1], "listening on", 1, "out")
    run.consume(CONSUMERS[2])
    run.until_said(LEADERS[0], " is a member", len(CONSUMERS))
    (run.folder / "input").mkdir()
    for topic, lines in run.topics.items():
        (run.folder / "input" / topic).write_bytes(b"".join(line + b"\n" for line in lines))
    paced = ("--input", run.folder / "input", "--rate", RATE, "--batch", "5", "--state", run.folder)
    return run.start("publisher", "publisher", "--store", run.store, *paced)


def finish(run, publisher):
    """All that was published, or as much as comes; then everybody ends."""
    if publisher.wait(PATIENCE_S):
        run.wrong.append("the publisher failed")
    end = time.monotonic() + PATIENCE_S
    while len(acknowledged(run.all_lines())) < TOPICS * LINES and time.monotonic() < end:
        time.sleep(0.1)
    run.end()


def play(folder, store, seed, faults):
    """One run: what was done, what is wrong, and how many messages came twice."""
    with Run(folder, store, seed, TENTH) as run:
        publisher = begin(run)
        for _ in range(faults):
            time.sleep(run.chance.uniform(0.1, 0.6))
            run.hurt()
        finish(run, publisher)
        return run.done, *run.judge()


def main():
    """Runs of some seeds; 1: something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="seeds")
    parser.add_argument("--faults", type=int, default=8, help="faults in a run")
    parser.add_argument("--store", default="", help="URL of PostgreSQL; a file of SQLite otherwise")
    given = parser.parse_args()
    failed = 0
    for seed in range(given.first, given.first + given.runs):
        folder = Path(tempfile.mkdtemp(prefix=f"groups-{seed}-"))
        if given.store:
            import psycopg

            with psycopg.connect(given.store, autocommit=True) as connection:
                connection.execute("DROP SCHEMA IF EXISTS gapless CASCADE")
        done, wrong, again = play(folder, given.store or str(folder / "messages.db"), seed, given.faults)
        said = f"{TOPICS * LINES} messages, {again} came again, {len(wrong)} wrong; {folder}"
        print(f"seed {seed}: {dict(sorted(done.items()))}, {said}", flush=True)
        for what in wrong:
            print(f"  {what}")
        failed += bool(wrong)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
