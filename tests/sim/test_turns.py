"""Turns of a simulated process: what an application does about a tell comes after the effects before it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Call,
    Fsm,
    Ignore,
    Message,
    Row,
    Send,
    SetTimer,
    Status,
    Tell,
    Timer,
    TimerFired,
)
from statemachines.trace import COLUMNS
from statemachines_sim import MS, S, Scenario, World, machine_role
from statemachines_sim.protocol import NOTHING

MSG = COLUMNS.index("msg") - 2


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


class GiveUp(TimerFired, frozen=True):
    pass


class End(TimerFired, frozen=True):
    pass


def answered(record, event, now_ns):
    return replace(record, n=event.n), (SetTimer("give_up", now_ns + 10 * S),)


WAITER = Fsm(
    "waiter",
    record=Looker,
    states=Idle,
    initial=Idle.IDLE,
    rows=(
        Row(Note, Idle.IDLE, STAY, answered, None, "T-3"),
        Row(GiveUp, Idle.IDLE, STAY, None, None, "T-4"),
        Row(End, Idle.IDLE, STAY, None, None, "T-5"),
        Row(Look, Idle.IDLE, STAY, look, None, "T-6"),
    ),
    timers=(
        Timer("give_up", GiveUp, (Idle.IDLE,), lambda record: S, once=True),
        Timer("end", End, (Idle.IDLE,), lambda record: S // 2, authority=True),
    ),
)


def woken(*events, pause_ns=1):
    """What a process takes that stands still from `pause_ns` on for two seconds, while these events come."""
    world = World(seed=1)
    waiter = world.add("waiter-1", machine_role("waiter", WAITER, Looker))
    world.run(until_ns=pause_ns)
    waiter.pause()
    world.run(until_ns=3 * S // 2)
    for event in events:
        waiter.feed(event)
    world.run(until_ns=2 * S)
    waiter.resume()
    world.run(until_ns=5 * S // 2)
    return [row[5] for row in world.rows if row[4] in ("step", "timer")]


def test_who_wakes_late_ends_what_is_over_hears_what_waited_and_then_gives_up():
    assert woken(Look()) == ["end", "look", "give_up"]
    assert woken() == ["end", "give_up"]


def test_who_wakes_late_gives_nobody_up_whose_answer_waited():
    assert woken(Note(1)) == ["end", "note"]


def test_what_passed_before_the_pause_fires_once():
    assert woken(Look(), pause_ns=3 * S // 4) == ["end", "look", "give_up"]


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


def note_packet(waiter, n):
    """As the network brings it."""
    return ("send", 0, "other-1", "other-1", waiter.main, n, Note(n), "waiter-1")


def test_a_busy_loop_that_goes_on_takes_time_for_each_message_once_and_hears_them_in_order():
    world = World(Scenario("busy", NOTHING, event_ms=10.0), 1)
    waiter = world.add("waiter-1", machine_role("waiter", WAITER, Looker))
    world.run(until_ns=S // 10)
    waiter.pause()
    for n in (1, 2, 3):
        waiter.receive(note_packet(waiter, n))
    world.run(until_ns=S // 5)
    waiter.resume()
    world.run(until_ns=S // 5 + 5 * MS)
    waiter.receive(note_packet(waiter, 4))
    world.run(until_ns=S // 4)
    times = [row[0] for row in world.rows if row[4] == "deliver"]
    assert times == [S // 5 + 10 * n * MS for n in (1, 2, 3, 4)]
    assert [row[MSG] for row in world.rows if row[4] == "deliver"] == [1, 2, 3, 4]
