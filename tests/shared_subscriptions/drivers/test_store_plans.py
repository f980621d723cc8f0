"""Every statement of the stores of groups finds its rows by a key: nothing costs more for what is stored."""

from __future__ import annotations

import asyncio
import uuid

from statement_plans import Access, watched

from statemachines.drivers.message_head import encode_head, make_head
from statemachines.drivers.shared_subscriptions import postgres, sqlite
from statemachines.shared_subscriptions.dead_letter import DeadLetter, StoreLetter
from statemachines.shared_subscriptions.group_store import Commit, Read, Scan
from statemachines.shared_subscriptions.stream_store import Fetch, ListStreams, Measure, Slice

ONE_ROW = ("store",)

BOUNDED = {
    Access("messages", (), "place"): "a slice that is fetched (SLICE_MAX, 16 MiB), or what is dropped",
    Access("appends", ("stream",)): "those of a stream that is dropped",
    (Access("streams", (), "id"), "min(id)"): "the first of them",
    (Access("streams", (), "id"), "SET ended"): "those that end with their generation",
    (Access("streams", (), "id"), "SELECT number FROM"): "those that are dropped with their generation",
}
"""What is read by less than a whole key -> why that is few."""

PAGED = {
    Access("group_records", (), "key"),
    Access("streams", (), "id"),
    Access("appends", ("stream",), "time_ns"),
}
"""What is read in pages, in the order of its key, from a place on."""


async def drive(database):
    """Every request that there is, so that each statement is asked."""
    groups, streams = database.groups(), database.streams()
    try:
        await groups.ask(Commit(1, (), (("/1.1/g/#:progress:a", 1), ("x", 2))))
        await groups.ask(Commit(2, (("x", None),), (("x", 3),)))
        await groups.ask(Commit(3, (), (("x", None),)))
        await groups.ask(Read(4, ("x", "/1.1/g/#:progress:a")))
        await groups.ask(Scan(5, "/1.1/g/#:", "", 1))
        first = await streams.append("a/b", [b"1", b"2"])
        await streams.append("a/b", [b"3"], [encode_head(make_head(key=b"k"))])
        await streams.append("c", [b"4"])
        await streams.ask(ListStreams(6, "a/#", 0, "", 10))
        await streams.ask(Measure(7, (first.stream,)))
        await streams.fetch(Fetch(8, (Slice(first.stream, 1, 0, 10),)))
        for letter in (DeadLetter("g", "#", first.stream, 0, 1, ""),) * 2:
            await streams.ask(StoreLetter(9, "dead", letter))
        await streams.end(first.stream)
        await streams.rotate()
        await streams.append("a/b", [b"5"])
        await streams.drop(1, force=True)
        await streams.drop(1)
        if database.kind == "postgres":  # an append whose connection was lost looks whether it was committed
            attempt = postgres.stream_store.Attempt(uuid.uuid4(), stream=1, time_ns=1)
            await streams._database.run(lambda: streams._was_committed(attempt, None))
    finally:
        await groups.close()
        await streams.close()


def test_SS_304_no_statement_of_the_stores_of_groups_reads_what_grows(new_database):
    """On both databases, as each says itself that it would find the rows."""
    with watched() as plans:
        asyncio.run(drive(new_database))
    package = sqlite if new_database.kind == "sqlite" else postgres
    assert plans.never_asked(package.group_store, package.stream_store) == []
    assert plans.unbounded(ONE_ROW, BOUNDED, PAGED) == {}
