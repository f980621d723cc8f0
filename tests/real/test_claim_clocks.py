"""Whose time counts for a claim: two real leader hosts over one store whose clocks are wrong."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import count

import pytest
from msgspec.structs import replace
from stage import TENTH

from statemachines.drivers.environment import REAL
from statemachines.drivers.shared_subscriptions.groups import declare, destroy
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.open_stores import OpenStores
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore, SqliteStreamStore
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import Read
from statemachines.shared_subscriptions.leader_record import HOLDING, LeaderStatus
from statemachines.shared_subscriptions.message import LeaderWanted, Ping
from statemachines.shared_subscriptions.names import record_key

TIMES = Configuration(**TENTH)
PATIENCE_S = 60
DAY_NS = 86_400 * 10**9
RENEWALS, LOOKS = 4, 20


def environment(ahead_ns):
    """A host whose stores have a wall clock that is so far ahead."""

    def open_stores(path):
        def clock():
            return time.time_ns() + ahead_ns

        return OpenStores(SqliteGroupStore(path, clock=clock), SqliteStreamStore(path, clock=clock))

    return replace(REAL, open_stores=open_stores)


class Host:
    """A leader host that somebody asks for the leader of one group all the time."""

    def __init__(self, node):
        self.node = node
        self._ended = False
        self._pings = count(1)

    async def die(self):
        """It is gone, and gives nothing up."""
        if not self._ended:
            self._ended = True
            await self.node.abort()

    def ask(self):
        """Somebody looks for the leader, and lets it hear a ping when it leads: a leader that nobody hears lets go."""
        wanted = LeaderWanted("consumer-9~1/1", "g", "#")
        self._hear(self.node.machines.id, wanted)
        for leader, node in tuple(self.node.machines.nodes.items()):
            member = node.record.members.get(wanted.borrower)
            if member is not None:
                link = member.link
                self._hear(leader, Ping(link.borrower, link.epoch, link.registration, next(self._pings), ()))

    def _hear(self, to, message):
        self.node._runtime.run(lambda now: self.node.machines.receive(message.borrower, to, message, now))

    @property
    def record(self):
        """Of its leader."""
        ((_, node),) = self.node.machines.nodes.items()
        return node.record

    def renewals(self):
        """How often its leader has renewed its claim."""
        root = self.record.root if self.node.machines.nodes else None
        return 0 if root is None else root.value

    def is_in(self, *statuses):
        """Whether its leader is there, in one of these."""
        return bool(self.node.machines.nodes) and self.record.status in statuses


async def until(holds, *hosts):
    """Wait for it; the hosts are asked meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            for host in hosts:
                host.ask()
            await asyncio.sleep(0.02)


async def hosts_of(stack, tmp_path, *ahead_ns):
    """Leader hosts by their stores' wall clocks, over one file, and the group is declared."""
    store = tmp_path / "messages.db"
    await declare("$shared/g/#", store=store, configuration=TIMES)
    hosts = []
    for number, ahead in enumerate(ahead_ns, 1):
        node = LeaderNode(
            listen=("127.0.0.1", 0),
            store=store,
            node=f"leader-{number}",
            configuration=TIMES,
            environment=environment(ahead),
        )
        await node.__aenter__()
        hosts.append(Host(node))
        stack.push_async_callback(hosts[-1].die)
    return hosts


@pytest.mark.parametrize("ahead_ns", [DAY_NS, -DAY_NS])
async def test_SS_120_a_host_whose_store_has_another_wall_clock_takes_nothing_from_a_leader_that_lives(
    tmp_path, ahead_ns
):
    async with AsyncExitStack() as stack:
        one, two = await hosts_of(stack, tmp_path, 0, ahead_ns)
        await until(lambda: one.is_in(LeaderStatus.LEADING), one)
        await until(lambda: bool(two.node.machines.nodes), two)

        def has_looked_often():
            looks = two.record.number if two.is_in(LeaderStatus.FOLLOWER) else 0
            return (one.renewals() > RENEWALS and looks > LOOKS) or two.is_in(*HOLDING)

        await until(has_looked_often, one, two)
        assert two.is_in(LeaderStatus.FOLLOWER)
        assert one.is_in(LeaderStatus.LEADING)
        assert one.record.epoch == 1


@pytest.mark.parametrize("ahead_ns", [365 * DAY_NS])
async def test_SS_136_the_claim_of_a_dead_host_whose_wall_clock_was_ahead_is_not_waited_for_longer(tmp_path, ahead_ns):
    async with AsyncExitStack() as stack:
        one, two = await hosts_of(stack, tmp_path, ahead_ns, 0)
        await until(lambda: one.is_in(LeaderStatus.LEADING), one)
        await until(lambda: two.is_in(LeaderStatus.FOLLOWER), two)
        await one.die()
        # A claim_ttl of its own clock passes, and no more: what the store's clock says comes after our patience.
        await until(lambda: two.is_in(LeaderStatus.WAITING, LeaderStatus.LEADING), two)
        assert two.record.epoch == 2


async def test_SS_206_a_group_of_a_dead_leader_whose_wall_clock_was_ahead_is_destroyed_all_the_same(tmp_path):
    async with AsyncExitStack() as stack:
        (one,) = await hosts_of(stack, tmp_path, 365 * DAY_NS)
        await until(lambda: one.is_in(LeaderStatus.LEADING), one)
    async with asyncio.timeout(PATIENCE_S):
        done = await destroy("$shared/g/#", store=tmp_path / "messages.db", configuration=TIMES)
    assert done.found
    groups = SqliteGroupStore(tmp_path / "messages.db")
    (answer,) = await groups.ask(Read(1, (record_key("g", "#", "properties"),)))
    assert answer.records == (None,)
    await groups.close()
