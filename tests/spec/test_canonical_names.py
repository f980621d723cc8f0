"""Canonical names: states that differ only in names are one, and nothing that can be seen is lost."""

from __future__ import annotations

import msgspec
import pytest
from projected_states import projected

from statemachines.kernel import Event, Fifo, Message
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction
from statemachines_spec.explorer.direct import search
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.entry_tables import Nondeterministic
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.naming import by_first_use, rebase_queue
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.system import System

PLAIN = {"engine": "plain"}


class Take(Event, frozen=True):
    pass


class Give(Event, frozen=True):
    pass


class Given(Message, frozen=True):
    waiting: int


class Queue(msgspec.Struct, frozen=True):
    """Tickets that wait, in their order; `last`: the number that was given out last."""

    tickets: tuple[int, ...] = ()
    last: int = 0


class Counter(Actor):
    """Gives out tickets with running numbers: without canonical names, up to `last_max`."""

    def __init__(self, last_max=50):
        super().__init__("counter")
        self.last_max = last_max

    def initial(self):
        return Queue()

    def inputs(self, local):
        return (Take(), Give())

    def react(self, local, envelope, watch=None):
        if isinstance(envelope.event, Take):
            return Reaction(Queue((*local.tickets, local.last + 1), local.last + 1)) if len(local.tickets) < 3 else None
        if isinstance(envelope.event, Give) and local.tickets:
            given = Envelope("counter", "sink", Given(len(local.tickets) - 1))
            return Reaction(Queue(local.tickets[1:], local.last), (given,))
        return None

    def within(self, local):
        return local.last <= self.last_max


class ByFirstUse(Counter):
    def canonical(self, local):
        numbers = by_first_use(local.tickets)
        return Queue(tuple(numbers.values()), len(numbers))


class Downwards(Counter):
    """Not canonical: what it gives depends on what was there."""

    def canonical(self, local):
        return Queue(local.tickets, (local.last + 1) % 3)


class Sink(Counter):
    def __init__(self):
        super().__init__()
        self.name = "sink"

    def inputs(self, local):
        return ()

    def react(self, local, envelope, watch=None):
        return Reaction(Queue((), envelope.event.waiting))


def of(counter):
    return System("tickets", "", (counter, Sink()), Network(1, duplicating=False))


NAMES = {Counter: ByFirstUse.canonical}


def test_what_grows_only_in_names_becomes_finite_and_small():
    named, counted = explore(of(ByFirstUse()), **PLAIN), explore(of(Counter()), **PLAIN)
    assert named.cuts == 0
    assert counted.cuts > 0
    assert named.states < 100 < counted.states


def test_the_plainest_search_uses_the_same_names():
    one = of(ByFirstUse())
    result, plainest = explore(one, **PLAIN), search(one, 10**4)
    assert (plainest.states, plainest.transitions) == (result.states, result.transitions)


def test_nothing_is_lost_and_nothing_is_added():
    named, counted = (projected(Entries(of(one)), NAMES)[1] for one in (ByFirstUse(), Counter()))
    assert named == counted


def test_names_that_change_when_given_twice_are_refused():
    with pytest.raises(Nondeterministic, match="given once more"):
        explore(of(Downwards()), **PLAIN)


def test_a_queue_is_numbered_from_its_head():
    queue = Fifo().push("a").push("b").push("c")
    _, later = queue.pop()
    assert (later.head, rebase_queue(later)) == (1, Fifo().push("b").push("c"))
    assert rebase_queue(queue) is queue


def test_numbers_go_by_first_use():
    assert by_first_use((7, 3, 7, 9)) == {7: 1, 3: 2, 9: 3}
    assert by_first_use("", first=0) == {}
