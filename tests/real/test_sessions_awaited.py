"""A PostgreSQL that is not there when nodes start, against real processes: they wait, and go on (PS-201)."""

import signal
from urllib.parse import urlsplit

import pytest

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.sql.failure import StoreAway, StoreUnavailable
from statemachines.testing.fault_proxy import run_in_thread
from statemachines.testing.postgres import PostgresServer
from statemachines.testing.process_harness import free_port
from tests.real.outside import Process
from tests.waiting import run_async

SECRET = "hunter2secret"
WAITS = "waits for its store"
COUNT = 20


@pytest.fixture(scope="module")
def server():
    with PostgresServer() as server:
        yield server


async def all_comes(port):
    nodes = [f"127.0.0.1:{port}"]
    async with PersistentSession("c", nodes=nodes) as session, SessionPublisher(nodes=nodes) as publisher:
        await session.subscribe("t")
        for number in range(COUNT):
            await publisher.publish("t", str(number).encode())
        for number in range(COUNT):
            message = await anext(session)
            while message.dup and int(message.payload) < number:  # its node was too busy to speak, and was left
                message = await anext(session)
            assert message.payload == str(number).encode()
            message.acknowledge()


@pytest.mark.long
def test_PS_201_a_node_that_starts_before_its_database_goes_on_when_it_comes(server, tmp_path):
    store = server.database("late").replace("postgres@", f"postgres:{SECRET}@")
    server.stop(signal.SIGINT)
    port = free_port()
    at = ("--store", store, "--name", "a", "--listen", f"127.0.0.1:{port}")
    with (
        Process(tmp_path / "node.log", "node", "sessions", *at) as node,
        Process(tmp_path / "collector.log", "node", "session-collector", "--store", store) as collector,
    ):
        for one in (node, collector):
            one.until_said(WAITS)
            assert one.child.poll() is None, one.said
        server.start()
        run_async(all_comes(port))
        assert (node.stop(), collector.stop()) == (0, 0)
        for one in (node, collector):
            assert one.said.count(WAITS) == 1
            assert SECRET not in one.said


@pytest.mark.long
@pytest.mark.parametrize("role", [("sessions", "--name", "a", "--listen", "127.0.0.1:0"), ("session-collector",)])
def test_PS_201_who_waits_can_be_told_to_end(role, tmp_path):
    store = f"postgresql://u:{SECRET}@127.0.0.1:{free_port()}/d"
    with Process(tmp_path / "node.log", "node", *role, "--store", store) as node:
        node.until_said(WAITS)
        assert node.stop() == 0, "in good order, and not given up by itself"
        assert SECRET not in node.said
        assert "Traceback" not in node.said


@pytest.mark.long
def test_PS_201_a_database_that_is_cut_off_at_any_byte_while_it_is_opened_is_waited_for(server):
    """From its first byte to the last before the store is open.  Before it is let in that is an error, by several names
    of libpq; after that the opening tries again by itself."""
    url = server.database("cut")
    run_async(open_session_store(url).close())
    port = urlsplit(url).port
    refused, opened = [], []
    with run_in_thread(("127.0.0.1", port)) as proxy:
        through = url.replace(f":{port}/", f":{proxy.address[1]}/")
        for count in (*range(0, 3_000, 200), *range(3_000, 60_000, 3_000)):
            proxy.cut_after("down", count)
            try:
                run_async(open_session_store(through).close())
                opened.append(count)
            except (StoreAway, StoreUnavailable) as error:
                refused.append(str(error))
    assert any("connection to server" in one for one in refused)
    assert len(opened) > 20, "let in, and cut off then"
    assert opened[-1] > 50_000, "behind the last byte"
