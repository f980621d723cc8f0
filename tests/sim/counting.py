"""Counting: a made-up protocol from outside: clients ask a server to count, which keeps the count in a store.

Nothing of it is known to the simulator but what it says here.  `PROTOCOL` is its registration.
"""

from __future__ import annotations

from collections import Counter

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Answer,
    Ask,
    Call,
    Fsm,
    Ignore,
    Message,
    Protocol,
    Request,
    Row,
    Send,
    Status,
    Tell,
    Timer,
    TimerFired,
)
from statemachines.kernel.event import Event
from statemachines_sim import Batches, Fault, FaultKind, SimProtocol, Watch, machine_role, remote_store
from statemachines_sim.cluster import OF_STORES


class Count(Call, frozen=True):
    """The application wants a number."""


class Add(Message, frozen=True):
    client: str
    n: int


class Added(Message, frozen=True):
    n: int
    total: int


class Again(TimerFired, frozen=True):
    pass


class Counted(Event, frozen=True):
    n: int
    total: int


class Put(Request, frozen=True):
    client: str
    n: int


class Done(Answer, frozen=True):
    client: str
    n: int
    total: int


class PutFailed(Answer, frozen=True):
    pass


class ClientStatus(Status):
    IDLE = "idle"
    WAITING = "waiting"


class ServerStatus(Status):
    SERVING = "serving"


IDLE, WAITING = ClientStatus
(SERVING,) = ServerStatus


class ClientRecord(msgspec.Struct, frozen=True):
    id: str
    n: int = 0
    status: ClientStatus = IDLE


class ServerRecord(msgspec.Struct, frozen=True):
    id: str
    status: ServerStatus = SERVING


def ask(record, event, now_ns):
    record = replace(record, n=record.n + 1)
    return record, (Send("server-1", Add(record.id, record.n)),)


def ask_again(record, event, now_ns):
    return record, (Send("server-1", Add(record.id, record.n)),)


def tell(record, event, now_ns):
    return record, (Tell(Counted(event.n, event.total)),)


def is_mine(record, event):
    return event.n == record.n


def put(record, event, now_ns):
    return record, (Ask("table", Put(event.client, event.n)),)


def answer(record, event, now_ns):
    return record, (Send(event.client, Added(event.n, event.total)),)


CLIENT = Fsm(
    "client",
    protocol="counting",
    record=ClientRecord,
    states=ClientStatus,
    initial=IDLE,
    rows=(
        Row(Count, IDLE, WAITING, ask, None, "CO-01"),
        Row(Again, WAITING, WAITING, ask_again, None, "CO-02"),
        Row(Added, WAITING, IDLE, tell, is_mine, "CO-03"),
        Ignore((Added,), WAITING, "CO-04"),
        Ignore((Added, Again), IDLE, "CO-04"),
        Ignore((Count,), WAITING, "CO-05"),
    ),
    timers=(Timer("again", Again, (WAITING,), lambda record: 500_000_000),),
)
SERVER = Fsm(
    "server",
    protocol="counting",
    record=ServerRecord,
    states=ServerStatus,
    initial=SERVING,
    rows=(
        Row(Add, SERVING, STAY, put, None, "CO-10"),
        Row(Done, SERVING, STAY, answer, None, "CO-11"),
        Ignore((PutFailed,), SERVING, "CO-12"),
    ),
)


class Table:
    """Client -> what it was last counted for; a number is counted once."""

    name = "table"

    def initial(self):
        return {}

    def apply(self, state, request, now_ns):
        counted = state.get(request.client, 0)
        if request.n > counted:
            state = {**state, request.client: request.n}
        return state, (Done(request.client, request.n, sum(state.values())),)


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    clients: int = 2
    counts: int = 20
    work_ms: tuple[int, int] = (10, 50)


class CountingWatch(Watch):
    """S1 no number is told twice to a client; L1 everything is counted."""

    def __init__(self, judge, own):
        super().__init__(judge)
        self.own = own
        self.told = Counter()
        self.wanted = 0

    def tell(self, process, party, event, now_ns):
        self.told[party, event.n] += 1
        if self.told[party, event.n] > 1:
            self.judge.report_broken("S1", f"{party} was told {event.n} again")

    def missing(self, world):
        waiting = [name for name, one in sorted(world.processes.items()) if one.record.status is WAITING]
        return ("L1", f"{waiting[0]} waits") if waiting else None

    def tally(self):
        return {"counted": sum(self.told.values())}


class Forget(FaultKind):
    """Its own kind of fault: the table forgets a client."""

    name = "forget"
    hits = "the table"
    about = "forgets everything"

    def draw(self, pot):
        return Fault(self.name, pot.at_ns, 0, pot.target())

    def begin(self, world, fault):
        world.note(self.name, fault.target)
        world.devices[fault.target].state = {}
        return True


class OneRecord(Batches):
    def size(self, request, answers):
        return 1


class CountingSim(SimProtocol[Section]):
    name = "counting"
    section = Section
    properties = ("S1", "L1")
    faults = (Forget(),)

    def cast(self, own):
        server = machine_role("server", SERVER, ServerRecord)
        client = machine_role("client", CLIENT, ClientRecord, count=own.clients, talks_to=("server", "table"))
        return (server, client)

    def devices(self, own):
        kinds = (*OF_STORES, "forget", "torn_write", "power_loss")
        return (remote_store(Table(), failed=lambda request: PutFailed(), batches=OneRecord(), faults=kinds),)

    def play(self, own, world, chance):
        end = int(world.scenario.phases.safety_s * 10**9)
        for number in range(own.clients):
            for _ in range(own.counts):
                world.after(chance.randrange(end), count, world, f"client-{number + 1}")

    def watch(self, own, judge):
        return CountingWatch(judge, own)


def count(world, node):
    process = world.living(node)
    if process is not None:
        process.feed(Count())


SIM = CountingSim()
PROTOCOL = Protocol(
    name="counting",
    prefix="CO",
    machines={"client": "counting:CLIENT", "server": "counting:SERVER"},
    areas={"sim": "counting:SIM"},
)
