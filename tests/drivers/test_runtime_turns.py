"""What a host hears in the turn in which its timers come up: an end of a right comes before it, patience after it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from statemachines.drivers.runtime import HEARD_TURNS, Runtime
from statemachines.kernel import STAY, Answer, Call, Fsm, Host, Node, Row, SetTimer, Status, Timer, TimerFired
from statemachines.kernel.node import Observer


class Asks(Status):
    ASKS = "asks"


class GiveUp(TimerFired, frozen=True):
    pass


class End(TimerFired, frozen=True):
    pass


class GoOn(TimerFired, frozen=True):
    pass


class Heard(Answer, frozen=True):
    pass


class Again(Call, frozen=True):
    pass


class Record(msgspec.Struct, frozen=True):
    status: Asks = Asks.ASKS


LATER = 10**15


def heard(record, event, now_ns):
    return record, (SetTimer("give_up", LATER), SetTimer("go_on", now_ns))


def again(record, event, now_ns):
    return record, (SetTimer("go_on", now_ns),)


ASKER = Fsm(
    "asker",
    protocol="turns",
    record=Record,
    states=Asks,
    initial=Asks.ASKS,
    rows=(
        Row(GiveUp, Asks.ASKS, STAY, None, None, "T-1"),
        Row(End, Asks.ASKS, STAY, None, None, "T-2"),
        Row(GoOn, Asks.ASKS, STAY, None, None, "T-3"),
        Row(Heard, Asks.ASKS, STAY, heard, None, "T-1"),
        Row(Again, Asks.ASKS, STAY, again, None, "T-3"),
    ),
    timers=(
        Timer("give_up", GiveUp, (Asks.ASKS,), lambda record: 10**9, once=True),
        Timer("end", End, (Asks.ASKS,), lambda record: 10**9, authority=True),
        Timer("go_on", GoOn, (Asks.ASKS,), lambda record: LATER, once=True),
    ),
)


class Bench:
    """A host whose clock is ours; `seen`: what its machine takes."""

    def __init__(self):
        self.now_ns, self.seen = 0, []
        self.runtime = Runtime(
            "a~1", 1, {}, handle=None, answered=self._answered, route_tell=None, clock=lambda: self.now_ns, offset_ns=0
        )
        self.host = Host()
        self.host.add(Node(ASKER, Record(), name="a~1", now_ns=0, observe=self._note()))
        self.runtime.attach(self.host, transport=None)

    def _note(self) -> Observer:
        return lambda node, event, before, step, now_ns: self.seen.append(type(event).__name__)

    def _answered(self, party, answer, now_ns):
        return self.host.feed(party, answer, now_ns)

    def feed_in(self, turns, event):
        """After the loop has turned so often."""
        if turns:
            asyncio.get_running_loop().call_soon(self.feed_in, turns - 1, event)
        else:
            self.runtime.feed("a~1", event)


def turned(test, turns=20):
    """What was seen after so many turns from the moment when everything that is set has been due."""

    async def run():
        bench = Bench()
        bench.now_ns = 10**10
        bench.runtime.run(lambda now_ns: [])  # it looks at its clock, late
        test(bench)
        for _ in range(turns):
            await asyncio.sleep(0)
        await bench.runtime.close()
        assert bench.runtime.failed is None
        return bench.seen

    return asyncio.run(run())


@pytest.mark.parametrize("turns", range(5))
def test_an_answer_that_is_there_comes_before_anybody_is_given_up(turns):
    assert turned(lambda bench: bench.feed_in(turns, Heard())) == ["End", "Heard", "GoOn"]


def test_what_comes_later_finds_everybody_given_up():
    """It is not waited for: so many turns, and no more."""
    assert turned(lambda bench: bench.feed_in(HEARD_TURNS + 5, Heard())) == ["End", "GiveUp", "Heard", "GoOn"]


def test_who_hears_without_end_gives_up_all_the_same():
    def speak(bench):
        for turn in range(12):
            bench.feed_in(turn, Again())

    seen = turned(speak)
    assert seen[0] == "End"
    assert seen.count("GiveUp") == 1
    assert seen.index("GiveUp") < len(seen) - 8, "it has heard some, and not all"
    assert seen.count("GoOn") == seen.count("Again") == 12


async def test_a_host_that_is_closed_meanwhile_fires_nothing():
    bench = Bench()
    bench.now_ns = 10**10
    bench.runtime.run(lambda now_ns: [])
    while not bench.seen:
        await asyncio.sleep(0)
    await bench.runtime.close()
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.seen == ["End"]
