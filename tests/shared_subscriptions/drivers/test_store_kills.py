"""A process killed before every statement that it sends, and before every answer: what was answered for is there, what
was under way is there whole or not at all, and the next process goes on."""

from __future__ import annotations

import asyncio
import copy

import pytest
from store_programs import OPEN, process, tell

from statemachines.shared_subscriptions.group_store import Commit, Committed, Scan
from statemachines.shared_subscriptions.stream_store import Fetch, ListStreams, Slice, stream_id

BIG = 20_000
"""Bytes of a payload that fills several pages."""

# The writes of the run, as the program does them and as a model of plain dictionaries does.
SCRIPT = [
    ("commit", (("claim", 1), ("root", 1))),
    ("append", "a", (b"1", b"2")),
    ("commit", (("claim", 2), ("root", 2), ("progress", 7))),
    ("append", "b", (b"x" * BIG,) * 3),
    ("append", "a", (b"3",)),
    ("end", "b"),
    ("commit", (("root", 3), ("progress", 9))),
]

# Each line is the number of the statement before which a fork of this process dies; says which writes were answered.
RUN = (
    OPEN
    + """
import signal, sqlite3
import psycopg, sqlalchemy.dialects.postgresql.psycopg  # here once, and not in each fork
from sqlalchemy import Engine, event
from statemachines.shared_subscriptions.stream_store import stream_id

left = 0

def one_more(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

class Watched(sqlite3.Connection):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.set_trace_callback(one_more)

def watch(factory):
    return Watched if factory is None else type("WatchedToo", (factory, Watched), {})

async def play():
    plain = sqlite3.connect
    sqlite3.connect = lambda *given, **named: plain(*given, **named | {"factory": watch(named.get("factory"))})
    for name in ("before_cursor_execute", "commit"):
        event.listen(Engine, name, one_more)
    groups, streams = open_both()
    for number, (kind, *arguments) in enumerate(eval(sys.argv[2])):
        if kind == "commit":
            await groups.ask(Commit(number, (), *arguments))
        elif kind == "append":
            await streams.append(*arguments)
        else:
            await streams.end(stream_id(*arguments, 4, 0))
        one_more()
        os.write(1, b"%d\\n" % number)

for line in sys.stdin:
    left = int(line)
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(play())
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    os.write(1, b"killed\\n" if status == signal.SIGKILL else b"done %d\\n" % status)
"""
)


def states():
    """What is in the store before the first write, after it, ...: records, messages by topic, what has ended."""
    state = [{}, {}, set()]
    yield copy.deepcopy(state)
    for kind, *arguments in SCRIPT:
        if kind == "commit":
            state[0].update(arguments[0])
        elif kind == "append":
            state[1].setdefault(arguments[0], []).extend(arguments[1])
        else:
            state[2].add(arguments[0])
        yield copy.deepcopy(state)


async def look(database):
    """What is in the store; and it takes more."""
    groups, streams = database.groups(), database.streams()
    (scanned,) = await groups.ask(Scan(1, "", "", 100))
    (listed,) = await streams.ask(ListStreams(2, "#", 0, "", 100))
    names = [one.stream for one in listed.streams]
    fetched, payloads = await streams.fetch(Fetch(3, tuple(Slice(name, 1, 0, 100) for name in names)))
    payloads = [[payload for payload, _ in one] for one in payloads]
    topics = [name.partition("/")[2] for name in names]
    ended = {topic for topic, batch in zip(topics, fetched.batches, strict=True) if batch.ended}
    found = [{key: stored.value for key, stored in scanned.records}, dict(zip(topics, payloads, strict=True)), ended]
    (answer,) = await groups.ask(Commit(4, tuple(scanned.records), (("more", 1),)))
    assert isinstance(answer, Committed)
    count = len(found[1].get("a", []))
    assert (await streams.append("a", [b"more"])).first == count
    assert await streams.end(stream_id("a", 4, 0)) is None
    await groups.close()
    await streams.close()
    return found


def play(child, number):
    """The answers of a run that dies before its statement `number`; whether it did."""
    tell(child, number)
    lines = []
    while not lines or lines[-1].isdigit():
        lines.append(child.stdout.readline().strip())
    assert lines[-1] in ("killed", "done 0")
    return [int(line) for line in lines[:-1]], lines[-1] == "killed"


@pytest.mark.parametrize("new_database", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True)
def test_a_store_killed_at_every_write_loses_nothing_committed(new_database):
    wanted = list(states())
    reached = []
    with process(RUN, new_database.url, repr(SCRIPT)) as child:
        number, killed = 0, True
        while killed:
            number += 1
            answered, killed = play(child, number)
            assert answered == list(range(len(answered)))
            found = asyncio.run(look(new_database))
            assert found in wanted[len(answered) : len(answered) + 2], number
            reached.append((len(answered), wanted.index(found)))
            new_database.wipe()
            child.stdin.flush()
    assert reached[-1] == (len(SCRIPT), len(SCRIPT)), "the last run was not killed"
    assert {done for done, _ in reached} == set(range(len(SCRIPT) + 1)), "somebody died in every write"
    assert {(done, done + 1) for done in range(len(SCRIPT))} < set(reached), "and after every commit, unanswered"
    assert {(done, done) for done in range(len(SCRIPT))} < set(reached), "and before it"
