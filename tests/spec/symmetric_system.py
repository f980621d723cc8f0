"""Peers that are alike and a hub, by tables of rules: small systems in which components may change places, or may not.

A rule says where a local number goes and what is sent: words, each to somebody and about somebody, by role ("me",
"hub", "sender", "friend", "all others"), never by name: so peers may change places whatever the rules are.

A system small enough to count by hand: a talker sends numbers, a listener keeps the last one and counts them.

Systems whose steps are no functions; the second one can be made by another process.
"""

from __future__ import annotations

import msgspec

from statemachines.kernel import Event, Map, Message
from statemachines_spec.explorer.actor import Actor, Envelope, Observer, Reaction
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.order import Order
from statemachines_spec.explorer.property import Always, Sometimes, Stepwise, View
from statemachines_spec.explorer.symmetry import Symmetry
from statemachines_spec.explorer.system import Budget, System

NUMBERS, KINDS = 3, 2


class Word(Message, frozen=True):
    kind: int
    about: str


class Step(Event, frozen=True):
    kind: int


class Fault(Event, frozen=True):
    pass


class Sending(msgspec.Struct, frozen=True):
    """What a rule sends: a word of a kind, `to` and `about` whom, by role."""

    kind: int
    to: str
    about: str


class Rule(msgspec.Struct, frozen=True):
    """`n` afterwards; whose name is kept as the friend ("" = the same as before); what is sent; `waits`: nothing of it
    happens now."""

    n: int = 0
    friend: str = ""
    sends: tuple[Sending, ...] = ()
    waits: bool = False


class PeerLocal(msgspec.Struct, frozen=True):
    n: int = 0
    friend: str = ""


class HubLocal(msgspec.Struct, frozen=True):
    n: int = 0
    friend: str = ""
    heard: Map[str, int] = Map()


class Table(Actor):
    """Does what `rules` say by (number, kind); peers step by themselves, the hub counts whom it heard."""

    def __init__(self, name, everybody, rules, faults=False):
        super().__init__(name)
        self.everybody = everybody
        self.rules = rules
        self.faults = faults

    def initial(self):
        return HubLocal() if self.name == "hub" else PeerLocal()

    def inputs(self, local):
        if self.name == "hub":
            return ()
        return (*(Step(kind) for kind in range(KINDS)), *((Fault(),) if self.faults else ()))

    def react(self, local, envelope, watch=None):
        event = envelope.event
        if isinstance(event, Fault):
            return Reaction(msgspec.structs.replace(local, n=0))
        rule = self.rules[local.n, type(event).__name__, event.kind]
        if rule.waits:
            return None
        roles = {
            "me": self.name,
            "sender": envelope.sender,
            "friend": local.friend,
            "about": getattr(event, "about", ""),
        }
        friend = roles.get(rule.friend, "") or local.friend
        after = msgspec.structs.replace(local, n=rule.n, friend=friend)
        if self.name == "hub" and envelope.sender in self.everybody:
            heard = local.heard.set(envelope.sender, min(1, local.heard.get(envelope.sender, -1) + 1))
            after = msgspec.structs.replace(after, heard=heard)
        return Reaction(after, tuple(self._sent(rule, roles)))

    def _sent(self, rule, roles):
        for one in rule.sends:
            about = roles.get(one.about, "")
            receivers = [name for name in self.everybody if name != self.name]
            if one.to != "all others":
                receivers = [{**roles, "hub": "hub"}[one.to]]
            for to in receivers:
                if to and to != self.name:
                    yield Envelope(self.name, to, Word(one.kind, about))


def peers(rules, hub_rules, network, *, count=3, faults=0, properties=None, order=False, odd=None, symmetric=True):
    """`count` peers by the same `rules` and a hub; the rules in `odd` are those of the last peer alone."""
    names = tuple(f"p{number}" for number in range(1, count + 1))
    last = rules if odd is None else {**rules, **odd}
    actors = [Table(name, names, last if name == names[-1] else rules, faults > 0) for name in names]
    return System(
        "peers",
        "",
        (*actors, Table("hub", names, hub_rules)),
        network,
        (at_most_one(names), somebody(names)) if properties is None else properties,
        (Budget("fault", faults, lambda actor, event: isinstance(event, Fault)),),
        (others_first(),) if order else (),
        symmetries=(Symmetry(names),) if symmetric else (),
    )


def at_most_one(names):
    """No two peers have the highest number: true or false, as the rules will have it."""
    views = tuple(View(name, 2, lambda local: int(local.n == NUMBERS - 1)) for name in names)
    return Always("at most one", "", views, lambda *on: sum(on) <= 1)


def somebody(names):
    """Some peer has a friend."""
    views = tuple(View(name, 2, lambda local: int(local.friend != "")) for name in names)
    return Sometimes("a friend", "", views, lambda *on: any(on))


def others_first():
    """Whoever has a peer as a friend waits with its second step while that friend has taken none."""
    return Order(
        "friends first",
        "a relation",
        lambda actor, local: actor if local.n == 0 else None,
        lambda actor, local, event: local.friend if isinstance(event, Step) and event.kind == 1 else None,
        lambda pending, waiting: pending == waiting,
    )


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


class Forgetting(Listener):
    """Counts its calls in itself and not in its record."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def react(self, local, envelope, watch=None):
        self.calls += 1
        return Reaction(Count(self.calls, 0))


class ImpureSystemWord(msgspec.Struct, frozen=True):
    text: str = ""


class Iterating(Actor):
    """Writes a set down in its own order."""

    def __init__(self):
        super().__init__("writer")

    def initial(self):
        return ImpureSystemWord()

    def inputs(self, local):
        return (Say(),)

    def react(self, local, envelope: Envelope, watch=None):
        return Reaction(ImpureSystemWord(" ".join({f"word{n}" for n in range(20)})))


def forgetting():
    return System("forgetting", "", (Talker(2), Forgetting()), Network())


def iterating():
    return System("iterating", "", (Iterating(),), Network(), origin=("symmetric_system:iterating", {}))
