"""Several processes on one database: one of them wins, and a SIGKILL takes nothing that was answered for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import contextmanager

from statemachines.drivers.sqlite import SqliteGroupStore, SqliteStreamStore
from statemachines.shared_subscriptions.group_store import Claim, Read
from statemachines.shared_subscriptions.stream_store import Fetch, Slice, stream_id

KEYS = tuple(f"k{part}" for part in range(5))
BATCH = 20
"""Messages of one append; 2 kB each, so that an append fills many pages."""


@contextmanager
def process(program, *arguments):
    """A Python process that is spoken to by lines, and gone afterwards."""
    child = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def tell(child, line):
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


# Each line is an epoch: read the claim, say so, wait for the word, then try to be the next leader.
CLAIM = """
import asyncio, sys
from statemachines.drivers.sqlite import SqliteGroupStore
from statemachines.shared_subscriptions.group_store import Claim, Commit, Read

async def main():
    store = SqliteGroupStore(sys.argv[1], busy_s=60)
    for line in sys.stdin:
        (read,) = await store.ask(Read(1, ("claim",)))
        print("read", flush=True)
        sys.stdin.readline()
        claim = Claim(sys.argv[2], int(line))
        (answer,) = await store.ask(Commit(2, (("claim", read.records[0]),), (("claim", claim),)))
        print(type(answer).__name__, flush=True)
    await store.close()

asyncio.run(main())
"""


def test_of_two_processes_exactly_one_wins_each_epoch(tmp_path):
    path = str(tmp_path / "x.db")
    store = SqliteGroupStore(path)
    with process(CLAIM, path, "a") as a, process(CLAIM, path, "b") as b:
        for epoch in range(1, 61):
            for child in (a, b):
                tell(child, epoch)
            assert [child.stdout.readline() for child in (a, b)] == ["read\n"] * 2
            for child in (a, b):
                tell(child, "go")
            answers = [child.stdout.readline().strip() for child in (a, b)]
            assert sorted(answers) == ["Committed", "Refused"]
            (read,) = asyncio.run(store.ask(Read(1, ("claim",))))
            assert read.records[0].value == Claim("ab"[answers.index("Committed")], epoch)
    asyncio.run(store.close())


# Goes on from what is in the store.  Each number is committed in all keys, then appended as a batch, then acknowledged.
WRITE = """
import asyncio, sys
from statemachines.drivers.sqlite import SqliteGroupStore, SqliteStreamStore
from statemachines.shared_subscriptions.group_store import Commit, Committed, Read

async def main():
    groups, streams = SqliteGroupStore(sys.argv[1]), SqliteStreamStore(sys.argv[1])
    (read,) = await groups.ask(Read(0, ("k0",)))
    number = 0 if read.records[0] is None else read.records[0].value
    while True:
        number += 1
        (answer,) = await groups.ask(Commit(number, (), tuple((f"k{part}", number) for part in range(5))))
        assert isinstance(answer, Committed)
        await streams.append("t", [b"%08d" % number * 250] * 20)
        print(number, flush=True)

asyncio.run(main())
"""


async def look(path):
    """The numbers in the keys, and those of the batches that were appended; each batch is whole."""
    groups, streams = SqliteGroupStore(path), SqliteStreamStore(path)
    (read,) = await groups.ask(Read(1, KEYS))
    numbers, first, more = [], 0, True
    while more:
        fetched, (payloads,) = await streams.fetch(Fetch(1, (Slice(stream_id("t", 4, 0), 1, first, 100 * BATCH),)))
        assert fetched.batches[0].last == first + len(payloads) - 1
        assert len(payloads) % BATCH == 0
        for begin in range(0, len(payloads), BATCH):
            assert len(set(payloads[begin : begin + BATCH])) == 1
            numbers.append(int(payloads[begin][:8]))
        first += len(payloads)
        more = bool(payloads)
    await groups.close()
    await streams.close()
    return [stored.value for stored in read.records], numbers


def test_a_sigkill_loses_nothing_that_was_acknowledged_and_leaves_nothing_half_written(tmp_path):
    path = str(tmp_path / "x.db")
    acknowledged = []
    for kill in range(10):
        with process(WRITE, path) as child:
            lines = [child.stdout.readline() for _ in range(3 + 2 * kill)]
            child.kill()
            lines += child.stdout.read().splitlines(keepends=True)
        acknowledged += [int(line) for line in lines if line.endswith("\n")]
        assert len(acknowledged) >= 3
        values, appended = asyncio.run(look(path))
        assert len(set(values)) == 1, "a commit is there in all its keys or in none"
        assert values[0] >= acknowledged[-1]
        assert set(acknowledged) <= set(appended)
        assert appended == sorted(set(appended))
        assert len(set(range(1, values[0] + 1)) - set(appended)) <= kill + 1, "at most one batch a kill is not there"


# Appends as many batches of one topic as it is told to.
APPEND = """
import asyncio, sys
from statemachines.drivers.sqlite import SqliteStreamStore

async def main():
    store = SqliteStreamStore(sys.argv[1], busy_s=60)
    print("ready", flush=True)
    for _ in range(int(sys.stdin.readline())):
        appended = await store.append("t", [sys.argv[2].encode()] * 3)
        print(appended.first, flush=True)
    await store.close()

asyncio.run(main())
"""


def test_processes_that_append_to_one_topic_share_its_offsets(tmp_path):
    path = str(tmp_path / "x.db")
    with process(APPEND, path, "a") as a, process(APPEND, path, "b") as b:
        assert [child.stdout.readline() for child in (a, b)] == ["ready\n"] * 2
        for child in (a, b):
            tell(child, 100)
        firsts = [[int(line) for line in child.stdout] for child in (a, b)]
        assert [child.wait() for child in (a, b)] == [0, 0]
    assert sorted(firsts[0] + firsts[1]) == list(range(0, 600, 3))
    store = SqliteStreamStore(path)
    _, (payloads,) = asyncio.run(store.fetch(Fetch(1, (Slice(stream_id("t", 4, 0), 1, 0, 600),))))
    for name, mine in zip((b"a", b"b"), firsts, strict=True):
        assert all(payloads[first : first + 3] == [name] * 3 for first in mine)
    asyncio.run(store.close())
