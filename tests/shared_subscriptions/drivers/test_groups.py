"""Groups are declared and destroyed while members live (settled page, scenarios 2, 3 and 5)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from test_nodes import CALM, PATIENT, read

from statemachines.cli import run as gapless
from statemachines.drivers import shared_subscriptions
from statemachines.kernel import ConfigurationError, Tell
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group import GroupDestroyed
from statemachines.shared_subscriptions.group_store import Commit, Properties, record_key

GROUP = "$shared/g/#"
SHORT_CLAIM = replace(PATIENT, claim_ttl_ms=1_500)
"""Whoever destroys a group waits until its leader's claim is over."""


class Place:
    """A store, a publisher, and a leader host."""

    def __init__(self, folder, times=CALM):
        self.store = folder / "messages.db"
        self.times = times

    async def publish(self, *payloads):
        async with shared_subscriptions.Publisher(self.store) as publisher:
            await publisher.publish("orders", payloads)

    @asynccontextmanager
    async def leading(self):
        node = shared_subscriptions.LeaderNode(listen=("127.0.0.1", 0), store=self.store, configuration=self.times)
        async with node:
            self.leader = "{}:{}".format(*node.address)
            yield node

    def consumer(self, node, **options):
        return shared_subscriptions.SharedSubscription(
            GROUP, leader=self.leader, store=self.store, node=node, configuration=self.times, **options
        )


def payloads(messages):
    return [message.payload for message in messages]


async def test_scenario_2_a_group_declared_with_start_0_reads_everything_stored(tmp_path):
    place = Place(tmp_path)
    await place.publish(b"one", b"two")
    told = await shared_subscriptions.declare(GROUP, store=place.store, start="beginning", configuration=CALM)
    assert (told.start_ns, told.found) == (0, False)
    async with place.leading(), place.consumer("consumer-1") as messages:
        assert payloads(await read(messages, 2)) == [b"one", b"two"]


async def test_the_groups_of_a_store_are_listed_whoever_declared_them(tmp_path, capsys):
    """With more streams than a page has, records of another group between, and one that is being destroyed."""
    place = Place(tmp_path)
    await shared_subscriptions.declare("$queue/q/#", store=place.store, order="relaxed", configuration=CALM)
    await shared_subscriptions.declare("$shared/g/orders/#", store=place.store, configuration=CALM)
    async with place.leading(), place.consumer("consumer-1") as messages:
        await place.publish(b"one")
        await read(messages, 1)
        one, other, queue = await shared_subscriptions.groups.list_groups(store=place.store)
        assert (one.subscription, one.epoch, one.order) == (GROUP, 1, "strict")
        assert one.leader.startswith("leader-")
        assert (queue.subscription, queue.order, queue.leader) == ("$shared/q/#", "relaxed", "")
        assert other.subscription == "$shared/g/orders/#"
    opened = await asyncio.to_thread(shared_subscriptions.groups.open_stores, place.store)
    many = tuple((record_key("g", "#", f"progress:0.0/t{number}"), 1) for number in range(2_500))
    gone = replace(Properties(0, 1, 2, 3), destroyed=True)
    await opened.groups.ask(Commit(1, (), (*many, (record_key("h", "a\x1b", "properties"), gone))))
    await opened.groups.close()
    await opened.streams.close()
    assert await asyncio.to_thread(gapless, ["group", "list", "--store", str(tmp_path / "messages.db")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{GROUP}: strict order, led by nobody",
        "$shared/g/orders/#: strict order, led by nobody",
        "$shared/h/a\\x1b: strict order, led by nobody, is being destroyed",
        "$shared/q/#: relaxed order, led by nobody",
    ]
    assert await asyncio.to_thread(gapless, ["group", "list", "--store", str(tmp_path / "none.db")]) == 2
    assert "there is no such file" in capsys.readouterr().err


async def test_leaders_may_keep_what_they_know_in_a_database_of_its_own(tmp_path):
    place = Place(tmp_path)
    messages, place.store = str(place.store), f"{place.store};{tmp_path / 'leaders.db'}"
    await shared_subscriptions.declare(GROUP, store=place.store, start="beginning", configuration=CALM)
    async with shared_subscriptions.Publisher(messages) as publisher:
        await publisher.publish("orders/1", b"one")
    async with place.leading(), place.consumer("consumer-1") as consumer:
        assert payloads(await read(consumer, 1)) == [b"one"]
    assert await shared_subscriptions.groups.list_groups(store=messages) == []
    (group,) = await shared_subscriptions.groups.list_groups(store=place.store)
    assert (group.subscription, group.epoch) == (GROUP, 1)
    place.times = replace(CALM, dead_letter_topic="dead", max_deliver=2)
    with pytest.raises(ConfigurationError, match="needs both stores in one database"):
        async with place.leading():
            pass


async def test_scenario_3_the_first_subscribe_declares_from_now_on(tmp_path):
    place = Place(tmp_path)
    await place.publish(b"before")
    async with place.leading(), place.consumer("consumer-1") as messages:
        assert (await shared_subscriptions.declare(GROUP, store=place.store, configuration=CALM)).found
        await place.publish(b"after")
        assert payloads(await read(messages, 1)) == [b"after"]


async def test_scenario_5_a_destroyed_group_delivers_nothing_until_a_new_subscribe(tmp_path):
    place = Place(tmp_path, SHORT_CLAIM)
    async with place.leading(), place.consumer("consumer-1", start="beginning") as member:
        await place.publish(b"one")
        assert payloads(await read(member, 1)) == [b"one"]
        assert (await shared_subscriptions.destroy(GROUP, store=place.store, configuration=SHORT_CLAIM)).found
        await place.publish(b"two")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await read(member, 1)
        async with place.consumer("consumer-2") as later:
            await place.publish(b"three")
            async with asyncio.timeout(120):
                first = await anext(aiter_of(member, later))
    assert first.payload == b"three", "the new group begins when it is declared"


async def aiter_of(*subscriptions):
    """The next message of whichever gets one: a member of the old group takes part in the new one, too."""
    tasks = [asyncio.create_task(read(one, 1)) for one in subscriptions]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    yield done.pop().result()[0]


async def test_a_subscriber_with_other_times_is_told(tmp_path):
    place = Place(tmp_path)
    await shared_subscriptions.declare(GROUP, store=place.store, configuration=Configuration())
    async with place.leading():
        with pytest.raises(ConfigurationError, match="the group lives by ping_interval_ms = 1000"):
            async with place.consumer("consumer-1"):
                pass


def test_the_commands_declare_and_destroy(tmp_path, capsys):
    store = str(tmp_path / "messages.db")
    assert gapless(["group", "declare", GROUP, "--store", store, "--start", "beginning"]) == 0
    assert gapless(["group", "declare", GROUP, "--store", store]) == 0
    assert gapless(["group", "destroy", GROUP, "--store", store]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "$shared/g/#: declared, from the beginning on",
        "$shared/g/#: was declared already, from the beginning on",
        "$shared/g/#: destroyed",
    ]
    assert gapless(["group", "destroy", "$shared/g", "--store", store]) == 2


@pytest.mark.parametrize("verb", ["declare", "destroy"])
@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "mysql"])
def test_the_commands_take_the_url_of_a_store_and_print_no_password(tmp_path, capsys, monkeypatch, verb, scheme):
    monkeypatch.chdir(tmp_path)
    url = f"{scheme}://me:hush-hush@127.0.0.1:1/none?sslmode=bogus"
    assert gapless(["group", verb, GROUP, "--store", url]) == 2
    said = "".join(capsys.readouterr())
    assert "store = " in said
    assert "127.0.0.1:1/none" in said
    assert "hush-hush" not in said


def test_the_commands_take_the_url_of_a_file(tmp_path, capsys):
    assert gapless(["group", "declare", GROUP, "--store", f"sqlite:///{tmp_path}/by_url.db"]) == 0
    assert (tmp_path / "by_url.db").exists()


class Sleeping:
    """A machine that waits for an hour, and then tells that it is done."""

    def __init__(self, event):
        self.event = event

    def deadline(self):
        return 3_600 * 10**9

    def fire(self, now_ns):
        return [Tell(self.event)] if now_ns >= self.deadline() else []


def test_who_waits_while_the_machine_sleeps_is_done_soon_after(monkeypatch):
    """The event loop's clock stands still meanwhile."""
    now = [0]
    done = GroupDestroyed("g", "#", found=True)
    monkeypatch.setattr(shared_subscriptions.groups, "steady_ns", lambda: now[0])
    monkeypatch.setattr(shared_subscriptions.groups, "LOOK_AGAIN_S", 0.001)

    async def test():
        waiting = asyncio.ensure_future(shared_subscriptions.groups._drive(Sleeping(done), None, []))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        now[0] = 3_700 * 10**9
        return await asyncio.wait_for(waiting, 10)

    assert asyncio.run(test()) == done


def test_a_member_says_that_no_leader_host_takes_it_and_the_host_says_why(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(shared_subscriptions.leaderless_groups, "AFTER_S", 0.2)

    async def test():
        place = Place(tmp_path)
        await shared_subscriptions.declare(GROUP, store=place.store, configuration=CALM)
        hasty = shared_subscriptions.LeaderNode(
            listen=("127.0.0.1", 0), store=place.store, configuration=replace(CALM, ping_interval_ms=77)
        )
        async with hasty:
            place.leader = "{}:{}".format(*hasty.address)
            async with place.consumer("consumer-1"):
                while not any("no leader host has taken $shared/g/# for" in line for line in caplog.messages):
                    await asyncio.sleep(0.05)

    with caplog.at_level(logging.INFO, "gapless"):
        asyncio.run(asyncio.wait_for(test(), 60))
    assert any("start this host with the times that the group was declared with" in line for line in caplog.messages)
