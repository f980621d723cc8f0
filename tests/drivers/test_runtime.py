"""The runtime: effects in their order, rows before them, a number for each message, and no step within another."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from statemachines import kernel
from statemachines.drivers import clock as clock_module
from statemachines.drivers import runtime as runtime_module
from statemachines.drivers.environment import NodeEnvironment
from statemachines.drivers.runtime import Runtime
from statemachines.trace import COLUMNS
from statemachines.wire import Packet

NUMBER = 7
KIND, EVENT, MSG = (COLUMNS.index(name) - 2 for name in ("kind", "event", "msg"))


class Only(kernel.Status):
    ON = "on"


class Go(kernel.Call, frozen=True):
    pass


class Hi(kernel.Message, frozen=True):
    n: int


class Look(kernel.Request, frozen=True):
    pass


class Seen(kernel.Answer, frozen=True):
    pass


class Done(kernel.Call, frozen=True):
    pass


class Record(msgspec.Struct, frozen=True):
    status: Only = Only.ON


def go(record, event, now_ns):
    return record, (
        kernel.Send("b~1", Hi(1)),
        kernel.Tell(Done()),
        kernel.Ask("eyes", Look()),
        kernel.Send("b~1", Hi(2)),
    )


def answer(record, event, now_ns):
    return record, (kernel.Send("b~1", Hi(3)), kernel.Send("b~1", Hi(4)))


def pong(record, event, now_ns):
    return record, (kernel.Send("b~1", Hi(event.n + 1)),)


ECHO = kernel.Fsm(
    "echo",
    protocol="toy",
    record=Record,
    states=Only,
    initial=Only.ON,
    rows=(
        kernel.Row(Go, Only.ON, kernel.STAY, go, None, "TY-01"),
        kernel.Row(Seen, Only.ON, kernel.STAY, answer, None, "TY-02"),
        kernel.Row(Hi, Only.ON, kernel.STAY, pong, None, "TY-03"),
    ),
)


class Bench:
    """A runtime over one machine: everything that leaves it, and every row, in one list."""

    def __init__(self, **services):
        self.seen, self.numbers = [], []
        self.told = lambda party, event: self.seen.append("tell")
        self.runtime = Runtime(
            "a~1",
            NUMBER,
            services,
            handle=lambda sender, to, message, now: self.host.feed(to, message, now),
            answered=lambda party, event, now: self.host.feed(party, event, now),
            route_tell=lambda party, event: self.told(party, event),
            log=self,
            offset_ns=0,
        )
        self.host = kernel.Host()
        self.host.add(kernel.Node(ECHO, Record(), name="a~1", now_ns=0, observe=self.runtime.observe))
        self.runtime.attach(self.host, self)

    def send(self, packet):
        self.seen.append((packet.msg - (NUMBER << 40), packet.message.n))

    def write(self, rows):
        self.seen.append([(row[KIND], row[EVENT]) for row in rows])
        self.numbers += [row[MSG] - (NUMBER << 40) for row in rows if row[KIND] == "send"]

    def go(self):
        self.runtime.run(lambda now: self.host.feed("a~1", Go(), now))

    def sent(self):
        return [one for one in self.seen if isinstance(one, tuple)]


STEP = [("step", "go"), ("send", "hi"), ("tell", "done"), ("ask", "look"), ("send", "hi")]


def at_once(party, request, feed):
    feed(party, Seen())


async def test_rows_are_written_before_effects_and_those_come_in_order():
    bench = Bench(eyes=lambda party, request, feed: bench.seen.append("ask"))
    bench.go()
    assert bench.seen == [STEP, (0, 1), "tell", "ask", (1, 2)]


async def test_an_answer_that_comes_at_once_waits_for_the_end_of_the_turn():
    bench = Bench(eyes=at_once)
    bench.go()
    second = [("step", "seen"), ("send", "hi"), ("send", "hi")]
    assert bench.seen == [STEP, (0, 1), "tell", (1, 2), second, (2, 3), (3, 4)]


async def test_each_message_leaves_under_the_number_of_its_row():
    bench = Bench(eyes=at_once)
    bench.go()
    bench.go()
    assert [number for number, _ in bench.sent()] == bench.numbers == list(range(8))


async def test_what_the_application_does_when_it_is_told_waits_too():
    bench = Bench(eyes=lambda party, request, feed: None)
    hello = Packet("b~1", "a~1", 0, Hi(10))
    bench.told = lambda party, event: bench.runtime.receive(hello)
    bench.go()
    assert bench.sent() == [(0, 1), (1, 2), (2, 11)]


async def test_a_service_that_takes_its_time_may_answer_often():
    async def twice(party, request, feed):
        await asyncio.sleep(0)
        feed(party, Seen())
        feed(party, Seen())

    bench = Bench(eyes=twice)
    bench.go()
    assert bench.sent() == [(0, 1), (1, 2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [n for _, n in bench.sent()] == [1, 2, 3, 4, 3, 4]


async def test_after_an_effect_that_failed_numbers_go_on():
    bench = Bench(eyes=at_once)
    bench.told = lambda party, event: 1 / 0
    with pytest.raises(ZeroDivisionError):
        bench.go()
    bench.told = lambda party, event: None
    bench.go()
    assert [number for number, _ in bench.sent()] == [0, 2, 3, 4, 5]


async def test_what_the_application_may_not_do_is_raised_to_it_and_nothing_stops():
    bench = Bench()
    with pytest.raises(kernel.LocalProtocolError, match="echo in state on got done"):
        bench.runtime.run(lambda now: bench.host.feed("a~1", Done(), now))
    assert bench.runtime.failed is None


async def test_a_service_that_is_not_there_is_named_when_it_is_asked():
    bench = Bench()
    stopped = []
    bench.runtime.on_failure = lambda: stopped.append(bench.runtime.failed)
    bench.runtime.act(lambda now: bench.host.feed("a~1", Go(), now))
    assert [str(error) for error in stopped] == [
        "service = 'eyes': is asked by a~1, and this node has no such service (none); give it in `services`"
    ]


async def test_nothing_is_left_over_when_it_is_closed():
    never = asyncio.Event()

    async def wait(party, request, feed):
        await never.wait()

    bench = Bench(eyes=wait)
    bench.go()
    await bench.runtime.close()
    assert bench.runtime.failed is None


class Waiting(kernel.Host):
    """A host that waits for one moment."""

    def __init__(self, at_ns):
        super().__init__()
        self.at_ns, self.fired_at = at_ns, []

    def deadline(self):
        return None if self.fired_at else self.at_ns

    def fire(self, now_ns):
        self.fired_at.append(now_ns)
        return []


def waiting(at_ns, clock):
    host = Waiting(at_ns)
    runtime = Runtime("a~1", NUMBER, {}, handle=None, answered=None, route_tell=None, clock=clock, offset_ns=0)
    runtime.attach(host, transport=None)
    runtime.run(lambda now: [])
    return host, runtime


async def test_a_machine_that_slept_past_a_deadline_notices_soon(monkeypatch):
    """The loop's clock has stood still meanwhile: its own timer is an hour away."""
    monkeypatch.setattr(runtime_module, "LOOK_AGAIN_S", 0.001)
    now = [0]
    host, runtime = waiting(3_600 * 10**9, lambda: now[0])
    await asyncio.sleep(0.01)
    assert host.fired_at == []
    now[0] = 3_700 * 10**9
    async with asyncio.timeout(10):
        while not host.fired_at:
            await asyncio.sleep(0.001)
    assert host.fired_at == [3_700 * 10**9]
    await runtime.close()


async def test_a_deadline_that_is_near_is_not_looked_for_in_between():
    looks = []
    real = time.monotonic_ns

    def clock():
        looks.append(real())
        return looks[-1]

    host, runtime = waiting(real() + 50 * 10**6, clock)
    before = len(looks)
    async with asyncio.timeout(10):
        while not host.fired_at:
            await asyncio.sleep(0.001)
    assert len(looks) - before <= 6
    await runtime.close()


def test_leases_count_by_a_clock_that_goes_on_while_the_machine_sleeps():
    assert NodeEnvironment().steady_ns is clock_module.steady_ns
    assert clock_module.steady_ns.args == (time.CLOCK_BOOTTIME,), "where this differs, the machine was suspended"
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert before <= clock_module.steady_ns() <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
