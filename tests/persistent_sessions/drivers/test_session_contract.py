"""Every database of sessions means what the explorer's means: equal answers to equal requests.

Wills in the tables: when they are due, when they are not sent, and that they are sent once.
"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_databases import MOVES, SECOND, SMALL, Model, Player, Real, S, change_to, new_url, open_node_store, queued

from statemachines.drivers.identity import Identity
from statemachines.drivers.persistent_sessions.life_requests import EndWills, FindDueWills, OpenWithWill
from statemachines.drivers.persistent_sessions.node_messages import SessionWill
from statemachines.drivers.persistent_sessions.route_rows import PutMessage
from statemachines.kernel import Map, Request, incarnation
from statemachines.persistent_sessions import life_request
from statemachines.persistent_sessions import request as requests
from statemachines.persistent_sessions.in_flight_record import InFlightRecord, InFlightStatus
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    ConfirmRows,
    EpochBegun,
    EpochRows,
    Fence,
    FencedRows,
    LoadSession,
    MarkDelivered,
    NotOwner,
    PendingRead,
    Polled,
    PutMarker,
    PutRows,
    ReadPending,
    ReadRow,
    RowFenced,
    RowRead,
    RowStored,
    SessionLoaded,
    SessionState,
    StateChange,
    StateCommitted,
    SubscribedLive,
    SubscribeLive,
    UnsubscribeLive,
)


@pytest.fixture(params=["model", "sqlite", "postgres"])
def database(request, tmp_path_factory):
    return Model() if request.param == "model" else Real(new_url(request.param, request, tmp_path_factory))


def play(database, *asked):
    """The answers to each of these requests in turn."""

    async def run():
        opened = await database.open()
        try:
            return [await opened.ask(one) for one in asked]
        finally:
            await opened.close()

    return asyncio.run(run())


def row(number, message=None, writer="w1", epoch=1):
    return PutRows(S, writer, epoch, (queued(number, message),))


LOAD = LoadSession("c1", "owner", 1)
BEGIN = BeginEpoch(S, "w1")


def test_a_row_is_stored_under_the_epoch_of_now_and_read_in_order(database):
    found = play(database, LOAD, BEGIN, row(1), row(2), BEGIN, row(3), row(1, "m4", epoch=2), ReadPending(S, "w1"))
    assert found[1:6] == [(EpochBegun(1),), (RowStored(),), (RowStored(),), (EpochBegun(2),), (RowFenced(2),)]
    rows = (EpochRows("w1", 1, (queued(1), queued(2))), EpochRows("w1", 2, (queued(1, "m4"),)))
    assert found[7] == (Polled("w1", rows),)


def rows(first, *messages, epoch=1):
    """A range."""
    return PutRows(S, "w1", epoch, tuple(queued(*one) for one in enumerate(messages, first)))


def test_PS_403_a_range_is_stored_as_a_whole_or_not_at_all(database):
    found = play(
        database, LOAD, BEGIN, rows(1, "m1", "m2"), rows(3, "m3", "m4", "m5"), ReadRow(S, "w1", 1, 5),
        ReadRow(S, "w1", 1, 6), BEGIN, rows(6, "m6", "m7"), rows(1, "m6", "m7", epoch=2), ReadPending(S, "w1"),
    )  # fmt: skip
    assert found[2:4] == [(RowStored(),)] * 2
    assert found[4:6] == [(RowRead(True),), (RowRead(False),)]
    assert found[7:9] == [(RowFenced(2),), (RowStored(),)]
    one = EpochRows("w1", 1, tuple(queued(number) for number in range(1, 6)))
    assert found[9] == (Polled("w1", (one, EpochRows("w1", 2, (queued(1, "m6"), queued(2, "m7"))))),)


def test_what_is_marked_or_taken_is_not_read(database):
    state = SessionState(taken=Map({"w1": (1, 1)}))
    found = play(
        database, LOAD, BEGIN, row(1), row(2), row(3),
        CommitState(S, 1, change_to(state)), MarkDelivered(S, "w1", 1, 2), MarkDelivered(S, "w1", 1, 2),
        MarkDelivered(S, "w1", 1, 9), ReadPending(S, "w1"), ReadPending(S),
    )  # fmt: skip
    assert found[6:9] == [(), (), ()]
    left = (EpochRows("w1", 1, (queued(3),)),)
    assert found[9:] == [(Polled("w1", left),), (PendingRead(left),)]


def test_a_marker_is_shown_once_and_fenced_like_a_row(database):
    marker = PutMarker(S, "w1", 1, 2, 1, 1)
    found = play(database, LOAD, BEGIN, row(1), marker, marker, ReadPending(S, "w1"), BEGIN, marker)
    assert found[3:5] == [(RowStored(),), (RowStored(),)]
    assert found[5] == (Polled("w1", (EpochRows("w1", 1, (queued(1),), ((1, 1),)),)),)
    assert found[7] == (RowFenced(2),)


def test_a_row_is_read_back(database):
    found = play(database, LOAD, BEGIN, row(1), ReadRow(S, "w1", 1, 1), ReadRow(S, "w1", 1, 2), ReadRow(S, "w2", 1, 1))
    assert found[3:] == [(RowRead(True),), (RowRead(False),), (RowRead(False),)]


def test_a_fence_reads_all_below_it_and_refuses_what_comes_later(database):
    found = play(
        database, LOAD, BEGIN, row(1), row(2), MarkDelivered(S, "w1", 1, 1),
        Fence(S, "w1", (1, 0), 0, 1, 7), row(3), row(1, "m4", epoch=2), Fence(S, "w1", (2, 0), 2, 1, 8),
        Fence(S, "w1", (1, 0), 5, 1, 9),
        row(2, epoch=2), row(1, "m5", epoch=5),
    )  # fmt: skip
    assert found[5] == (FencedRows("w1", 2, 7, (EpochRows("w1", 1, (queued(1), queued(2))),)),)
    assert found[6:8] == [(RowFenced(2),), (RowStored(),)]
    assert found[8] == (FencedRows("w1", 2, 8, ()),), "nothing is raised, and nothing is below"
    rows = (EpochRows("w1", 1, (queued(1), queued(2))), EpochRows("w1", 2, (queued(1, "m4"),)))
    assert found[9] == (FencedRows("w1", 5, 9, rows),)
    assert found[10:] == [(RowFenced(5),), (RowStored(),)]


def test_PS_193_as_many_rows_are_read_as_are_asked_for(database):
    stored = [row(number) for number in range(1, 6)]
    found = play(
        database, LOAD, BEGIN, *stored, ReadPending(S, "w1", 2, (1, 0)), ReadPending(S, "w1", 2, (1, 2)),
        CommitState(S, 1, change_to(SessionState(taken=Map({"w1": (1, 3)})))), ReadPending(S, "w1", 1, (1, 0)),
        ReadPending(S, "", 1), ReadPending(S, "w1", 2, (1, 3)), MarkDelivered(S, "w1", 1, 3, 4),
        ReadPending(S, "w1", 5),
    )  # fmt: skip
    answers = [answer[0] for answer in found[7:] if answer and answer != (StateCommitted(),)]
    read = [tuple(one.number for each in answer.found for one in each.rows) for answer in answers]
    assert read == [(1, 2), (3, 4), (4,), (4,), (4, 5), (5,)]


def test_PS_194_a_fence_says_whether_there_are_more_rows(database):
    found = play(
        database, LOAD, BEGIN, row(1), row(2), BEGIN, row(1, "m4", epoch=2),
        Fence(S, "w1", (1, 0), 0, 1, 1, 1), Fence(S, "w1", (1, 1), 3, 1, 1, 1), Fence(S, "w1", (1, 2), 3, 1, 1, 1),
        Fence(S, "w1", (1, 0), 3, 1, 1, 3), Fence(S, "w1", (1, 1), 3, 1, 1, 2),
    )  # fmt: skip
    read = [
        (answer.below, [(each.epoch, one.number) for each in answer.found for one in each.rows], answer.more)
        for (answer,) in found[6:]
    ]
    both = [(1, 2), (2, 1)]
    assert read == [(3, [(1, 1)], True), (3, [(1, 2)], True), (3, [(2, 1)], False),
                    (3, [(1, 1), *both], False), (3, both, False)]  # fmt: skip


def test_who_has_a_lower_token_is_told_and_changes_nothing(database):
    state = SessionState(taken=Map({"w1": (1, 1)}), places=1)
    found = play(
        database, LOAD, BEGIN, row(1), LoadSession("c1", "other", 2),
        CommitState(S, 1, change_to(state)), Fence(S, "w1", (1, 0), 0, 1, 1), SubscribeLive(S, "owner", 1), LOAD,
        UnsubscribeLive(S, 1), row(2), LoadSession("c1", "third", 3),
    )  # fmt: skip
    assert found[4:8] == [(NotOwner(),)] * 4
    assert found[8:10] == [(), (RowStored(),)]
    assert found[10] == (SessionLoaded(S, SessionState()),)


def test_the_state_is_what_was_committed_last(database):
    def packet(number, place, status):
        return InFlightRecord(number, "c1", queued(place + 1), place, status)

    first = SessionState(
        Map({"w1": (1, 5), "w2": (2, 1)}),
        Map({1: packet(1, 0, InFlightStatus.SENT), 2: packet(2, 1, InFlightStatus.TAKEN)}),
        (queued(3), queued(4), queued(5)),
        2,
    )
    second = SessionState(
        Map({"w1": (3, 1), "w2": (2, 1)}),
        Map({2: packet(2, 1, InFlightStatus.RELEASED), 3: packet(3, 2, InFlightStatus.TAKEN)}),
        (queued(4), queued(5), queued(6)),
        3,
    )
    third = SessionState(second.taken, queued=(queued(6), queued(6)), places=4)
    commits = []
    for before, state in ((SessionState(), first), (first, second), (second, third)):
        commits.append(CommitState(S, 1, change_to(state, before)))
        found = play(database, LOAD, *commits, LoadSession("c1", "owner", 2))
        assert found[1:-1] == [(StateCommitted(),)] * len(commits)
        assert found[-1] == (SessionLoaded(S, state),)


async def test_who_subscribes_hears_of_writers_that_live_and_of_those_that_are_gone(database):
    opened = await database.open()
    for one in (LOAD, BEGIN, BeginEpoch(S, "w2")):
        await opened.ask(one)
    both = await opened.ask(SubscribeLive(S, "owner", 1))
    await opened.live("w1", False)
    one = await opened.ask(SubscribeLive(S, "owner", 1))
    await opened.live("w1", True)
    again = await opened.ask(SubscribeLive(S, "owner", 1))
    await opened.close()
    assert both == again == (SubscribedLive(("w1", "w2")),)
    assert one == (SubscribedLive(("w2",), ("w1",)),)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_row_that_is_stored_again_stays_what_it_is(kind, request, tmp_path_factory):
    """Of the model nobody asks that: a writer reads back first."""
    database = Real(new_url(kind, request, tmp_path_factory))
    found = play(database, LOAD, BEGIN, row(1), row(2), row(2), row(1), row(3), ReadPending(S, "w1"))
    assert found[2:7] == [(RowStored(),)] * 5
    assert found[7] == (Polled("w1", (EpochRows("w1", 1, (queued(1), queued(2), queued(3))),)),)


def test_PS_175_rows_are_confirmed_that_are_stored_exactly_so(database):
    """Another message, filter or QoS, a number that is not there, another epoch or writer: not confirmed."""
    said = (
        EpochRows("w1", 1, (queued(1), queued(2, "m9"), queued(3), queued(4))),
        EpochRows("w1", 1, (Queued(1, "m1", "a/b", 1), Queued(1, "m1", "a/+", 2))),
        EpochRows("w1", 2, (queued(1),)),
        EpochRows("w9", 1, (queued(1),)),
    )
    asked = ConfirmRows(S, 1, said)
    found = play(database, LOAD, BEGIN, row(1), row(2), row(3), asked, LoadSession("c1", "next", 2), asked)
    kept = ((queued(1), queued(3)), (), (), ())
    assert [one.rows for one in found[5][0].found] == list(kept)
    assert found[-1] == (NotOwner(),)


def test_nobody_asks_what_is_not_answered():
    """The requests of the protocol, and those that are compared below."""
    kinds = {one for one in vars(requests).values() if isinstance(one, type) and issubclass(one, Request)} - {Request}
    assert kinds == {
        BeginEpoch, PutRows, ReadRow, PutMarker, LoadSession, ReadPending, SubscribeLive, UnsubscribeLive, Fence,
        CommitState, MarkDelivered, ConfirmRows,
    }  # fmt: skip


# -- random operations ----------------------------------------------------------------------------------------------


async def compare(url, moves, page):
    model, real = await Model().open(), await Real(url, page=page).open()
    player = Player()
    try:
        for kind, *given_ in [("load", 1), *moves, ("pending", "", 0, (0, 0)), ("load", 3)]:
            if kind == "live":
                await model.live(*given_)
                await real.live(*given_)
                continue
            asked = player.request(kind, *given_)
            if asked is not None:
                wanted = await model.ask(asked)
                assert await real.ask(asked) == wanted, asked
                player.learn(asked, wanted)
    finally:
        await real.close()


@pytest.mark.long
@given(moves=MOVES)
def test_random_requests_are_answered_as_the_model_answers(shared_url, moves):
    asyncio.run(compare(shared_url, moves, 1_000))


@pytest.mark.long
@given(before=st.lists(SMALL, max_size=8), gone=st.integers(0, 9), added=st.lists(SMALL, max_size=8))
def test_whatever_was_queued_the_next_commit_is_what_is_read(sqlite_shared, before, gone, added):
    """Equal messages next to each other, too: which of them went is not seen."""

    async def run():
        real = await sqlite_shared.open()
        await real.ask(LOAD)
        first = tuple(queued(number) for number in before)
        second = (*first[gone:], *(queued(number) for number in added))
        dequeued = min(gone, len(first))
        more = StateChange(dequeued=dequeued, queued=second[len(first) - dequeued :])
        for change in (StateChange(queued=first), more):
            assert await real.ask(CommitState(S, 1, change)) == (StateCommitted(),)
        assert await real.ask(LOAD) == (SessionLoaded(S, SessionState(queued=second)),)
        await real.close()

    asyncio.run(run())


@pytest.fixture(scope="module")
def sqlite_shared(request, tmp_path_factory):
    return Real(new_url("sqlite", request, tmp_path_factory))


ANN = Identity(frozenset({"ann"}))


class Client:
    """A client and its connections, at a node in one of its lives."""

    def __init__(self, store, clock, node="n1", expiry_s=100):
        self.store, self.clock, self.node = store, clock, node
        self.expiry_ms = expiry_s if expiry_s == life_request.NEVER else expiry_s * 1_000
        self.count, self.life = 0, 1

    async def lock(self):
        self.count += 1
        owner = f"{incarnation(self.node, self.life)}/{self.count}"
        (locked,) = await self.store.ask(life_request.LockClient("c", owner, 500))
        assert isinstance(locked, life_request.ClientLocked)
        return owner, locked

    async def connect(self, session="s1", delay_s=10):
        """Its will says which connection it is of."""
        owner, locked = await self.lock()
        self.session = session
        self.token = locked.token
        opened = life_request.OpenSession("c", owner, locked.token, session, "", self.expiry_ms)
        will = SessionWill(f"w/{self.count}", b"gone", 1, False, None, b"", delay_s * 1_000, ANN)
        assert await self.store.do(OpenWithWill(opened, will)) == (life_request.SessionOpen(),)
        await self.store.ask(life_request.UnlockClient("c", owner))
        return owner

    async def leave(self, expiry_s=None):
        expiry_ms = self.expiry_ms if expiry_s is None else expiry_s * 1_000
        await self.store.ask(life_request.LeaveSession("c", self.session, self.token, expiry_ms))

    async def due(self, after_s=0.0):
        """Topics of the wills that are due then."""
        self.clock.now += int(after_s * SECOND)
        found = await self.store.do(FindDueWills())
        if found.has_ended:
            await self.store.do(EndWills())
            found = await self.store.do(FindDueWills())
        assert all((one.client, one.will.identity) == ("c", ANN) for one in found.wills)
        return [one.will.topic for one in found.wills]


@pytest.mark.parametrize(
    ("delay_s", "expiry_s", "due_s"), [(10, 100, 10), (10, life_request.NEVER, 10), (10, 3, 3), (0, 100, 0), (10, 0, 0)]
)
async def test_PS_478_PS_479_a_will_is_due_after_its_delay_or_at_the_end_of_the_session_and_is_sent_once(
    url, delay_s, expiry_s, due_s
):
    async with open_node_store(url) as (store, clock):
        client = Client(store, clock, expiry_s=expiry_s)
        await store.begin_life("n1", 1_000_000)
        client.life = 2
        owner = await client.connect(delay_s=delay_s)
        assert await client.due(50) == [], "its connection lives"
        await client.leave()
        if due_s:
            assert await client.due(due_s - 0.001) == []
        assert await client.due(0.002) == ["w/1"]
        assert [await store.do(PutMessage(name, "w/1", b"", 1, will=owner)) is None for name in "ab"] == [False, True]


@pytest.mark.parametrize("session", ["s1", "s2"])
async def test_PS_478_PS_525_a_connection_that_comes_before_deletes_the_will_and_one_that_comes_behind_does_not(
    sqlite_url, session
):
    """Also one that begins a new session."""

    async with open_node_store(sqlite_url) as (store, clock):
        client = Client(store, clock)
        await store.begin_life("n1", 1_000_000)
        client.life = 2
        await client.connect()
        await client.leave()
        clock.now += 9 * SECOND
        await client.connect(session)
        assert await client.due(100) == []
        await client.leave()
        clock.now += 10 * SECOND
        await client.connect()
        assert await client.due() == ["w/2"]


@pytest.mark.parametrize("expiry_s", [life_request.NEVER, 100])
async def test_PS_522_a_client_that_locks_its_session_and_dies_leaves_no_will(url, expiry_s):
    """The superseded connection cannot end the session any more."""

    async with open_node_store(url) as (store, clock):
        client = Client(store, clock, expiry_s=expiry_s)
        await store.begin_life("n1", 1_000_000)
        client.life = 2
        await client.connect()
        clock.now += 50 * SECOND
        await client.lock()
        await client.leave()
        assert await client.due(9.9) == []
        assert await client.due(0.2) == ["w/1"]
