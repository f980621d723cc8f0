"""A system small enough to count by hand: a talker sends numbers, a listener keeps the last one and counts them."""

from __future__ import annotations

import msgspec

from statemachines.kernel import Event, Message
from statemachines_spec.explorer.actor import Actor, Envelope, Observer, Reaction
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.order import Order
from statemachines_spec.explorer.property import Always, Sometimes, Stepwise, View
from statemachines_spec.explorer.system import Budget, System


class Note(Message, frozen=True):
    n: int


class Say(Event, frozen=True):
    pass


class Hush(Event, frozen=True):
    pass


class Took(Event, frozen=True):
    n: int


class Count(msgspec.Struct, frozen=True):
    n: int = 0
    took: int = 0


class Talker(Actor):
    """Says 1, 2, ... `last`; `each` messages with every word."""

    def __init__(self, last, each=1):
        super().__init__("talker")
        self.last = last
        self.each = each

    def initial(self):
        return Count()

    def inputs(self, local):
        return (Say(), Hush())

    def react(self, local, envelope, watch=None):
        if isinstance(envelope.event, Hush):
            return Reaction(Count(-1, 0)) if local.n >= 0 else None
        if local.n < 0:
            return None
        n = local.n + 1
        notes = tuple(Envelope("talker", "listener", Note(n * 10 + part)) for part in range(self.each))
        return Reaction(Count(n, 0), notes)

    def within(self, local):
        return local.n <= self.last


class Listener(Actor):
    """Keeps the number it took last; `fail_at` raises."""

    def __init__(self, fail_at=-1):
        super().__init__("listener")
        self.fail_at = fail_at

    def initial(self):
        return Count()

    def inputs(self, local):
        return ()

    def react(self, local, envelope, watch=None):
        if envelope.event.n == self.fail_at:
            raise ValueError(f"cannot take {self.fail_at}")
        return Reaction(Count(envelope.event.n, min(3, local.took + 1)))


class Highest(Observer):
    """The highest number that the listener ever took."""

    def __init__(self):
        super().__init__("highest")

    def initial(self):
        return Count()

    def sees(self, actor, before, event, after):
        return Took(event.n) if isinstance(event, Note) else None

    def react(self, local, envelope, watch=None):
        return Reaction(Count(max(local.n, envelope.event.n)))


def toy(network, *, last=2, each=1, hushes=0, fail_at=-1, properties=(), orders=(), observed=False):
    """`properties` and `orders` are added to a system of talker and listener."""
    actors = (Talker(last, each), Listener(fail_at), *((Highest(),) if observed else ()))
    budgets = (Budget("hush", hushes, lambda actor, event: isinstance(event, Hush)),)
    return System("toy", "counts", actors, Network(**network), properties, budgets, orders)


def backwards():
    """The listener took something below the highest number: it is a property with memory."""
    views = (View("listener", 100, lambda local: local.n), View("highest", 100, lambda local: local.n))
    return Always("in order", "nothing is taken after something later", views, lambda n, high: n >= high)


def quiet_before_note():
    """Hush waits while the listener has taken nothing."""
    return Order(
        "note before hush",
        "a relation",
        lambda actor, local: "nothing yet" if actor == "listener" and local.took == 0 else None,
        lambda actor, local, event: "hush" if isinstance(event, Hush) else None,
        lambda pending, waiting: True,
    )


def taken(number):
    """Some state in which the listener took `number`."""
    return Sometimes(f"took {number}", "", (View("listener", 100, lambda local: local.n),), lambda n: n == number)


def never_takes(number):
    """A step property."""
    return Stepwise(f"never {number}", "", lambda actor, before, event, after: getattr(event, "n", None) != number)
