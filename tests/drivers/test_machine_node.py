"""MachineNode: a protocol that nobody here knows, in one process over a network in memory, and as real processes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time

import pytest
from made_up.machines import DISPENSER, JOURNAL, TAKER, Begin, DispenserRecord, Got, Journal, Next, Take, TakerRecord
from made_up.nodes import DISPENSER_ROLE, TAKER_ROLE
from made_up_protocol import environment

from statemachines.drivers.environment import NodeEnvironment
from statemachines.drivers.files import FileService, MemoryService
from statemachines.drivers.memory import MemoryNetwork
from statemachines.drivers.node import MachineNode, one_machine
from statemachines.drivers.role import NodeRole
from statemachines.kernel import ConfigurationError, LocalProtocolError
from statemachines.trace.log import read_log
from statemachines.wire import Packet

PLACE = ("memory", 7500)
PATIENCE_S = 120


def dispenser(state, network, journal=None, **given):
    services = {JOURNAL: journal or MemoryService(Journal())}
    make = one_machine(DISPENSER, DispenserRecord)
    given = {"node": "dispenser-1", "listen": PLACE, "environment": network.environment, **given}
    return MachineNode(DISPENSER_ROLE, make, state=state, services=services, **given)


def taker(state, network, goal, tell, **given):
    make = one_machine(TAKER, lambda life: TakerRecord(life, "dispenser", goal))
    given = {"node": "taker-1", "dial": {"dispenser": PLACE}, "environment": network.environment, **given}
    return MachineNode(TAKER_ROLE, make, state=state, tell=tell, **given)


class Numbers(list):
    """What a taker tells, and when there are enough."""

    def __init__(self, wanted):
        super().__init__()
        self.wanted = wanted
        self.enough = asyncio.Event()

    def __call__(self, event):
        assert isinstance(event, Got)
        self.append(event.number)
        if len(self) == self.wanted:
            self.enough.set()

    async def wait(self):
        async with asyncio.timeout(PATIENCE_S):
            await self.enough.wait()


async def test_two_machines_talk_over_a_network_in_memory(tmp_path):
    network, got = MemoryNetwork(), Numbers(20)
    async with dispenser(tmp_path, network), taker(tmp_path, network, 20, got) as node:
        node.feed(Begin())
        await got.wait()
        assert got == list(range(1, 21))
        assert node.life == "taker-1~1"


async def test_what_is_fed_at_the_start_and_at_the_end_reaches_the_machine(tmp_path):
    network, seen = MemoryNetwork(), []
    watching = NodeEnvironment(transport=network.transport, observe=lambda node, event, *rest: seen.append(event))
    given = {"begin": (Begin(),), "leave": (Begin(),), "environment": watching}
    with pytest.raises(LocalProtocolError, match="taker in state asking got begin"):
        async with taker(tmp_path, network, 1, print, **given):
            assert seen == [Begin()]


async def test_an_application_that_ends_ends_the_node(tmp_path):
    network, got = MemoryNetwork(), Numbers(5)

    async def play(node):
        node.feed(Begin())
        await got.wait()

    async with dispenser(tmp_path, network), taker(tmp_path, network, 5, got, application=play) as node:
        async with asyncio.timeout(PATIENCE_S):
            await node.run()
    assert got == [1, 2, 3, 4, 5]


async def test_a_service_that_fails_stops_the_node_and_says_why(tmp_path):
    async def broken(party, request, feed):
        raise OSError("the disk is gone")

    network, got = MemoryNetwork(), Numbers(1)
    async with (
        dispenser(tmp_path, network, broken) as node,
        taker(tmp_path, network, 1, got, begin=(Begin(),)),
    ):
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(OSError, match="the disk is gone"):
                await node.run()


async def test_an_application_that_fails_is_heard(tmp_path):
    async def play(node):
        raise ValueError("wrong")

    async with taker(tmp_path, MemoryNetwork(), 1, print, application=play) as node:
        with pytest.raises(ValueError, match="wrong"):
            await node.run()


async def test_nobody_speaks_for_another(tmp_path):
    network, refused = MemoryNetwork(), []
    watching = NodeEnvironment(transport=network.transport, refused=refused.append)
    journal = MemoryService(Journal())
    async with dispenser(tmp_path, network, journal, environment=watching):
        stranger = network.transport(life="evil~1", role=TAKER_ROLE, receive=print, dial={"dispenser": PLACE})
        async with stranger:
            stranger.send(Packet("evil~1", "dispenser", 1, Take("taker-1~1", 1)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert [str(error) for error in refused] == [
        "made_up/dispenser in state - got take: it is of another taker, taker-1~1"
    ]
    assert journal.state == Journal().initial()


async def test_a_message_for_an_earlier_life_comes_to_nothing(tmp_path):
    network, journal = MemoryNetwork(), MemoryService(Journal())
    async with dispenser(tmp_path, network, journal):
        pass
    async with dispenser(tmp_path, network, journal) as node:
        assert node.life == "dispenser-1~2"
        one = network.transport(life="t~1", role=TAKER_ROLE, receive=print, dial={"dispenser": PLACE})
        async with one:
            one.send(Packet("t~1", "dispenser-1~1", 1, Take("t~1", 1)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert journal.state == Journal().initial()
            one.send(Packet("t~1", "dispenser-1~2", 1, Take("t~1", 1)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert journal.state.next == 2


async def test_a_service_may_answer_later_and_often(tmp_path):
    async def thrice(party, request, feed):
        for number in range(3):
            await asyncio.sleep(0)
            feed(party, Journal().apply(Journal().initial(), Next(request.taker, request.n), number)[1][0])

    network, got = MemoryNetwork(), Numbers(2)
    async with dispenser(tmp_path, network, thrice), taker(tmp_path, network, 2, got, begin=(Begin(),)):
        await got.wait()
    assert got == [1, 1]


def test_a_role_that_talks_to_nobody_is_refused():
    with pytest.raises(ConfigurationError, match=r"made_up/x.*talks to nobody; give it `dials` or `dialled_by`"):
        NodeRole("made_up", "x", takes=Take)


def test_roles_of_other_protocols_are_named_in_full():
    role = NodeRole("made_up", "x", takes=Take, dials=("y",), dialled_by=("locks/holder", "z"))
    assert role.peers(True) == ("made_up/y",)
    assert role.peers(False) == ("locks/holder", "made_up/z")


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
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.02)

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


def test_processes_are_killed_and_come_back_and_no_number_is_given_twice(start, tmp_path):
    def open_at(port):
        one = start("dispenser-1", "dispenser", "--listen", f"127.0.0.1:{port}")
        one.until(lambda: any(line.startswith("listening on") for line in one.said()))
        return one, one.said()[-1].rpartition(":")[2]

    def take(goal):
        return start("taker-1", "made_up/taker", "--dispenser", f"127.0.0.1:{port}", "--goal", goal)

    first, port = open_at(0)
    one = take(100_000)
    one.until(lambda: len(one.numbers()) >= 5)
    first.kill()
    before = len(one.numbers())
    second, _ = open_at(port)
    one.until(lambda: len(one.numbers()) >= before + 5)
    one.kill()
    numbers = one.numbers()
    another = take(7)
    assert another.process.wait(PATIENCE_S) == 0, another.said()
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(PATIENCE_S) == 0

    numbers += another.numbers()
    assert len(another.numbers()) == 7
    assert numbers == sorted(set(numbers)), "each once, and none from before"
    assert FileService(Journal(), tmp_path / "journal.json").read().last["taker-1~2"] == (7, numbers[-1])
    heads = sorted(read_log(path).head.life for path in (tmp_path / "trace").iterdir())
    assert heads == ["dispenser-1~1", "dispenser-1~2", "taker-1~1", "taker-1~2"]


def test_a_node_of_another_protocol_is_refused_by_name(start, tmp_path):
    store = tmp_path / "messages.db"
    command = [
        sys.executable,
        "-m",
        "statemachines",
        "node",
        "leader",
        "--listen",
        "127.0.0.1:0",
        "--store",
        str(store),
    ]
    with (tmp_path / "leader.out").open("wb") as out:
        leader = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        one = tmp_path / "leader.out"
        stranger = None
        end = time.monotonic() + PATIENCE_S
        while b"is a 'made_up/taker'; here only a shared_subscriptions/consumer" not in one.read_bytes():
            assert time.monotonic() < end, one.read_text()
            if stranger is None and b"listening on" in one.read_bytes():
                address = one.read_text().split()[2]
                stranger = start("taker-1", "taker", "--dispenser", address)
            time.sleep(0.02)
        stranger.until(
            lambda: any("is a 'shared_subscriptions/leader'; here only a made_up" in line for line in stranger.said())
        )
    finally:
        leader.kill()
        leader.wait()
