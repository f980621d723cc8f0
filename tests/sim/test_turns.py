"""Turns of a simulated process: what an application does about a tell comes after the effects before it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Fsm, Ignore, Message, Row, Send, Status, Tell
from statemachines_sim import S, World, machine_role


class Idle(Status):
    IDLE = "idle"


class Look(Call, frozen=True):
    pass


class Note(Message, frozen=True):
    n: int


class Seen(Call, frozen=True):
    n: int


class Looker(msgspec.Struct, frozen=True):
    id: str
    status: Idle = Idle.IDLE
    n: int = 0


def look(record, event, now_ns):
    n = record.n + 1
    return replace(record, n=n), (Send("other-1", Note(n)), Tell(Seen(n)), Send("other-1", Note(-n)))


LOOKER = Fsm(
    "looker",
    record=Looker,
    states=Idle,
    initial=Idle.IDLE,
    rows=(Row(Look, Idle.IDLE, STAY, look, None, "T-1"), Ignore((Note,), Idle.IDLE, "T-2")),
)


def test_an_application_that_goes_on_overtakes_nothing():
    def go_on(process, event):
        if event.n < 3:
            process.feed(Look())

    world = World(seed=1)
    world.add("other-1", machine_role("other", LOOKER, Looker))
    looker = world.add("looker-1", machine_role("looker", LOOKER, Looker, application=go_on))
    sent = []
    world.network.send = lambda node, party, to, message, now_ns: sent.append(message.n)
    looker.feed(Look())
    world.run(until_ns=S)
    assert sent == [1, -1, 2, -2, 3, -3]
    assert [event.n for event in looker.heard] == [1, 2, 3]
