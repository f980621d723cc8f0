"""A member process whose way to PostgreSQL is cut, and nobody else's: the other member gets its streams."""

from __future__ import annotations

import asyncio
import os

import pytest
from outside import Process
from sqlalchemy import make_url
from stage import TENTH

from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.testing.fault_proxy import FaultProxy
from statemachines.testing.postgres import run_sql
from statemachines.testing.process_harness import free_port

TIMES = {**TENTH, "ping_timeout_ms": 1_000, "validity_ms": 1_500}
"""A validity that a busy machine keeps."""
TOPICS = ("a", "b", "c", "d")
GROUP = "$shared/g/#"


@pytest.fixture
def url(postgres_server):
    """An empty database of PostgreSQL."""
    name = f"without_{os.getpid()}"
    run_sql(postgres_server, f"CREATE DATABASE {name} TEMPLATE template0")
    return f"{postgres_server.rpartition('/')[0]}/{name}"


class Group:
    """A leader host and a member here; a member in a process of its own, behind a proxy."""

    def __init__(self, folder, url):
        self.folder, self.url = folder, url
        self.config = folder / "group.toml"
        self.config.write_text("".join(f"{name} = {value}\n" for name, value in TIMES.items()))
        self.times = Configuration(**TIMES)
        self.got = set()

    def leading(self):
        return LeaderNode(listen=("127.0.0.1", 0), store=self.url, state=self.folder, configuration=self.times)

    def member(self, leader):
        given = {"store": self.url, "state": self.folder, "configuration": self.times}
        return SharedSubscription(GROUP, leader=leader, start="beginning", **given)

    def process(self, leader, proxy):
        host, port = proxy.address
        behind = make_url(self.url).set(host=host, port=port).render_as_string(hide_password=False)
        role = ("node", "consumer", GROUP, "--store", behind, "--leader", leader, "--start", "beginning")
        given = ("--state", self.folder, "--config", self.config, "--out", self.folder / "got.jsonl")
        return Process(self.folder / "member.log", *role, *given)

    async def publish(self, *numbers):
        async with Publisher(self.url, state=self.folder) as publisher:
            for topic in TOPICS:
                await publisher.publish(topic, [b"%d" % number for number in numbers])

    async def read(self, messages):
        async for batch in messages.batches(10):
            self.got |= {(one.topic, one.offset) for one in batch}
            await batch.ack()


def has_read_all(path):
    """The process has acknowledged the first message of each topic."""
    return path.exists() and path.read_text().count('["ack"') >= len(TOPICS)


async def until(holds, what):
    async with asyncio.timeout(90):
        while not holds():
            await asyncio.sleep(0.02)
    assert holds(), what


async def test_SS_292_a_member_that_lost_the_database_alone_gives_its_streams_to_the_other(tmp_path, url):
    group = Group(tmp_path, url)
    await group.publish(0)
    target = make_url(url)
    async with group.leading() as node, FaultProxy((target.host, target.port)) as proxy:
        leader = "{}:{}".format(*node.address)
        with group.process(leader, proxy) as process:
            await until(lambda: has_read_all(tmp_path / "got.jsonl"), "it has read what there was")
            async with group.member(leader) as messages:
                reading = asyncio.ensure_future(group.read(messages))
                proxy.target = ("127.0.0.1", free_port())
                proxy.cut()
                await group.publish(1, 2, 3)
                new = {(topic, offset) for topic in TOPICS for offset in (1, 2, 3)}
                await until(lambda: new <= group.got, "the other member has read all")
                assert "are given back to the group" in process.said
                proxy.target = (target.host, target.port)
                await until(lambda: f"{GROUP} takes part again" in process.said, "it takes part again")
                reading.cancel()
