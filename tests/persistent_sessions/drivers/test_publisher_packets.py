"""Packet ids of publishers in the tables: kept under the token of their session, and each row stored once."""

from session_databases import SECOND, connect, open_node_store

from statemachines.drivers.persistent_sessions.machine_requests import StoreRows
from statemachines.drivers.persistent_sessions.node_messages import RetainHandling
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.route_rows import (
    PacketsFound,
    PublisherPacket,
    PutMessage,
    ReadPackets,
    Subscribe,
    SubscribeFront,
)
from statemachines.drivers.persistent_sessions.route_trie import Route
from statemachines.persistent_sessions.life_request import LeaveSession
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import BeginEpoch, PutRows, RowsDuplicate, RowStored

PAYLOAD = Payload("a", b"x")


async def publish(store, publisher, *, token=0, packet=5, message="m1"):
    """A message of QoS 2 of the publisher's session."""
    kept = PublisherPacket("p1", token or publisher.token, packet)
    return await store.do(PutMessage(message, "a", b"x", 2, packet=kept))


async def begin(store, filters=("a",)):
    """A publisher, and a subscriber with a writer."""
    publisher = await connect(store, "p1", "publisher")
    one = await connect(store, "s1")
    for topic_filter in filters:
        await store.do(Subscribe("s1", one.token, topic_filter, 1))
    for writer in ("w1", "w2"):
        await store.ask(BeginEpoch("s1", writer))
    return publisher


async def put(store, writer, first, *filters):
    rows = tuple(Queued(number, "m1", one) for number, one in enumerate(filters, first))
    (answer,) = await store.do(StoreRows(PutRows("s1", writer, 1, rows), {"m1": PAYLOAD}, frozenset({"m1"})))
    return answer


async def test_PS_475_a_packet_id_is_kept_with_its_message_and_each_row_is_stored_by_one_node(url):
    async with open_node_store(url) as (store, _clock):
        publisher = await begin(store, ("a", "+"))
        routes = await publish(store, publisher)
        assert sorted(routes) == [Route("s1", "+", 1), Route("s1", "a", 1)]
        assert await publish(store, publisher, message="m2") == (), "it is stored under that id"
        found = await store.do(ReadPackets("p1"))
        assert found.packets == (5,)
        ((message, payload, unfinished),) = found.unfinished
        assert (message, payload, sorted(unfinished)) == ("m1", PAYLOAD, sorted(routes))
        assert await put(store, "w1", 1, "a") == RowStored()
        assert (await store.do(ReadPackets("p1"))).unfinished == (("m1", PAYLOAD, (Route("s1", "+", 1),)),)
        assert await put(store, "w2", 1, "a", "+") == RowsDuplicate((1,))
        assert await put(store, "w2", 1, "+", "+") == RowsDuplicate((2,)), "twice in one range"
        assert await put(store, "w2", 1, "+") == RowStored()
        assert await put(store, "w2", 1, "+") == RowStored(), "the same range again is not another"
        assert await put(store, "w1", 2, "a", "+") == RowsDuplicate((2, 3))
        assert await store.do(ReadPackets("p1")) == PacketsFound((5,), ())


async def test_MQ_191_a_message_of_qos_0_has_no_route_to_an_absent_session_of_a_front(url):
    """To a connected one the route leads to its owner (MQ-192), behind those that are stored."""

    async with open_node_store(url) as (store, clock):
        life = await store.begin_life("n1", 10_000)
        front = await connect(store, "s1", "one", owner=f"n1~{life.number}/1")
        python = await connect(store, "s2", "two")
        other = await connect(store, "s3", "three", owner="n2~1/1")
        await store.begin_life("n2", 1)
        await store.do(SubscribeFront("s3", other.token, "+", 0, 0, RetainHandling.NEVER))
        await store.do(SubscribeFront("s1", front.token, "#", 1, 0, RetainHandling.NEVER))
        await store.do(Subscribe("s2", python.token, "#", 1))
        clock.now += SECOND  # the lease of n2 is over: nobody is connected there
        to_front, to_python = Route("s1", "#", 1, 0, True), Route("s2", "#", 1)

        async def find_routes(name, qos):
            ((stored,), (ahead,)) = (
                [await store.do(PutMessage(f"{name}{qos}", "a", b"x", qos))],
                await store.store_ahead(life, 0, [PutMessage(f"{name}{qos}-ahead", "a", b"x", qos)]),
            )
            assert stored == ahead
            return stored

        to_owner = Route("", "#", 0, owner=f"n1~{life.number}/1")
        assert await find_routes("there", 0) == (to_python, to_owner)
        for client, session, token in (("one", "s1", front.token), ("two", "s2", python.token)):
            await store.ask(LeaveSession(client, session, token, 5_000))
        assert await find_routes("away", 0) == (to_python,)
        assert await find_routes("away", 1) == (to_front, to_python)
