"""The TCP transport: packets arrive, connections come back, bad peers are cut off and nobody else notices.

The network in memory: the rules of TCP without a socket.

MachineNode: a protocol that nobody here knows, in one process over a network in memory, and as real processes.

A pure service in a file: what it answered is there, for every process, whoever is killed.
"""

import asyncio
import contextlib
import logging
import subprocess
import sys
import textwrap
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from made_up.machines import (
    DISPENSER,
    JOURNAL,
    TAKER,
    Begin,
    DispenserRecord,
    Given,
    Got,
    Journal,
    Next,
    Take,
    TakerRecord,
)
from made_up.nodes import DISPENSER_ROLE, TAKER_ROLE
from made_up_protocol import environment
from waiting import turns, until, until_async

from statemachines.drivers import Credentials, complaint_log, tcp
from statemachines.drivers.files import FileDamaged, FileService, MemoryService
from statemachines.drivers.memory import MemoryNetwork
from statemachines.drivers.node import MachineNode, NodeEnvironment, one_machine
from statemachines.drivers.payload_buffer import UnfinishedFrames
from statemachines.drivers.role import NodeRole
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.drivers.tcp import TcpTransport, parse_address
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.message import LeaderWanted, Undeclared
from statemachines.wire import Packet, encode_hello, frame

LOCAL = ("127.0.0.1", 0)
WANTED = LeaderWanted("c1~1/1", "g", "#")


class End:
    """One end: a transport, and what it received."""

    def __init__(self, life, role, **options):
        self.received = []
        self.transport = TcpTransport(life=life, role=role, receive=self.received.append, **options)

    async def wait(self, count):
        await until_async(lambda: len(self.received) >= count)


@asynccontextmanager
async def leader(listen=LOCAL, **options):
    end = End("leader-1~1", LEADER, listen=listen, **options)
    async with end.transport:
        yield end


@asynccontextmanager
async def consumer(address, life="c1~1", **options):
    end = End(life, CONSUMER, dial={"leader": address}, **options)
    async with end.transport:
        yield end


def wanted(number):
    return Packet("c1~1/1", "leader", number, WANTED)


async def talk(address, data, read=True):
    """A stranger says `data`; whether it was cut off."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        while read and await reader.read(65_536):
            pass
    except ConnectionError:
        pass
    writer.close()


def say_part(size):
    """A peer that is known, and a frame of a thousand bytes of which so many are said."""
    return encode_hello(CONSUMER.full_name, "x~1") + frame(b"x" * 1_000)[:size]


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ({"limit_s": 0.05}, "began a frame and did not end it within 0.05 s"),
        ({"sum_max": 500}, "all of them have more than 500 bytes"),
    ],
)
async def test_SS_434_a_frame_that_is_not_ended_is_cut_off(caplog, bounds, says):
    async with leader() as end:
        end.transport.unfinished = UnfinishedFrames(**bounds)
        await talk(end.transport.address, say_part(999))
        assert not end.transport.unfinished._sum
    assert says in caplog.text


async def test_more_connections_than_allowed_are_refused(monkeypatch, caplog):
    monkeypatch.setattr(tcp, "CONNECTIONS_MAX", 1)
    async with leader() as end, consumer(end.transport.address) as c:
        await until_async(lambda: c.transport._peers)
        await talk(end.transport.address, encode_hello(CONSUMER.full_name, "x~1"))
        assert len(end.transport._connections) == 1
    assert "there are 1 connections, which is the most" in caplog.text


async def test_PS_457_complaints_about_many_peers_do_not_flood_the_log(monkeypatch, caplog):
    monkeypatch.setattr(complaint_log, "LINES_MAX", 3)
    monkeypatch.setattr(complaint_log, "COMPLAINTS_MAX", 10)
    async with leader() as end:
        for number in range(25):
            peer = SimpleNamespace(peer=f"10.0.0.{number}:1", dialled="")
            for _ in range(2):
                end.transport.complain(peer, f"says {number}")
    assert [record.getMessage() for record in caplog.records] == [
        *(f"10.0.0.{number}:1 says {number}" for number in range(3)),
        "complaints about 10 peers so far; a minute has 3 lines",
        "complaints about 20 peers so far; a minute has 3 lines",
    ]


async def test_what_a_slow_reader_does_not_take_is_dropped_not_kept():
    async with leader(buffer_max=100_000) as end:
        _, writer = await asyncio.open_connection(*end.transport.address)
        writer.write(encode_hello(CONSUMER.full_name, "slow~1"))
        await until_async(lambda: end.transport._peers)
        packet = Packet("leader-1~1", "slow~1/1", 1, Undeclared("x" * 10_000))
        for _ in range(3_000):
            end.transport.send(packet)
            await turns()
        assert end.transport.dropped > 0
        (connection,) = end.transport._connections
        assert connection._wire.get_write_buffer_size() <= 100_000
        writer.close()


async def test_of_several_packets_those_go_out_that_there_is_room_for(caplog):
    async with leader(buffer_max=25_000) as end, consumer(end.transport.address) as c:
        await until_async(lambda: end.transport._peers)
        sizes = (10_000, 10_001, 10_002, 10_003)
        packets = [Packet("leader-1~1", "c1~1/1", one, Undeclared("x" * size)) for one, size in enumerate(sizes)]
        assert end.transport.send_all(packets) == 2
        assert end.transport.dropped == 1
        await c.wait(2)
        assert c.received == packets[:2]
        broken = Packet("leader-1~1", "c1~1/1", 1, Undeclared("\ud800"))
        assert end.transport.send_all([packets[0], broken, packets[1]]) == 1
        await c.wait(3)
        assert c.received == [*packets[:2], packets[0]]
        nobody = Packet("leader-1~1", "other~1/1", 1, Undeclared("x"))
        assert end.transport.send_all([nobody]) == 0
        assert end.transport.dropped == 3
    assert "cannot be written" in caplog.text


async def test_a_node_that_was_started_again_is_found_under_its_name():
    async with leader() as end, consumer(end.transport.address) as old:
        await until_async(lambda: end.transport._peers)
        await old.transport.__aexit__(None, None, None)
        async with consumer(end.transport.address, life="c1~2") as new:
            await until_async(lambda: new.transport._peers)
            await until_async(lambda: end.transport._peers and end.transport._peers["c1"].hello.life == "c1~2")
            end.transport.send(Packet("leader-1~1", "c1~2/1", 1, Undeclared("c1~2/1")))
            await new.wait(1)


async def test_a_message_that_cannot_be_written_is_dropped_with_a_line(caplog):
    async with leader() as end, consumer(end.transport.address):
        await until_async(lambda: end.transport._peers)
        end.transport.send(Packet("leader-1~1", "c1~1/1", 1, Undeclared("\ud800")))
        assert end.transport.dropped == 1
    assert "cannot be written" in caplog.text


async def test_a_port_in_use_is_named():
    async with leader() as end:
        host, port = end.transport.address
        with pytest.raises(ConfigurationError, match=f"{host}:{port}.*choose another"):
            async with leader(listen=(host, port)):
                pass


@pytest.mark.parametrize(
    "text", ["", "localhost", ":80", "[]:80", "host:", "host:x", "host:70000", "host:\u00b2", "a..b:80"]
)
def test_a_malformed_address_is_named(text):
    with pytest.raises(ConfigurationError, match=r"must be HOST:PORT \(a port is 0 to 65535\)"):
        parse_address(text)


PLACE = ("memory", 7411)
MEMORY_WANTED = Packet("consumer-1~1/1", "leader", 5, LeaderWanted("consumer-1~1/1", "g", "#"))


class Pair:
    """A leader host and a consumer, connected; what each has received."""

    def __init__(self, network):
        self.at_leader, self.at_consumer = [], []
        self.leader = network.transport(life="leader-1~1", role=LEADER, receive=self.at_leader.append, listen=PLACE)
        self.consumer = network.transport(
            life="consumer-1~1",
            role=CONSUMER,
            receive=self.at_consumer.append,
            dial={"leader": PLACE},
        )


@asynccontextmanager
async def open_pair(network=None):
    """Two open transports."""
    pair = Pair(network or MemoryNetwork())
    async with pair.leader, pair.consumer:
        yield pair


async def test_SS_236_who_works_on_another_store_is_not_connected_and_it_is_said_once(caplog):
    async with open_pair() as pair:
        network = pair.leader._network
        dial = {"leader": PLACE}
        astray = network.transport(life="consumer-2~1", role=CONSUMER, receive=print, dial=dial, store="other")
        async with astray:
            for _ in range(2):
                astray.send(Packet("consumer-2~1/1", "leader", 1, LeaderWanted("consumer-2~1/1", "g", "#")))
            await turns(2)
            assert (astray.dropped, pair.at_leader) == (2, [])
            assert not pair.leader.is_peer_of("consumer", "consumer-2~1/1")
    assert caplog.text.count("works on another store") == 1


@pytest.mark.parametrize("other", ["consumer-2~1/1", "consumer-1~2/1", "consumer-1~11/1"])
async def test_nobody_speaks_with_anothers_voice(caplog, other):
    with caplog.at_level(logging.WARNING, "gapless"):
        async with open_pair() as pair:
            pair.consumer.send(Packet(other, "leader", 1, LeaderWanted(other, "g", "#")))
            assert not pair.leader.is_peer_of("consumer", other)
            assert pair.leader.is_peer_of("consumer", "consumer-1~1/1")
            pair.leader.send(Packet("leader-1~1/1", "consumer-1~1/1", 1, MEMORY_WANTED.message))
            await turns(2)
            assert pair.at_leader == pair.at_consumer == []
    assert f"sent a message as {other}, which does not live on it" in caplog.text
    assert "a message that is not taken here" in caplog.text


async def test_a_packet_too_large_is_dropped_where_it_is_sent(caplog):
    with caplog.at_level(logging.WARNING, "gapless"):
        async with open_pair() as pair:
            pair.consumer.send(
                Packet(MEMORY_WANTED.sender, "leader", 1, LeaderWanted(MEMORY_WANTED.sender, "g" * 2**20, "#"))
            )
            await turns(2)
            assert (pair.at_leader, pair.consumer.dropped) == ([], 1)
    assert "at most" in caplog.text


async def test_two_lives_at_once_are_told():
    network = MemoryNetwork()

    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr(logging.getLogger("gapless"), "warning", lambda text, *words: said.append(text % words))
        async with open_pair(network):
            again = network.transport(life="consumer-1~2", role=CONSUMER, receive=print)
            async with again:
                pass
    assert said == ["consumer-1~2 has connected again, its connection from before is closed"]


async def test_an_address_that_is_in_use_and_credentials_are_refused():
    network = MemoryNetwork()

    async with open_pair(network):
        options = {"role": LEADER, "receive": print}
        with pytest.raises(ConfigurationError, match=r"memory:7411.*in use"):
            async with network.transport(life="leader-2~1", listen=PLACE, **options):
                pass
        async with network.transport(life="leader-3~1", listen=("memory", 0), **options) as other:
            assert other.address[1] != 0
        with pytest.raises(ConfigurationError, match="takes none"):
            network.transport(life="leader-2~1", credentials=Credentials(secret=b"x" * 16), **options)


MACHINE_NODE_PLACE = ("memory", 7500)


def dispenser(state, network, journal=None, **given):
    services = {JOURNAL: journal or MemoryService(Journal())}
    make = one_machine(DISPENSER, DispenserRecord)
    given = {"node": "dispenser-1", "listen": MACHINE_NODE_PLACE, "environment": network.environment, **given}
    return MachineNode(DISPENSER_ROLE, make, state=state, services=services, **given)


def taker(state, network, goal, tell, **given):
    make = one_machine(TAKER, lambda life: TakerRecord(life, "dispenser", goal))
    given = {"node": "taker-1", "dial": {"dispenser": MACHINE_NODE_PLACE}, "environment": network.environment, **given}
    return MachineNode(TAKER_ROLE, make, state=state, tell=tell, **given)


class Numbers(list):
    """What a taker tells, and when there are enough."""

    def __init__(self, wanted):
        super().__init__()
        self.wanted = wanted

    def __call__(self, event):
        assert isinstance(event, Got)
        self.append(event.number)

    async def wait(self):
        await until_async(lambda: len(self) >= self.wanted)


async def test_two_machines_talk_over_a_network_in_memory(tmp_path):
    network, got = MemoryNetwork(), Numbers(20)
    async with dispenser(tmp_path, network), taker(tmp_path, network, 20, got) as node:
        node.feed(Begin())
        await got.wait()
        assert got == list(range(1, 21))
        assert node.life == "taker-1~1"


async def test_a_service_that_fails_stops_the_node_and_says_why(tmp_path):
    async def broken(party, request, feed):
        raise OSError("the disk is gone")

    network, got = MemoryNetwork(), Numbers(1)
    async with (
        dispenser(tmp_path, network, broken) as node,
        taker(tmp_path, network, 1, got, begin=(Begin(),)),
    ):
        with pytest.raises(OSError, match="the disk is gone"):
            await node.run()


async def test_nobody_speaks_for_another(tmp_path):
    network, refused = MemoryNetwork(), []
    watching = NodeEnvironment(transport=network.transport, refused=refused.append)
    journal = MemoryService(Journal())
    async with dispenser(tmp_path, network, journal, environment=watching):
        stranger = network.transport(
            life="evil~1", role=TAKER_ROLE, receive=print, dial={"dispenser": MACHINE_NODE_PLACE}
        )
        async with stranger:
            stranger.send(Packet("evil~1", "dispenser", 1, Take("taker-1~1", 1)))
            await turns(2)
    assert [str(error) for error in refused] == [
        "made_up/dispenser in state - got take: it is of another taker, taker-1~1"
    ]
    assert journal.state == Journal().initial()


async def test_a_service_may_answer_later_and_often(tmp_path):
    async def thrice(party, request, feed):
        for number in range(3):
            await turns()
            feed(party, Journal().apply(Journal().initial(), Next(request.taker, request.n), number)[1][0])

    network, got = MemoryNetwork(), Numbers(2)
    async with dispenser(tmp_path, network, thrice), taker(tmp_path, network, 2, got, begin=(Begin(),)):
        await got.wait()
    assert got == [1, 1]


def test_a_role_that_talks_to_nobody_is_refused():
    with pytest.raises(ConfigurationError, match=r"made_up/x.*talks to nobody; give it `dials` or `dialled_by`"):
        NodeRole("made_up", "x", takes=Take)


# -- processes ------------------------------------------------------------------------------------------------------


class Process:
    """`gapless node ...`, and what it printed; on leaving it is ended."""

    def __init__(self, folder, name, *arguments):
        self.path = folder / f"{name}.out"
        command = [sys.executable, "-m", "statemachines", "node", *map(str, arguments)]
        command += ["--name", name, "--state", str(folder), "--trace", str(folder / "trace")]
        with self.path.open("ab") as out:
            self.begin = out.tell()
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment())

    def said(self):
        return self.path.read_bytes()[self.begin :].decode().splitlines()

    def numbers(self):
        return [int(line) for line in self.said() if line.isdigit()]

    def until(self, holds):
        until(holds, self.said, child=self.process)

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path):
    running = []

    def begin(name, *arguments):
        running.append(Process(tmp_path, name, *arguments))
        return running[-1]

    yield begin
    for one in running:
        with contextlib.suppress(ProcessLookupError):
            one.kill()


def ask(service, *requests):
    """What is fed for each."""
    fed = []

    async def main():
        for request in requests:
            work = service("p", request, lambda party, answer: fed.append((party, answer)))
            if work is not None:
                await work

    asyncio.run(main())
    return fed


ASKED = (Next("a", 1), Next("b", 1), Next("a", 1), Next("a", 2))
ANSWERED = [("p", Given("a", 1, 1)), ("p", Given("b", 1, 2)), ("p", Given("a", 1, 1)), ("p", Given("a", 2, 3))]


@pytest.mark.parametrize("where", ["memory", "file"])
def test_it_answers_as_the_pure_one_does(where, tmp_path):
    service = MemoryService(Journal()) if where == "memory" else FileService(Journal(), tmp_path / "j.json")
    assert ask(service, *ASKED) == ANSWERED


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"service": "journal"}', '{"service": "journal", "state": {"next": "x"}}']
)
def test_a_damaged_file_is_named_with_what_to_do(content, tmp_path):
    path = tmp_path / "j.json"
    path.write_text(content)
    with pytest.raises(FileDamaged, match=r"j\.json: is no state of journal .*restore it from a copy"):
        ask(FileService(Journal(), path), Next("a", 1))
    assert path.read_text() == content


def test_another_services_file_is_refused(tmp_path):
    path = tmp_path / "j.json"
    path.write_text('{"service": "vault", "state": {}}')
    with pytest.raises(FileDamaged, match="is of the service 'vault'; give journal another file"):
        FileService(Journal(), path).read()


PROGRAM = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from made_up.machines import Journal, Next
    from statemachines.drivers.files import FileService
    service = FileService(Journal(), Path(sys.argv[1]))
    for n in range(1, int(sys.argv[3]) + 1):
        (given,) = service.carry_out(Next(sys.argv[2], n))
        print(given.number, flush=True)
    """
)


def process(path, name, count):
    command = [sys.executable, "-c", PROGRAM, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
