"""Lives of one name: counted in the group store, the newest wins (SS-230 to SS-233).

What the log of a leader host tells of its groups (SS-257), over the pure stores.
"""

import asyncio
import contextlib
import logging

import pytest
from test_leader import Bench
from waiting import run_async, turns, until_async

from statemachines.drivers.role import NodeRole
from statemachines.drivers.shared_subscriptions import milestones, node_life
from statemachines.drivers.shared_subscriptions.milestones import Milestones
from statemachines.drivers.shared_subscriptions.node_life import TakenName
from statemachines.drivers.tcp import TcpTransport
from statemachines.kernel import Ask, Map, Node
from statemachines.shared_subscriptions import group_store
from statemachines.shared_subscriptions.claim import Halt
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import Commit, GroupStore, StoreFailed
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.message import BorrowerMessage, Disconnect, LeaderMessage, LeaderWanted
from statemachines.wire import Packet

C = Configuration()
OLD, NEW = 0x0123456789ABCDEF, 2**64 - 1


class Store:
    """The group store in memory; `now` is its time and everybody's clock; `fails`: so many requests from now on, after
    having carried them out (`silently`) or not."""

    def __init__(self):
        self.state = Map()
        self.now = 10**15
        self.fails = 0
        self.silently = False
        self.commits = 0

    async def ask(self, request):
        await turns()  # others ask meanwhile
        self.commits += isinstance(request, Commit)
        failed = self.fails > 0
        self.fails -= failed
        if failed and not self.silently:
            return (StoreFailed(request.n),)
        self.now += 1
        self.state, answers = GroupStore().apply(self.state, request, self.now)
        return (StoreFailed(request.n),) if failed else answers

    def name(self, bits, node="c1"):
        return TakenName(self, node, bits, C, lambda: self.now)


@pytest.fixture
def store(monkeypatch):
    """Sleeping is the passing of its time."""
    store = Store()

    async def sleep(seconds):
        store.now += round(seconds * 1e9)
        await turns()

    monkeypatch.setattr(node_life.asyncio, "sleep", sleep)
    return store


def take(name, above=0):
    return run_async(name.take(above))


async def test_SS_230_of_two_that_start_at_once_one_waits_and_both_have_numbers_of_their_own(store):
    assert sorted(await asyncio.gather(store.name(1).take(0), store.name(2).take(0))) == [1, 2]


@pytest.mark.parametrize("silently", [False, True])
async def test_SS_230_a_commit_whose_outcome_is_open_takes_one_number(store, silently):
    first = store.name(1)

    await first._read_once()
    store.fails, store.silently = 0, silently
    found = await first._read()
    store.fails = 1
    first.number = 1
    await first._put(found, 1, 1)
    assert await first.take(0) == 1
    assert await store.name(2).take(0) == 2


def held(store, name, then):
    """`hold` while `then()` happens, for an hour of the store's time."""

    async def holding():
        task = asyncio.ensure_future(name.hold())
        await turns()
        await then()
        end = store.now + 3600 * 10**9
        while not task.done() and store.now < end:
            await node_life.asyncio.sleep(1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    run_async(holding())


def test_SS_231_a_store_that_fails_ends_nobody(store):
    name = store.name(OLD)
    take(name)

    async def then():
        store.fails = 20

    held(store, name, then)
    assert store.fails == 0


def test_SS_232_a_clock_of_the_store_that_was_set_back_is_waited_for_no_longer_than_a_validity(store):
    take(store.name(1))
    store.now -= 3600 * 10**9
    begin = store.now
    assert take(store.name(2)) == 2
    assert C.validity_ms * MS <= store.now - begin <= 2 * C.validity_ms * MS


# -- on the wire ----------------------------------------------------------------------------------------------------

LIVES_LEADER = NodeRole("p", "leader", takes=BorrowerMessage, dialled_by=("consumer",))
CONSUMER = NodeRole("p", "consumer", takes=LeaderMessage, dials=("leader",))


async def connected(leader, life):
    """A consumer of this life, whose connection has been greeted or ended."""
    ours = TcpTransport(life=life, role=CONSUMER, receive=lambda packet: None, dial={"leader": leader.address})
    return await ours.__aenter__()


async def speak(ours, sender, until):
    """Say something to the leader as `sender`, again and again, until that holds."""
    packet = Packet(sender, "leader", 1, LeaderWanted(sender, "g", "#"))
    await until_async(until, meanwhile=lambda: ours.send(packet))


@pytest.mark.parametrize(
    ("sender", "takes"),
    [
        ("c1~5.00000000000000ff/1", True),
        ("c1~5.00000000000000ff", True),
        ("c1~5/1", False),
        ("c1~4.00000000000000ff/1", False),
        ("c1~5.00000000000000fe/1", False),
        ("c1~5.00000000000000ff0/1", False),
    ],
)
async def test_SS_233_who_speaks_as_another_life_of_its_name_is_cut_off(sender, takes, caplog):
    heard = []
    leader = TcpTransport(life="l~1", role=LIVES_LEADER, receive=heard.append, listen=("127.0.0.1", 0))
    async with leader:
        ours = await connected(leader, "c1~5.00000000000000ff")
        await speak(ours, sender, lambda: heard or "is cut off" in caplog.text)
        await ours.__aexit__(None, None, None)
    assert bool(heard) is takes
    assert ("which does not live on it" in caplog.text) is not takes


SAYS = "leader-1: group g, #: "


class Told(Bench):
    """A leader whose milestones are logged."""

    def __init__(self, **options):
        super().__init__(**options)
        observe = Milestones("leader-1", self.saw).observe
        self.node = Node(LEADER, self.before, name=self.before.id, now_ns=0, check=True, observe=observe)

    def renew(self, ms):
        """The heartbeat asks the store, which answers at that time."""
        self.down = "deaf"
        self.at(5_000)
        self.down = ""
        for answer in self.apply(Ask(group_store.SERVICE, self.lost.pop())):
            self.feed(answer, ms)


@pytest.fixture
def said(caplog):
    """What was logged since it was asked last."""
    caplog.set_level(logging.INFO, logger="gapless")

    def new():
        lines = [record.getMessage() for record in caplog.records]
        assert all(line.startswith(SAYS) for line in lines)
        assert {record.levelname for record in caplog.records} <= {"INFO"}
        caplog.clear()
        return [line.removeprefix(SAYS) for line in lines]

    return new


def test_SS_257_who_goes_without_a_word_is_named_and_so_is_the_end_of_its_lease(said):
    bench = Told().start()
    bench.join("a")
    bench.ping("a")
    said()
    bench.at(bench.now + 5_000)
    waits = "; its streams wait for the end of its lease"
    gone = [f"a~1/1 is no member any more: it expired, since nothing was heard of it{waits}"]
    assert said() == [*gone, "the lease of a~1/1 has ended; its streams are free"]


def test_SS_257_who_comes_and_goes_without_end_fills_no_log(caplog, monkeypatch):
    """And what a leader says of its claim is not left out for it."""
    monkeypatch.setattr(milestones, "LINES_MAX", 4)
    monkeypatch.setattr(milestones, "WINDOW_NS", 1_000 * MS)
    caplog.set_level(logging.INFO, logger="gapless")
    bench = Told().start()
    caplog.clear()
    for number in range(4):
        bench.feed(LeaderWanted("a~1/1", "g", "#"))
        bench.feed(Disconnect("a~1/1", 1, number + 1, ()))
    members = [one for one in caplog.messages if "member" in one or "streams" in one]
    assert len(members) == 4, members
    caplog.clear()
    bench.feed(LeaderWanted("b~1/1", "g", "#"), bench.now + 1_000)
    bench.feed(Halt())
    left_out, member, *others = caplog.messages
    assert "lines about members were left out; somebody comes and goes without end" in left_out
    assert member.endswith("b~1/1 is a member")
    assert others[-1].endswith("does not lead it any more: released")
