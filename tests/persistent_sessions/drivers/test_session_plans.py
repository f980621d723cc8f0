"""Every statement of the session store finds its rows by a key: nothing that it asks costs more for what is stored."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace
from session_databases import SECOND, Clock, connect
from session_moves import queued
from state_changes import change_to
from statement_plans import Access, watched

from statemachines.drivers.identity import Identity
from statemachines.drivers.persistent_sessions import (
    collector_requests,
    group_rows,
    host_requests,
    life_requests,
    machine_requests,
    operator_requests,
    postgres,
    route_rows,
    session_row,
    sql,
    sqlite,
    store,
)
from statemachines.drivers.persistent_sessions.collector_requests import SessionBounds
from statemachines.drivers.persistent_sessions.group_rows import (
    CountWaiting,
    DeclareGroup,
    ForgetGroup,
    ListIdleGroups,
    ReadGroups,
    ReadReturned,
)
from statemachines.drivers.persistent_sessions.host_requests import (
    Beat,
    DropRows,
    Look,
    PutCarried,
    ReadNodes,
    ReadPayloads,
    WatchedSession,
)
from statemachines.drivers.persistent_sessions.life_requests import DropWill, EndWills, FindDueWills, OpenWithWill
from statemachines.drivers.persistent_sessions.machine_requests import ReadPage, StoreRows
from statemachines.drivers.persistent_sessions.node_messages import RetainHandling, SessionWill
from statemachines.drivers.persistent_sessions.operator_requests import (
    DeleteRows,
    DescribeSession,
    KickClient,
    ListSessions,
    PurgeClient,
)
from statemachines.drivers.persistent_sessions.payloads import Payload, SharedOrigin
from statemachines.drivers.persistent_sessions.route_rows import (
    PublisherPacket,
    PutMessage,
    ReadFilters,
    ReadOptions,
    ReadPackets,
    ReadUnfinished,
    ReleasePacket,
    RetainedFull,
    Subscribe,
    SubscribeFront,
    Unsubscribe,
)
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import Map
from statemachines.persistent_sessions import collector_request as collector
from statemachines.persistent_sessions import waiting_messages
from statemachines.persistent_sessions.in_flight_record import TAKEN, InFlightRecord
from statemachines.persistent_sessions.life_request import (
    KeepAlive,
    LeaveSession,
    LockClient,
    OpenSession,
    UnlockClient,
)
from statemachines.persistent_sessions.owner_request import FindOwner
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    ConfirmRows,
    EpochRows,
    Fence,
    LoadSession,
    MarkDelivered,
    PutMarker,
    PutRows,
    ReadPending,
    ReadRow,
    SessionState,
    SubscribeLive,
    UnsubscribeLive,
)

ONE_ROW = ("store", "boot", "turns")

BOUNDED = {
    Access("epochs", ("session",)): "of each writer its epoch, and those that are not read to their end yet",
    Access("epochs", ("session", "writer")): "the same of one writer",
    Access("epochs", ("session", "writer"), "epoch"): "the same of one writer",
    Access("taken", ("session",)): "one of each writer, and a node has one writer",
    Access("packets", ("session",)): "the receive maximum",
    Access("packets", ("session",), "packet"): "the receive maximum",
    Access("packets", ("message",), index="packets_by_message"): "a look whether there is one",
    Access("queued", ("session",)): "Times.queue",
    Access("queued", ("session",), "place"): "Times.queue",
    Access("queued", ("message",), index="queued_by_message"): "a look whether there is one",
    Access("routes", ("session",)): "filters of one session, and 20 000 that are gone (route_rows.FORGET)",
    Access("routes", ("session",), "filter"): "filters of groups of one session",
    Access("routes", (), "version", "routes_by_version"): "changes that a node does not know yet",
    Access("routes", (), "version", "gone_routes"): "those that are deleted by it (route_rows.FORGET)",
    Access("nodes", (), "until_ns", "nodes_by_end"): "nodes that live",
    Access("session_rows", ("message",), index="rows_by_message"): "a look whether there is one; or, of a message that "
    "is deleted, a count of the sessions that it was for",
    Access("session_rows", ("session", "writer"), index="markers"): "a marker takes the place of those before",
    Access("session_rows", ("session", "writer", "epoch", "token", "n"), index="markers"): "the marker that is shown",
    Access("session_rows", ("session", "writer", "epoch"), "number"): "rows that one request marks (MARKS_MAX)",
    Access("session_rows", ("session", "writer", "epoch", "number"), index="marks"): "the mark of one row",
    Access("session_rows", ("session",), "writer"): "a look whether there is one",
    Access("declared_groups"): "shared_group.GROUPS_MAX",
    Access("returned", ("filter",)): "group_rows.RETURNED_MAX",
    Access("returned"): "a look whether there is one",
    Access("returned", index="returned_by_message"): "the same",
    Access("carried", ("filter",)): "streams of a group that has ended, once",
    Access("received", ("session",)): "the receive maximum",
    Access("fan_out", ("message", "session")): "filters of one session that match one message",
    Access("fan_out", ("message",)): "rows of a message that are still to be stored; or a look whether there is one",
    Access("fan_out", ("session",), index="fan_out_by_session"): "rows for one session that are under way",
    Access("fan_out", ("topic",), index="fan_out_by_topic"): "subscriptions of a topic whose retained message comes",
    Access("retained", (), "topic"): "topics that begin as a filter does (route_rows.RETAINED_MAX)",
    Access("retained", (), "until_ns", "retained_by_end"): "those that are over, which are deleted by it",
    Access("wills", ("session",), index="wills_by_session"): "of each connection of a session that was not sent yet",
    Access("nodes", ()): "names of nodes",
}
"""What is read by less than a whole key -> why that is few."""

PAGED = {
    Access("session_rows", ("session", "writer"), "epoch"),
    Access("session_rows", (), "session"),
    Access("messages", (), "time_ns", "messages_by_time"),
    Access("session_rows", ("session", "writer", "epoch"), "number"),
    Access("session_rows", ("session", "writer", "epoch"), "number", "marks"),
    Access("clients", (), "client"),
    Access("clients", (), "client", "clients_alone"),
    Access("sessions", (), "expr", "sessions_left"),
    Access("sessions", (), "client", "sessions_held"),
    Access("fan_out", (), "time_ns", "fan_out_by_time"),
    Access("wills", ("due_ns", "node"), "life", "wills_by_due"),
    Access("wills", (), "due_ns", "wills_by_due"),
}
"""What is read in pages, in the order of its key, from a place on."""

MODULES = (
    collector_requests, group_rows, host_requests, life_requests, machine_requests, operator_requests,
    route_rows, session_row, sql, store,
)  # fmt: skip


async def drive(opened, clock, steady):
    """Every request that there is, so that each statement is asked."""
    ask, do = opened.ask, opened.do
    life = await opened.begin_life("n1", 10_000)
    await opened.begin_life("n2", 10_000)
    session = await connect(opened, "s1", "c", expiry_ms=1)
    token = session.token
    for topic_filter in ("a/+", "b", "$share/g/x"):
        await do(Subscribe("s1", token, topic_filter, 1))
        await do(SubscribeFront("s1", token, topic_filter, 1, 0, RetainHandling.NEVER))
    await do(Unsubscribe("s1", token, "b"))
    for number in range(1, 5):
        await do(PutMessage(f"m{number}", "a/x", b"x", 1, None if number % 2 else 60_000))
    await share(opened)
    await fan_out(opened, life)
    await opened.store_ahead(life, 1, [PutMessage("m9", "a/x", b"x", 1)])
    await do(PutCarried("s1", token, "$share/g/x", (("g1", Payload("x", b"x")),)))
    for writer in ("n1", "n2"):
        await ask(BeginEpoch("s1", writer))
        for number in (1, 2, 3, 3):
            await do(
                StoreRows(PutRows("s1", writer, 1, (queued(number),)), {queued(number).message: Payload("a/x", b"x")})
            )
        await ask(ReadRow("s1", writer, 1, 3))
        await ask(PutMarker("s1", writer, 1, 4, token, 1))
    await do(ReadFilters("s1"))
    await do(ReadOptions("s1"))
    await do(DropRows("s1", "n2", 1, 3, 3))
    await ask(LoadSession("c", "owner", token))
    await ask(SubscribeLive("s1", "owner", token))
    await ask(FindOwner("s1"))
    await ask(ReadPending("s1"))
    await do(ReadPage(ReadPending("s1", "n2", 2, (1, 1)), 1_000))
    await do(ReadPage(Fence("s1", "n2", (1, 0), 0, token, 1, 2), 1_000))
    await ask(ConfirmRows("s1", token, (EpochRows("n2", 1, (queued(1), queued(2))),)))
    packets = Map({1: InFlightRecord(1, "c", queued(1), 0, TAKEN), 2: InFlightRecord(2, "c", queued(2), 1, TAKEN)})
    state = SessionState(Map({"n1": (1, 2)}), packets, (queued(3), queued(4)), 2)
    await ask(CommitState("s1", token, change_to(state)))
    left = SessionState(state.taken, Map({2: packets[2]}), (queued(4),), 2)
    await ask(CommitState("s1", token, change_to(left, state)))
    marks = [MarkDelivered("s1", "n1", 1, number) for number in (1, 2, 3)]
    await opened.carry_out(life, 2, [*marks, Beat("n1", 10_000)])
    await opened.read(life, [ReadNodes(), ReadGroups("s1"), CountWaiting("s1", "a/+", 9)])
    await do(Look("n1", (WatchedSession("s1", token, (("n2", 1, 0),)),)))
    await do(ReadPayloads(("m1", "m2"), 1_000))
    await ask(KeepAlive("c", "s1", token))
    await ask(UnsubscribeLive("s1", token))
    await publish_once(opened, token)
    await retain_beyond(opened, clock, steady)
    await ask(LockClient("c", "other", 1, instance="i", attempt=1))
    await ask(LockClient("c", "third", 1, instance="i", attempt=1))
    await ask(UnlockClient("c", "other"))
    await do(DropRows("s1", "n2", 1, 1, 1))
    await do(ListSessions("", 10))
    await do(DescribeSession("c"))
    await opened.last_commit_ns()
    await collect(opened)
    left = await connect(opened, "s2", "c2")
    await ask(LeaveSession("c2", "s2", left.token, 5))
    await connect(opened, "s3", "c2", clean=True)
    await operate(opened)
    await connect_beyond(opened)
    for one in (clock, steady):
        one.now += 3_600 * SECOND
    await collect(opened)
    clock.now += 3_600 * SECOND  # it leaps
    await ask(KeepAlive("c2", "s3", token))
    await opened.accept_clock()
    await ask(collector.ForgetClient("c", 1))


async def fan_out(opened, life):
    """Two messages for so many sessions that one statement has all their rows."""
    sessions = [f"f{number}" for number in range(machine_requests.SESSIONS_MIN)]
    for session in sessions:
        await connect(opened, session, session)
        await opened.ask(BeginEpoch(session, "n1"))
    rows = [PutRows(one, "n1", 1, (queued(1), queued(2))) for one in sessions]
    await opened.carry_out(life, 1, [*rows, Beat("n1", 10_000)])  # beside it, it is no batch of rows alone


async def share(opened):
    """Messages of a group: of its stream, of a session that is gone, and once more; and a group that ends."""
    do = opened.do
    assert await do(DeclareGroup("s1", "$share/g/x")) == ""
    for number, (session, offset) in enumerate((("s1", 1), ("s1", 1), ("none", 2)), 1):
        message = f"g{number}"
        rows = (replace(queued(number, message), filter="$share/g/x"),)
        origins = {message: SharedOrigin("g/x", "0.0/x", offset)}
        await do(StoreRows(PutRows(session, "n3", 0, rows), {message: Payload("x", b"x")}, origins=origins))
    assert list(await do(ReadReturned(("g/x",)))) == ["g/x"]
    origins = {"g4": SharedOrigin("g/x", "", 0, "g3")}
    await do(StoreRows(PutRows("s1", "n3", 0, (queued(3, "g4"),)), {"g4": Payload("x", b"x")}, origins=origins))
    assert await do(ReadReturned(("g/x",))) == {}
    assert await do(DeclareGroup("s1", "$share/idle/x")) == ""
    assert [await do(ListIdleGroups(0)) for _ in range(2)] == [(), ("$share/idle/x",)]
    await do(ForgetGroup("$share/idle/x"))


async def publish_once(opened, token):
    """Packet ids of publishers, and wills."""
    kept = PublisherPacket("s1", token, 1)
    await opened.do(PutMessage("r1", "a/x", b"x", 2, retain=True))
    await opened.do(SubscribeFront("s1", token, "a/x", 1, 0, RetainHandling.ALWAYS))
    await opened.do(PutMessage("v1", "a/x", b"x", 0))
    await opened.do(PutMessage("r2", "a/x", b"y", 2, retain=True))
    await opened.do(PutMessage("q1", "a/x", b"x", 2, packet=kept))
    for _ in range(2):
        row = replace(queued(4), message="q1", filter="a/+")
        put = StoreRows(PutRows("s1", "n1", 1, (row,)), {"q1": Payload("a/x", b"x")}, frozenset({"q1"}))
        await opened.do(put)
    await opened.do(ReadPackets("s1"))
    await opened.do(ReleasePacket(kept))
    await opened.do(ReadUnfinished(1))
    (locked,) = await opened.ask(LockClient("c5", "n2~1/1", 1))
    for number, delay_ms in ((3, 0), (2, 5_000), (1, 5)):
        will = SessionWill("a/x", b"", 1, False, None, b"", delay_ms, Identity())
        await opened.do(OpenWithWill(OpenSession("c5", f"n2~1/{number}", locked.token, "s5", "", 10), will))
    await opened.begin_life("n2", 10_000)
    await opened.do(EndWills())
    await opened.do(FindDueWills())
    await opened.do(OpenWithWill(OpenSession("c5", "n2~2/1", locked.token, "s5", "", 10), will))
    await opened.ask(LeaveSession("c5", "s5", locked.token, 10))
    await opened.do(PutMessage("q2", "a/x", b"", 1, will="n2~1/1"))
    await opened.do(DropWill("n2~1/1"))


async def retain_beyond(opened, clock, steady):
    """One retained message more than may be, until the one of before is over."""
    first = PutMessage("r3", "b/x", b"x", 1, 5, retain=True)
    second = PutMessage("r4", "c/x", b"x", 1, retain=True)
    await opened.do(PutMessage("r5", "a/x", b"", 1, retain=True))
    assert [isinstance(await opened.do(one), RetainedFull) for one in (first, second)] == [False, True]
    for one in (clock, steady):
        one.now += SECOND
    assert not isinstance(await opened.do(second), RetainedFull)


async def operate(opened):
    """A client is kicked, and one is purged."""
    await connect(opened, "s4", "c4", owner="n1~1/1")
    await opened.ask(BeginEpoch("s4", "n1"))
    for number in (1, 2, 3):
        await opened.ask(PutRows("s4", "n1", 1, (queued(number),)))
    await opened.do(KickClient("c4"))
    await opened.do(PurgeClient("c4"))
    for _ in range(2):
        await opened.do(DeleteRows("s4", 2))


async def connect_beyond(opened):
    """The store keeps as many as it may."""

    (locked,) = await opened.ask(LockClient("c9", "h", 500))
    await opened.ask(OpenSession("c9", "h", locked.token, "s9", "", 5, 1))


async def collect(opened):
    """Pages, and each kind of deletion."""
    for after in ("", "a"):
        await opened.ask(collector.ReadClients(after, 10, 1_000))
    (found,) = await opened.ask(collector.ReadRows(None, 10))
    await opened.ask(collector.ReadRows(found.rows[0].key, 10))
    opened.bound_sessions(SessionBounds())
    await opened.ask(collector.ReadRows(None, 10, waiting=False))
    for _ in range(2):
        after, is_over = "", False
        while not is_over:
            (messages,) = await opened.ask(collector.ReadMessages(after, 10))
            after, is_over = messages.place, not messages.messages
    for only in (collector.Only.ALWAYS, collector.Only.UNPAIRED, collector.Only.ALONE):
        await opened.ask(collector.DeletePage((collector.RowDeletion(found.rows[-1].key, only),)))
    await opened.ask(collector.ReadMessages("", 10))
    for only in (
        collector.Only.UNREFERENCED, collector.Only.OVER, collector.Only.UNHELD, collector.Only.ALWAYS,
    ):  # fmt: skip
        await opened.ask(collector.DeletePage(messages=(collector.MessageDeletion("m1", only),)))


def test_PS_289_no_statement_of_the_session_store_reads_what_grows(url, monkeypatch):
    """On both databases, as each says itself that it would find the rows."""
    monkeypatch.setattr(route_rows, "FORGET", 0)  # routes that are gone are forgotten at once
    monkeypatch.setattr(machine_requests, "SESSIONS_MIN", 2)
    monkeypatch.setattr(waiting_messages, "SHARE", 0)
    monkeypatch.setattr(route_rows, "RETAINED_MAX", 1)

    async def body():
        clock, steady = Clock(), Clock()
        opened = open_session_store(url, clock=clock, steady=steady, boot="one")
        try:
            await drive(opened, clock, steady)
        finally:
            await opened.close()

    with watched() as plans:
        asyncio.run(body())
    database = sqlite if url.startswith("sqlite") else postgres
    assert plans.never_asked(*MODULES, database) == []
    assert plans.unbounded(ONE_ROW, BOUNDED, PAGED) == {}
    assert (postgres.CHECK_ROUTES.text.decode() in plans.plans) == (database is postgres)
