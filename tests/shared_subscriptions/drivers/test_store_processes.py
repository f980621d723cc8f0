"""Several processes on one database: one of them wins, and a SIGKILL takes nothing that was answered for."""

from __future__ import annotations

import asyncio

import pytest
from store_programs import OPEN, process, tell

from statemachines.shared_subscriptions.group_store import Claim, Read
from statemachines.shared_subscriptions.stream_store import Fetch, Slice, stream_id

KEYS = tuple(f"k{part}" for part in range(5))
BATCH = 20
"""Messages of one append; 2 kB each, so that an append fills many pages."""


# Each line is an epoch: read the claim, say so, wait for the word, then try to be the next leader.
CLAIM = (
    OPEN
    + """
async def main():
    groups, streams = open_both()
    for line in sys.stdin:
        (read,) = await groups.ask(Read(1, ("claim",)))
        print("read", flush=True)
        sys.stdin.readline()
        claim = Claim(sys.argv[2], int(line))
        (answer,) = await groups.ask(Commit(2, (("claim", read.records[0]),), (("claim", claim),)))
        print(type(answer).__name__, flush=True)

asyncio.run(main())
"""
)


def test_of_three_processes_exactly_one_wins_each_epoch(new_database):
    store, url = new_database.groups(), new_database.url
    with process(CLAIM, url, "a") as a, process(CLAIM, url, "b") as b, process(CLAIM, url, "c") as c:
        for epoch in range(1, 21):
            for child in (a, b, c):
                tell(child, epoch)
            assert [child.stdout.readline() for child in (a, b, c)] == ["read\n"] * 3
            for child in (a, b, c):
                tell(child, "go")
            answers = [child.stdout.readline().strip() for child in (a, b, c)]
            assert sorted(answers) == ["Committed", "Refused", "Refused"]
            (read,) = asyncio.run(store.ask(Read(1, ("claim",))))
            assert read.records[0].value == Claim("abc"[answers.index("Committed")], epoch)
    asyncio.run(store.close())


# Goes on from what is in the store.  Each number is committed in all keys, then appended as a batch, then acknowledged.
WRITE = (
    OPEN
    + """
async def main():
    groups, streams = open_both()
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
)


async def look(database):
    """The numbers in the keys, and those of the batches that were appended; each batch is whole."""
    groups, streams = database.groups(), database.streams()
    (read,) = await groups.ask(Read(1, KEYS))
    numbers, first, more = [], 0, True
    while more:
        fetched, (payloads,) = await streams.fetch(Fetch(1, (Slice(stream_id("t", 4, 0), 1, first, 100 * BATCH),)))
        assert fetched.batches[0].last == first + len(payloads) - 1
        assert len(payloads) % BATCH == 0
        for begin in range(0, len(payloads), BATCH):
            assert len(set(payloads[begin : begin + BATCH])) == 1
            numbers.append(int(payloads[begin][0][:8]))
        first += len(payloads)
        more = bool(payloads)
    await groups.close()
    await streams.close()
    return [stored.value for stored in read.records], numbers


@pytest.mark.parametrize(
    ("new_database", "kills"),
    [("sqlite", 4), *(pytest.param(kind, 10, marks=pytest.mark.long) for kind in ("sqlite", "postgres"))],
    indirect=["new_database"],
)
def test_a_sigkill_loses_nothing_that_was_acknowledged_and_leaves_nothing_half_written(new_database, kills):
    acknowledged = []
    for kill in range(kills):
        with process(WRITE, new_database.url) as child:
            lines = [child.stdout.readline() for _ in range(3 + 2 * kill)]
            child.kill()
            lines += child.stdout.read().splitlines(keepends=True)
        acknowledged += [int(line) for line in lines if line.endswith("\n")]
        assert len(acknowledged) >= 3
        values, appended = asyncio.run(look(new_database))
        assert len(set(values)) == 1, "a commit is there in all its keys or in none"
        assert values[0] >= acknowledged[-1]
        assert set(acknowledged) <= set(appended)
        assert appended == sorted(set(appended))
        assert len(set(range(1, values[0] + 1)) - set(appended)) <= kill + 1, "at most one batch a kill is not there"


# Appends as many batches of one topic as it is told to.
APPEND = (
    OPEN
    + """
async def main():
    groups, streams = open_both()
    print("ready", flush=True)
    for _ in range(int(sys.stdin.readline())):
        appended = await streams.append("t", [sys.argv[2].encode()] * 3)
        print(appended.first, flush=True)

asyncio.run(main())
"""
)


def test_processes_that_append_to_one_topic_share_its_offsets(new_database):
    url = new_database.url
    with process(APPEND, url, "a") as a, process(APPEND, url, "b") as b:
        assert [child.stdout.readline() for child in (a, b)] == ["ready\n"] * 2
        for child in (a, b):
            tell(child, 40)
        firsts = [[int(line) for line in child.stdout] for child in (a, b)]
        assert [child.wait() for child in (a, b)] == [0, 0]
    assert sorted(firsts[0] + firsts[1]) == list(range(0, 240, 3))
    store = new_database.streams()
    _, (payloads,) = asyncio.run(store.fetch(Fetch(1, (Slice(stream_id("t", 4, 0), 1, 0, 240),))))
    for name, mine in zip((b"a", b"b"), firsts, strict=True):
        assert all(payloads[first : first + 3] == [(name, None)] * 3 for first in mine)
    asyncio.run(store.close())
