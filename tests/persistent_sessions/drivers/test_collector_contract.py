"""The collector on real rows: every database answers it as the models do; garbage goes, what is needed stays."""

import asyncio
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from session_databases import MESSAGES, MOVES, MS, NUMBERS, WRITERS, Clock, Player, Real, S, connect, queued, tidy, wipe

from statemachines.drivers.persistent_sessions import collector_requests
from statemachines.drivers.persistent_sessions.collector_requests import MESSAGES as MESSAGES_READ
from statemachines.drivers.persistent_sessions.collector_requests import TAGS, SessionBounds
from statemachines.drivers.persistent_sessions.machine_requests import PUT_ROW
from statemachines.drivers.persistent_sessions.postgres import PostgresSql
from statemachines.drivers.persistent_sessions.sqlite import SqliteSql
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import Ask, Map, Node, Request, Tell
from statemachines.persistent_sessions import collector as requests
from statemachines.persistent_sessions.collector import (
    COLLECTOR,
    ClientForgotten,
    Collect,
    CollectorRecord,
    DeletePage,
    ForgetClient,
    Graces,
    MessageDeletion,
    Only,
    PageDeleted,
    ReadClients,
    ReadMessages,
    ReadRows,
    RoundEnded,
    RowDeletion,
    RowKey,
    Tag,
)
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    LoadSession,
    MarkDelivered,
    PutMarker,
    PutRows,
    ReadPending,
    StateChange,
)
from statemachines.persistent_sessions.session_tables import find_shelf, put_shelf
from statemachines.testing.persistent_sessions.garbage import OLD_MS, AgedRow, Garbage, StoreTables, of_every_kind
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.persistent_sessions.collected_database import OLD_MS as COLLECTED_MS
from statemachines_spec.persistent_sessions.collected_database import Abandon, CollectedDatabase, GrowOld, MessagePut

NOW = 3 * 10**18
"""Later than any clock has said."""
LATER = NOW + 10**15
DELETIONS = (DeletePage, ForgetClient)
DEAD_MS = Graces().dead_ms
HOUR_MS = 3_600_000


def delete_row(key, only=Only.ALWAYS):
    return DeletePage((RowDeletion(key, only),))


def delete_message(message, only):
    return DeletePage(messages=(MessageDeletion(message, only),))


class Copy:
    """`tables` in the database at `url`, in which nothing else is."""

    def __init__(self, url):
        self.url = url

    async def open(self, tables):
        self.store = open_session_store(self.url, clock=lambda: NOW)
        await self.store._database.run(lambda: self._fill(tables))
        return self

    def _fill(self, tables):
        with self.store._database.writing() as sql:
            wipe(sql)
            sql.run("UPDATE @store SET time_ns = :now", now=NOW)  # whatever a test before said in this database
            sql.put_many(PUT_ROW, [self._row(one, one.message in tables.expired) for one in tables.rows])
            for (session, writer), (epoch, number) in tables.taken.items():
                sql.run("INSERT INTO @taken VALUES (:s, :w, :e, :n)",
                        s=session.encode(), w=writer.encode(), e=epoch, n=number)  # fmt: skip
            for message, age_ms in tables.messages.items():
                sql.run("INSERT INTO @messages VALUES (:id, :none, :none, 1, :at, NULL)",
                        id=message.encode(), none=b"", at=NOW - age_ms * MS)  # fmt: skip
            for place, message in enumerate(tables.held):
                sql.run("INSERT INTO @queued VALUES (:none, :place, 1, :id, :none, 1, 0)",
                        place=place, id=message.encode(), none=b"")  # fmt: skip

            for client, session in tables.clients.items():
                values = {"c": client.encode(), "s": session.encode() or None, "none": b"", "seen": NOW - DEAD_MS * MS}
                is_over = client in tables.over
                holder = b"" if is_over or session else b"h"
                sql.run(
                    "INSERT INTO @clients (client, session, token, holder, until_ns) VALUES (:c, :s, 1, :h, :until)",
                    h=holder, until=2 * NOW, c=values["c"], s=values["s"],
                )  # fmt: skip
                if session:
                    sql.run("INSERT INTO @sessions VALUES (:s, :c, 1, :none, :c, :e, :seen, 0, 0)",
                            e=DEAD_MS if is_over else DEAD_MS + 1, **values)  # fmt: skip

    def _row(self, one, has_expired):
        """One that has not does not at all, or will at the last moment."""
        key = one.key
        names = (key.session.encode(), key.writer.encode(), key.epoch, key.number, TAGS[key.tag])
        until_ns = NOW if has_expired else 0 if one.age_ms else LATER
        return (*names, one.message.encode(), b"", 1, key.token, key.n, 0, NOW - one.age_ms * MS, until_ns, None)

    async def ask(self, request):
        """Places of messages are those of the model, which count ages down in place of times."""
        is_looked_up = isinstance(request, ReadMessages)
        if is_looked_up and request.after:
            age, _, message = request.after.partition(" ")
            request = replace(request, after=f"{NOW - (OLD_MS - int(age)) * MS} {message}")
        (answer,) = await self.store.ask(request)
        if is_looked_up and answer.place:
            time_ns, _, message = answer.place.partition(" ")
            answer = replace(answer, place=f"{OLD_MS - (NOW - int(time_ns)) // MS:09} {message}")
        return (answer,)

    async def close(self):
        await self.store.close()


class Original:
    """`tables` as they are."""

    async def open(self, tables):
        self.store = Garbage(tables)
        self.tables = tables
        return self

    async def ask(self, request):
        self.tables, answers = self.store.apply(self.tables, request, 0)
        return answers

    async def close(self):
        pass


async def collect(asks, page, *, stop=-1, graces=None, begin=None):
    """A round, of which each request goes to all of these, which answer alike; what was told, and what was deleted.
    `stop`: after so many deletions."""
    node = Node(
        COLLECTOR,
        CollectorRecord(graces or Graces(retention_ms=HOUR_MS, page=page), after=begin),
        name="collector",
        now_ns=0,
    )
    effects, deleted, told = node.feed(Collect(), 0), [], []
    while True:
        told += [one.event for one in effects if isinstance(one, Tell)]
        asked = [one.request for one in effects if isinstance(one, Ask)]
        if not asked:
            return told, deleted
        (request,) = asked
        if isinstance(request, DELETIONS) and len(deleted) == stop:
            return told, deleted
        answers = [await ask(request) for ask in asks]
        assert all(one == answers[0] for one in answers), request
        if isinstance(request, DELETIONS):
            deleted.append(answers[0][0])
        effects = node.feed(answers[0][0], 0)


@pytest.mark.parametrize("page", [1, 2, 100])
async def test_a_round_over_every_kind_of_row_deletes_what_it_deletes_of_the_model(url, page):
    real, model = await Copy(url).open(of_every_kind()), await Original().open(of_every_kind())
    try:
        for _ in range(3):
            told, _ = await collect((real.ask, model.ask), page)
        tables = model.tables
    finally:
        await real.close()
    assert told == [RoundEnded(0, 0, True)], "everything has gone"
    assert dict(tables.clients) == {"c1": "s1"}
    assert set(tables.messages) == {"m1", "m3", "m6"}


SESSION, WRITER = st.sampled_from(("s0", "s1", "s2", "s3")), st.sampled_from(("w1", "w2"))
AGE = st.sampled_from((0, 59_999, 60_000, 299_999, 300_000, 3_599_999, 3_600_000, OLD_MS))
NUMBER = st.integers(1, 3)
MESSAGE = st.sampled_from(("m1", "m2", "m3", "m4"))
PLACES = st.builds(
    RowKey, SESSION, WRITER, st.integers(1, 2), NUMBER, st.sampled_from((Tag.UNDELIVERED, Tag.DELIVERED))
)
MARKERS = st.builds(RowKey, SESSION, WRITER, st.integers(1, 2), st.just(0), st.just(Tag.MARKER), NUMBER, NUMBER)
GONE = st.builds(RowKey, st.sampled_from(("s0", "s1")), tag=st.just(Tag.ABANDONED))
ROWS = st.one_of(st.builds(AgedRow, PLACES, MESSAGE, AGE), st.builds(AgedRow, st.one_of(MARKERS, GONE), age_ms=AGE))


DEPENDS = {Tag.DELIVERED: Only.UNPAIRED, Tag.ABANDONED: Only.ALONE}


@st.composite
def all_tables(draw):
    def place(row):
        key = row.key
        return (key.session, key.writer, key.epoch, key.number, key.tag)

    rows = draw(st.lists(ROWS, max_size=10, unique_by=place))
    taken = draw(st.dictionaries(st.tuples(SESSION, WRITER), st.tuples(st.integers(1, 2), NUMBER), max_size=3))
    held = draw(st.lists(MESSAGE, max_size=2))
    clients = {"c1": draw(st.sampled_from(("", "s2"))), "c2": draw(st.sampled_from(("", "s3"))), "c3": ""}
    over = draw(st.lists(st.sampled_from(sorted(clients)), unique=True))
    expired = draw(st.lists(MESSAGE, unique=True))
    messages = draw(st.dictionaries(MESSAGE, AGE))
    return StoreTables(tuple(rows), Map(messages), Map(taken), tuple(held), Map(clients), tuple(over), tuple(expired))


@settings(max_examples=20)
@given(tables=all_tables(), page=st.integers(1, 4), stops=st.lists(st.integers(0, 4), max_size=2))
def test_whatever_is_stored_is_read_and_deleted_as_the_model_does(shared_url, tables, page, stops):
    """It may stop after any deletion, and goes on anywhere."""

    async def run():
        real, model = await Copy(shared_url).open(tables), await Original().open(tables)
        try:
            for stop in (*stops, -1, -1):
                await collect((real.ask, model.ask), page, stop=stop)
            for each in model.tables.rows[:4]:
                request = delete_row(each.key, DEPENDS.get(each.key.tag, Only.ALWAYS))
                assert await real.ask(request) == await model.ask(request), request
            for place, message in enumerate(sorted(model.tables.messages)):
                request = delete_message(message, (Only.UNHELD, Only.UNREFERENCED, Only.OVER)[place % 3])
                assert await real.ask(request) == await model.ask(request), request
        finally:
            await real.close()

    asyncio.run(run())


# -- a round costs what it deletes ---------------------------------------------------------------------------------


def waiting_rows(count, taken=0):
    """A session with so many rows, of which it has taken some, with a mark among those that wait; two more writers."""
    keys = [RowKey("s1", "w1", 1, number) for number in range(1, count + 1)]
    keys += [RowKey("s1", "w1", 2, 1), RowKey("s1", "w2", 1, 1), RowKey("s2", "w1", 1, 1)]
    marked = [RowKey("s1", "w1", 1, count // 2, Tag.DELIVERED), RowKey("s1", "w1", 1, count + 9, Tag.DELIVERED)]
    rows = [AgedRow(key, "m1") for key in keys] + [AgedRow(key, "m1", OLD_MS) for key in marked]
    return StoreTables(tuple(rows), Map({"m1": OLD_MS}), Map({("s1", "w1"): (1, taken)}))


@pytest.mark.parametrize("page", [1, 3, 100])
def test_PS_691_rows_that_wait_are_left_out_and_those_among_them_are_not(url, page):
    """As the model has it, over runs of several pages, with and without a tally."""

    async def run(bounds):
        tables = waiting_rows(40, taken=7)
        real, model = await Copy(url).open(tables), await Original().open(tables)
        if bounds is not None:
            real.store.bound_sessions(bounds)
        try:
            for _ in range(2):
                await collect((real.ask, model.ask), page)
            (left,) = await real.ask(ReadRows(None, 99))
            return [row.key for row in left.rows], real.store.take_drops()
        finally:
            await real.close()

    left = [RowKey("s1", "w1", 1, number) for number in (*range(8, 20), *range(21, 41))]
    left += [RowKey("s1", "w1", 2, 1), RowKey("s1", "w2", 1, 1), RowKey("s2", "w1", 1, 1)]
    assert asyncio.run(run(None)) == (left, [])
    assert asyncio.run(run(SessionBounds())) == (left, [])
    keys, drops = asyncio.run(run(SessionBounds(messages=33)))
    assert keys == left
    assert {(one.session, one.first) for one in drops} >= {("s1", 8)}


def test_PS_691_a_page_that_finds_nothing_but_rows_that_wait_says_where_the_next_begins(url, monkeypatch):
    monkeypatch.setattr(collector_requests, "COUNTED_MAX", 10)

    async def run():
        real = await Copy(url).open(waiting_rows(40))
        real.store.bound_sessions(SessionBounds())
        after, ends = None, []
        try:
            while True:
                (page,) = await real.ask(ReadRows(after, 5, waiting=False))
                if not page.rows:
                    return ends
                after = page.rows[-1].key
                ends.append((after.epoch, after.number))
        finally:
            await real.close()

    assert asyncio.run(run()) == [(1, 10), (1, 21), (1, 31), (2, 1)]


def test_PS_691_a_row_that_is_marked_amid_rows_that_were_counted_is_found_by_the_next_round(url, monkeypatch):
    monkeypatch.setattr(collector_requests, "KNOWN_MIN", 2)
    tables = waiting_rows(40)

    async def read_all(real):
        found, after = [], None
        while True:
            (page,) = await real.ask(ReadRows(after, 5, waiting=False))
            if not page.rows:
                return [row.key.number for row in found if not row.waits]
            found += page.rows
            after = page.rows[-1].key

    async def run():
        real = await Copy(url).open(replace(tables, rows=tables.rows[:40]))
        real.store.bound_sessions(SessionBounds(messages=1_000))  # a piece has ten rows
        try:
            assert await read_all(real) == []
            await real.store.ask(MarkDelivered("s1", "w1", 1, 15))
            return await read_all(real)
        finally:
            await real.close()

    assert asyncio.run(run()) == [15, 15], "the row and its mark"


def test_PS_691_PS_692_a_round_asks_no_more_where_more_waits(url):
    """From the second round on: rows that wait are counted once, and messages that are young not at all."""

    async def count(rows):
        messages = Map({f"m{number}": 0 for number in range(rows)} | {"m1": 0})
        tables = replace(waiting_rows(rows), messages=messages)
        real = await Copy(url).open(replace(tables, rows=tables.rows[: rows + 3]))
        real.store.bound_sessions(SessionBounds())
        try:
            found = []
            for _ in range(3):
                before = len(asked)
                await collect((real.ask,), 10)
                found.append(len(asked) - before)
            return found
        finally:
            await real.close()

    with watched_statements() as asked:
        few, many = asyncio.run(count(300)), asyncio.run(count(3_000))
    assert many[0] > few[0]
    assert few[1:] == many[1:] == [few[1]] * 2


@contextmanager
def watched_statements():
    """The statements that collectors ask meanwhile."""
    asked, real = [], (SqliteSql.all, PostgresSql.all)

    def note(method):
        def all(sql, statement, **values):
            asked.append(statement)
            return method(sql, statement, **values)

        return all

    SqliteSql.all, PostgresSql.all = map(note, real)
    try:
        yield asked
    finally:
        SqliteSql.all, PostgresSql.all = real


def test_PS_692_a_message_within_its_grace_is_not_read_and_the_oldest_come_first(url):
    async def run():
        tables = StoreTables(messages=Map({"a": 59_999, "b": 60_000, "c": OLD_MS, "d": 60_001}))
        real = await Copy(url).open(tables)
        try:
            after, found = "", []
            while True:
                (page,) = await real.ask(ReadMessages(after, 1, 60_000))
                if not page.messages:
                    return found
                after = page.place
                found += [(one.message, one.age_ms) for one in page.messages]
        finally:
            await real.close()

    assert asyncio.run(run()) == [("c", OLD_MS), ("d", 60_001), ("b", 60_000)]


@pytest.mark.parametrize("gap", [2, 3])
async def test_PS_83_of_a_page_goes_what_it_names_and_nothing_between(url, gap):
    """Rows that follow each other are one statement; what lies between two that go, and is not named, stays."""

    keys = [RowKey("s1", "w1", 1, number) for number in range(1, 6)]
    others = [replace(keys[gap], session="s2"), replace(keys[gap], writer="w2"), replace(keys[gap], epoch=2)]
    marks = [replace(key, tag=Tag.DELIVERED) for key in keys[:2]]
    real = await Copy(url).open(StoreTables(tuple(map(AgedRow, (*keys, *marks, *others)))))
    named = [RowDeletion(key, Only.ALWAYS) for key in keys if key is not keys[gap]]
    named.insert(0, RowDeletion(marks[0], Only.UNPAIRED))
    try:
        found = await real.ask(DeletePage(tuple(named)))
        left = (await real.ask(ReadRows(None, 99)))[0].rows
        left, wanted = {row.key for row in left}, {keys[gap], marks[1], *others}
    finally:
        await real.close()
    assert found == (PageDeleted(5),), "the mark of an undelivered row that goes with it, too"
    assert left == wanted


def test_PS_83_a_mark_whose_row_is_there_stays_though_its_page_goes(url):
    async def run():
        keys = [RowKey("s1", "w1", 1, number) for number in (1, 2)]
        marks = [replace(key, tag=Tag.DELIVERED) for key in keys]
        real = await Copy(url).open(StoreTables(tuple(map(AgedRow, (keys[1], *marks)))))
        try:
            found = await real.ask(DeletePage(tuple(RowDeletion(one, Only.UNPAIRED) for one in marks)))
            return found, [row.key for row in (await real.ask(ReadRows(None, 99)))[0].rows] == [keys[1], marks[1]]
        finally:
            await real.close()

    assert asyncio.run(run()) == ((PageDeleted(1),), True)


async def test_a_marker_that_was_replaced_since_it_was_read_stays(url):
    old = AgedRow(RowKey("s1", "w1", 1, 0, Tag.MARKER, 1, 1), age_ms=OLD_MS)
    new = AgedRow(RowKey("s1", "w1", 1, 0, Tag.MARKER, 1, 2))
    real = await Copy(url).open(StoreTables((new,)))
    try:
        found = await real.ask(delete_row(old.key))
        rows = (await real.ask(ReadRows(None, 9)))[0].rows
    finally:
        await real.close()
    assert found == (PageDeleted(),)
    assert [row.key.n for row in rows] == [2]


def test_what_refers_to_a_message_is_asked_again_when_it_is_deleted(url):
    """A row has come since, or a message is in flight, or queued; retention asks for the state alone."""

    async def run():
        gone = AgedRow(RowKey("s3", tag=Tag.ABANDONED))
        rows = (*(AgedRow(RowKey(session, "w1", 1, 1), "m1") for session in ("s1", "s2", "s3")), gone)
        ages = Map({"m1": OLD_MS, "m2": OLD_MS, "m3": OLD_MS})
        real = await Copy(url).open(StoreTables(rows, ages, Map({("s2", "w1"): (1, 1)}), held=("m2",)))
        try:
            await real.store._database.run(lambda: flying(real.store, "m3"))
            found = []
            for message in ("m1", "m2", "m3"):
                for only in (Only.UNREFERENCED, Only.UNHELD):
                    found += await real.ask(delete_message(message, only))
            return found
        finally:
            await real.close()

    kept, gone = PageDeleted(), PageDeleted(messages=(("m1", 1),))
    assert asyncio.run(run()) == [kept, gone, kept, kept, kept, kept], "one has not been taken"


@pytest.mark.parametrize(("until_ns", "is_over"), [(0, False), (1, True), (NOW, True), (LATER, False)])
def test_PS_240_a_message_is_over_if_all_its_rows_are_and_it_is_kept_where_a_state_holds_it(url, until_ns, is_over):
    async def run():
        rows = tuple(AgedRow(RowKey(session, "w1", 1, 1), "m1") for session in ("s1", "s2"))
        real = await Copy(url).open(StoreTables(rows, Map({"m1": OLD_MS}), expired=("m1",)))
        over = delete_message("m1", Only.OVER)
        try:
            await real.store._database.run(lambda: expiring(real.store, until_ns))
            found = [(await real.ask(ReadMessages("", 9)))[0].messages[0].over]
            await real.store._database.run(lambda: flying(real.store, "m1"))
            found.append((await real.ask(ReadMessages("", 9)))[0].messages[0].over)
            held = await real.ask(over)
            await real.store._database.run(lambda: flying(real.store, "m2"))  # in its place
            return found, held, await real.ask(over), await real.ask(over)
        finally:
            await real.close()

    kept = (PageDeleted(),)
    gone = (PageDeleted(messages=(("m1", 0),)),) if is_over else kept
    assert asyncio.run(run()) == ([is_over, is_over], kept, gone, kept)


def expiring(store, until_ns):
    """The row of one of the sessions is over at another moment."""
    with store._database.writing() as sql:
        sql.run("UPDATE @session_rows SET until_ns = :until_ns WHERE session = :s", s=b"s2", until_ns=until_ns)


async def test_PS_240_no_look_goes_over_all_rows(sqlite_url):
    """Whether a message is over is read by the index of rows by message."""

    real = await Copy(sqlite_url).open(StoreTables())
    try:
        asked = await real.store._database.run(lambda: plan(real.store))
    finally:
        await real.close()
    assert any("rows_by_message" in one for one in asked)
    assert [one for one in asked if one.startswith("SCAN")] == []


def plan(store):
    with store._database.reading() as sql:
        found = sql.all(f"EXPLAIN QUERY PLAN {MESSAGES_READ}", time_ns=0, id=b"", last_ns=NOW, limit=9, now_ns=NOW)
        return [row[3] for row in found]


def flying(store, message):
    with store._database.writing() as sql:
        sql.run("INSERT INTO @packets VALUES (:s, 1, 0, :sent, 1, :id, :s, 1, 0)"
                " ON CONFLICT (session, packet) DO UPDATE SET message = excluded.message",
                s=b"s1", sent=b"sent", id=message.encode())  # fmt: skip


async def test_two_collectors_at_once_delete_what_one_does_and_each_thing_once(url):
    """Through two stores of their own, turn by turn, each with what it has read."""

    one, done = await Copy(url).open(of_every_kind()), []
    other = open_session_store(url, clock=lambda: NOW)
    try:
        for _ in range(3):
            rounds = [asyncio.ensure_future(collect((ask,), 2)) for ask in (one.ask, other.ask)]
            done += [answer for _, deleted in await asyncio.gather(*rounds) for answer in deleted]
        rows, messages = await one.ask(ReadRows(None, 99)), await one.ask(ReadMessages("", 99))
        keys, messages = [row.key for row in rows[0].rows], {each.message for each in messages[0].messages}
    finally:
        await other.close()
        await one.close()
    pages = [one for one in done if isinstance(one, PageDeleted)]
    gone = [message for page in pages for message, _ in page.messages]
    before = of_every_kind()
    assert sorted(gone) == sorted(set(before.messages) - {"m1", "m3", "m6"})
    forgotten = sum(isinstance(one, ClientForgotten) and one.done for one in done)
    assert forgotten == len(before.clients) - 1
    abandoned = sum(bool(session) for client, session in before.clients.items() if client in before.over)
    assert sum(page.rows for page in pages) == len(before.rows) + abandoned - len(keys)
    assert messages == {"m1", "m3", "m6"}
    assert set(keys) - {RowKey("s1", "w1", 1, 2, Tag.DELIVERED)} == {
        RowKey("s2", tag=Tag.ABANDONED), RowKey("s1", "w2", 1, 0, Tag.MARKER, 1, 2),
        *(RowKey("s1", "w1", 1, number) for number in (4, 5, 6)),
    }  # fmt: skip


# -- what writers and owners have stored ------------------------------------------------------------------------------


class CollectedModel:
    """The explorer's database that is collected; everything is visible at once."""

    def __init__(self):
        self.database = CollectedDatabase(WRITERS, ("c1",), total=99, names_waiting=False)

    async def open(self):
        self.local = self.database.initial()
        for message in MESSAGES:
            self.happen(MessagePut(message))
        return self

    async def ask(self, request):
        self.local, answers, _ = self.database.apply(self.local, request)
        return tuple(tidy(one, self.local.state.taken, request) for one in answers)

    async def live(self, writer, up):
        self.local = put_shelf(self.local, replace(find_shelf(self.local, writer), up=up))

    async def close(self):
        pass

    def happen(self, event):
        self.local = self.database.react(self.local, Envelope("database", "database", event)).local

    async def abandon(self):
        self.happen(Abandon())
        self.database.total = sum(one.queued is not None for shelf in self.local.shelves for one in shelf.entries)

    async def grow_old(self):
        if self.database._grow_old(self.local) != self.local:
            self.happen(GrowOld())


class CollectedReal(Real):
    """The same in a database in which nothing else is."""

    async def open(self):
        self.clock = Clock()
        self.clock.now = NOW + next(NUMBERS) * 10 * COLLECTED_MS * MS
        self.options = {"clock": self.clock}
        return await super().open()

    async def prepare(self):
        await self.store._database.run(self._wipe)

    def _wipe(self):
        with self.store._database.writing() as sql:
            wipe(sql)

    async def abandon(self):
        await connect(self.store, f"{self.session}-next", self.client, clean=True)

    async def grow_old(self):
        self.clock.now += COLLECTED_MS * MS + MS // 2  # a commit moves the time of the store a little


def row(number, message, writer="w1"):
    return PutRows(S, writer, 1, (queued(number, message),))


async def round_after_round(model, real):
    """One, then time passes, then two more; what is left of rows and messages."""
    for is_first in (True, False, False):
        await collect((real.ask, model.ask), 3)
        if is_first:
            await model.grow_old()
            await real.grow_old()
    (rows,), (messages,) = await real.ask(ReadRows(None, 99)), await real.ask(ReadMessages("", 99))
    kept = [(one.key.writer, one.key.number, one.key.tag) for one in rows.rows]
    return kept, [one.message for one in messages.messages]


def play(url, *moves, abandons=False):
    """These are asked of both, and then the collector goes through."""

    async def run():
        model, real = await CollectedModel().open(), await CollectedReal(url).open()
        try:
            for request in (LoadSession("c1", "o", 1), BeginEpoch(S, "w1"), BeginEpoch(S, "w2"), *moves):
                assert await real.ask(request) == await model.ask(request), request
            if abandons:
                await model.abandon()
                await real.abandon()
            left = await round_after_round(model, real)
            assert not model.local.wrong
            return left
        finally:
            await real.close()

    return asyncio.run(run())


STORED = (
    row(1, "m1"), row(2, "m2"), row(3, "m3"), row(1, "m4", "w2"), PutMarker(S, "w1", 1, 4, 1, 1),
    MarkDelivered(S, "w1", 1, 1), CommitState(S, 1, StateChange(Map({"w1": (1, 2)}), queued=(queued(2),), places=1)),
)  # fmt: skip
"""The row is marked before it is taken: a database deletes a taken row in place of the mark (PS-660)."""


def test_what_is_taken_goes_marked_or_not_and_what_is_pending_stays(url):
    rows, messages = play(url, *STORED)
    assert rows == [("w1", 3, Tag.UNDELIVERED), ("w2", 1, Tag.UNDELIVERED)]
    assert messages == ["m2", "m3", "m4"], "one is queued, two are pending"


def test_of_an_abandoned_session_nothing_is_left(url):
    assert play(url, *STORED, abandons=True) == ([], [])


def test_nobody_collects_by_what_is_not_answered():
    """The requests of the protocol, and those that are compared here."""
    kinds = {one for one in vars(requests).values() if isinstance(one, type) and issubclass(one, Request)} - {Request}
    assert kinds == {ReadClients, ForgetClient, ReadRows, ReadMessages, DeletePage}


async def compare(url, moves, abandons):
    model, real = await CollectedModel().open(), await CollectedReal(url).open()
    player, marked = Player(), set()
    try:
        for kind, *given_ in [("load", 1), *moves]:
            if kind == "live":
                await model.live(*given_)
                await real.live(*given_)
                continue
            if kind == "marker" and (given_[0] in marked or marked.add(given_[0])):
                continue  # of real markers the last is kept alone
            asked = player.request(kind, *given_)
            if asked is not None:
                wanted = await model.ask(asked)
                assert await real.ask(asked) == wanted, asked
                player.learn(asked, wanted)
        if abandons:
            await model.abandon()
            await real.abandon()
        await round_after_round(model, real)
        if not abandons:
            for asked in (ReadPending(S), LoadSession("c1", "o", 3)):
                assert await real.ask(asked) == await model.ask(asked), asked
    finally:
        await real.close()


@pytest.mark.long
@settings(max_examples=20)
@given(moves=MOVES, abandons=st.booleans())
def test_of_random_sessions_is_deleted_what_is_deleted_of_the_model(shared_url, moves, abandons):
    asyncio.run(compare(shared_url, moves, abandons))
