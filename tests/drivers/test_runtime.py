"""The runtime: effects in their order, rows before them, a number for each message, and no step within another."""

from __future__ import annotations

import msgspec

from statemachines import kernel
from statemachines.drivers.runtime import Runtime
from statemachines.trace import COLUMNS

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


async def test_a_service_that_is_not_there_is_named_when_it_is_asked():
    bench = Bench()
    stopped = []
    bench.runtime.on_failure = lambda: stopped.append(bench.runtime.failed)
    bench.runtime.act(lambda now: bench.host.feed("a~1", Go(), now))
    assert [str(error) for error in stopped] == [
        "service = 'eyes': is asked by a~1, and this node has no such service (none); give it in `services`"
    ]


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
