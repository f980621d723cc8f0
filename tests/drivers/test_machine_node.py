"""MachineNode: a protocol that nobody here knows, in one process over a network in memory, and as real processes."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time

import pytest
from made_up.machines import DISPENSER, JOURNAL, TAKER, Begin, DispenserRecord, Got, Journal, Next, Take, TakerRecord
from made_up.nodes import DISPENSER_ROLE, TAKER_ROLE
from made_up_protocol import environment

from statemachines.drivers.environment import NodeEnvironment
from statemachines.drivers.files import MemoryService
from statemachines.drivers.memory import MemoryNetwork
from statemachines.drivers.node import MachineNode, one_machine
from statemachines.drivers.role import NodeRole
from statemachines.kernel import ConfigurationError
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
