"""HostLoop: effects in order, nothing re-entered, answers at once, later or often; a circle ends."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from statemachines import kernel
from statemachines.kernel import loop as loops


class Idle(kernel.Status):
    IDLE = "idle"


class Look(kernel.Call, frozen=True):
    pass


class Query(kernel.Request, frozen=True):
    n: int


class Found(kernel.Answer, frozen=True):
    n: int


class Note(kernel.Message, frozen=True):
    n: int


class Seen(kernel.Call, frozen=True):
    n: int


class Alarm(kernel.TimerFired, frozen=True):
    pass


class Finder(msgspec.Struct, frozen=True):
    status: Idle = Idle.IDLE
    n: int = 0
    found: int = 0


def look(record, event, now_ns):
    """A message, a request, a word to the application, and another message."""
    n = record.n + 1
    return replace(record, n=n), (
        kernel.Send("far", Note(n)),
        kernel.Ask("index", Query(n)),
        kernel.Tell(Seen(n)),
        kernel.Send("far", Note(-n)),
    )


def take(record, event, now_ns):
    return replace(record, found=record.found + event.n), (kernel.Tell(Seen(100 + event.n)),)


FINDER = kernel.Fsm(
    "finder",
    record=Finder,
    states=Idle,
    initial=Idle.IDLE,
    rows=(
        kernel.Row(Look, Idle.IDLE, kernel.STAY, look, None, "T-1"),
        kernel.Row(Found, Idle.IDLE, kernel.STAY, take, None, "T-2"),
        kernel.Row(Alarm, Idle.IDLE, kernel.STAY, look, None, "T-3"),
    ),
    timers=(kernel.Timer("alarm", Alarm, (Idle.IDLE,), lambda record: 50, once=True),),
)

ONE_LOOK = ["send 1", "ask 1", "told 1", "send -1"]


class Desk:
    """A port that writes down what it performs; `answer(n, feed)` is what becomes of a request, `hear(n)` of a tell."""

    def __init__(self):
        self.done = []
        self.now_ns = 0
        self.depth = 0
        self.answer = lambda n, feed: None
        self.hear = lambda n: None
        host = kernel.Host()
        host.add(kernel.Node(FINDER, Finder(), name="finder~1", now_ns=0))
        self.loop = kernel.HostLoop(host, self, lambda: self.now_ns)

    @property
    def record(self):
        return self.loop.host.nodes["finder~1"].record

    def perform(self, party, effect, feed):
        assert party == "finder~1"
        if isinstance(effect, kernel.Send):
            self.done.append(f"send {effect.message.n}")
        else:
            self.done.append(f"ask {effect.request.n}")
            self.answer(effect.request.n, lambda n: feed(party, Found(n)))

    def route_tell(self, party, event):
        self.done.append(f"told {event.n}")
        self.hear(event.n)


def test_effects_are_performed_in_their_order():
    desk = Desk()
    desk.loop.feed("finder~1", Look())
    assert desk.done == ONE_LOOK


def test_an_answer_at_once_waits_until_the_effects_before_it_are_performed():
    desk = Desk()
    desk.answer = lambda n, feed: feed(n)
    desk.loop.feed("finder~1", Look())
    assert desk.done == [*ONE_LOOK, "told 101"]
    assert desk.record.found == 1


def test_many_answers_keep_their_order_and_later_ones_find_the_loop_idle():
    desk, later = Desk(), []

    def answer(n, feed):
        feed(1)
        feed(2)
        later.append(feed)

    desk.answer = answer
    desk.loop.feed("finder~1", Look())
    assert desk.done == [*ONE_LOOK, "told 101", "told 102"]
    later[0](3)
    assert desk.done[-1] == "told 103"
    assert desk.record.found == 6


def test_what_the_application_does_about_a_tell_comes_after_the_effects_of_the_step():
    desk = Desk()
    desk.hear = lambda n: desk.loop.feed("finder~1", Look()) if n == 1 else None
    desk.loop.feed("finder~1", Look())
    assert desk.done == [*ONE_LOOK, "send 2", "ask 2", "told 2", "send -2"]


def test_who_has_fed_the_host_already_gets_the_same():
    desk = Desk()
    desk.answer = lambda n, feed: feed(n)
    desk.loop.perform(desk.loop.host.feed("finder~1", Look(), 0))
    assert desk.done == [*ONE_LOOK, "told 101"]


def test_timers_fire_through_the_loop():
    desk = Desk()
    assert desk.loop.deadline() == 50
    desk.now_ns = 49
    desk.loop.fire()
    assert desk.done == []
    desk.now_ns = 50
    desk.loop.fire()
    assert desk.done == ONE_LOOK
    assert desk.loop.deadline() is None


def test_who_writes_rows_hears_of_a_turn_before_any_of_it_is_performed():
    heard, desk = [], Desk()
    desk.loop = kernel.HostLoop(
        desk.loop.host, desk, lambda: 0, before=lambda out: heard.append((len(out), list(desk.done)))
    )
    desk.answer = lambda n, feed: feed(1)
    desk.loop.feed("finder~1", Look())
    assert heard == [(4, []), (1, ONE_LOOK)]


def test_what_raises_leaves_the_loop_fit_and_what_waited_comes_first():
    desk = Desk()

    def answer(n, feed):
        feed(1)
        raise kernel.LocalProtocolError("finder", "idle", "query", "", "no index here")

    desk.answer = answer
    with pytest.raises(kernel.LocalProtocolError):
        desk.loop.feed("finder~1", Look())
    assert desk.done == ["send 1", "ask 1"]
    desk.answer = lambda n, feed: None
    desk.loop.feed("finder~1", Look())
    assert desk.done[2:] == ["told 101", "send 2", "ask 2", "told 2", "send -2"]


def test_a_circle_without_end_is_said_to_be_one(monkeypatch):
    monkeypatch.setattr(loops, "TURNS_MAX", 20)
    desk = Desk()
    desk.hear = lambda n: desk.loop.feed("finder~1", Look())
    with pytest.raises(kernel.GaplessError, match="20 turns of a host and no end"):
        desk.loop.feed("finder~1", Look())
    assert desk.done.count("told 20") == 1
    assert "told 21" not in desk.done
