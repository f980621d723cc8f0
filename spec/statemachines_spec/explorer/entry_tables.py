"""Entry tables: local states, envelopes and entries of a system as numbers, whatever its symmetries.

Local states and envelopes are interned: what encodes to equal bytes has one number, from 1 on (0 is "none": an empty
place in the network).  An entry is the outcome of one (event, local state) pair, made by calling the actor's `react`.
Purity is enforced: each is made twice, and a difference is an error that names the pair (`purity` repeats entries under
another hash seed besides).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError, GaplessError, Message, Request, identity
from statemachines.kernel.pmap import enc_hook
from statemachines_spec.explorer.actor import Actor, Envelope, Observer, Reaction, Watch
from statemachines_spec.explorer.invariants import RecordCheck
from statemachines_spec.explorer.party import InternedParty, PartyInput
from statemachines_spec.explorer.property import NO_ERROR, View, failed_function
from statemachines_spec.explorer.shift import TellsTime, check_shift
from statemachines_spec.explorer.system import System

WAITS, CUT, FAILED = 0, -1, -2
"""In place of a next local state: the event cannot happen now; it leads beyond the bounds; the step raised."""

FREE = -1
"""In place of a budget: the event costs nothing."""

LOCALS_MAX = 1 << 22


class Nondeterministic(GaplessError):
    """A step gave two results for one (local state, event): its entry cannot be trusted, nor any verdict."""


class Spontaneous(msgspec.Struct, frozen=True, gc=False):
    """What may happen by itself in a local state: the event, the budget it spends (-1: none), what it waits for."""

    event: int
    budget: int
    wait: int


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The outcome: next local state (or `WAITS`, `CUT`, `FAILED`), messages sent, events that other components take in
    the same transition, and the step property that breaks (0: none; 1: it raised; 2 and up: those of
    `System.step_properties`)."""

    local: int
    sends: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()
    broken: int = 0


def encode_value(value: Any) -> bytes:
    """`value` as bytes: equal for equal content, in every process.  Booleans and integers are never mixed up."""
    return _ENCODER.encode(value)


def _bytes_of(value: Any) -> Any:
    return value.raw if type(value) is InternedParty else enc_hook(value)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_bytes_of)


def digest(data: bytes) -> int:
    """64 bits of `data` that do not depend on the order of discovery."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def encode_envelope(envelope: Envelope) -> bytes:
    """An envelope as bytes, the type of its event included."""
    event = envelope.event
    if type(event) is PartyInput:
        inner = type(event.event).__qualname__
        return encode_value((envelope.sender, envelope.to, PartyInput.__qualname__, event.party, inner, event.event))
    return encode_value((envelope.sender, envelope.to, type(event).__qualname__, event))


class Component:
    """What is known of one component: its local states by number, and what was reckoned for each.  `unsound`: the step
    property that a record in it breaks, whatever led there (0: none)."""

    def __init__(self, actor: Actor, views: tuple[View | None, ...], check: RecordCheck) -> None:
        self.actor = actor
        self.views = views
        self.check = check
        self.unsound: list[int] = [0]
        self.observer = isinstance(actor, Observer)
        self.locals: list[Any] = [None]
        self.digests: list[int] = [0]
        self.inputs: list[tuple[Spontaneous, ...]] = [()]
        self.pending: list[int] = [0]
        self.seen: list[tuple[int, ...]] = [(0,) * len(views)]
        self.numbers: dict[bytes, int] = {}
        self.entries = 0
        self.cuts = 0

    def broken_in(self, value: Any) -> int:
        """The number of the step property that a record in `value` breaks: an invariant of its machine (0: none)."""
        place = self.check.broken_in(value)
        return 0 if place is None else place + 1


class EntryTables:
    """The tables of one system; they grow while it is explored.  `twice`: each entry is made so, and a difference is an
    error; who looks for a mistake that he knows to be there may do without.  `outcomes`: digests of what came of each,
    where `purity` can make them again."""

    def __init__(self, system: System, *, twice: bool = True) -> None:
        self.system = system.check()
        self.twice = twice
        self.rechecked = twice and system.origin is not None
        self.step_properties = system.step_properties
        self.step_names = (NO_ERROR, *(one.name for one in self.step_properties))
        self.components = tuple(
            Component(
                actor,
                tuple(_view_of(one.views, actor.name) for one in system.over_states),
                RecordCheck(actor.machines, self.step_names),
            )
            for actor in system.actors
        )
        self.place = {actor.name: number for number, actor in enumerate(system.actors)}
        self.envelopes: list[Envelope] = [Envelope("", "", None)]
        self.digests: list[int] = [0]
        self.dest: list[int] = [0]
        self.lossy: list[bool] = [False]
        self.channel: list[int] = [0]
        self.entry_of: dict[tuple[int, int], int] = {}
        self.entries: list[Entry] = []
        self.outcomes: list[int] = []
        self.pairs: list[tuple[int, int]] = []
        self.errors: dict[int, str] = {}
        self.cells: set[tuple[str, int, str]] = set()
        self.block: list[list[bool]] = [[False]]
        self.walked: object = None
        """The walker in plain Python that has been everywhere in the system by these tables, if there is one."""
        self._numbers: dict[bytes, int] = {}
        self._channels: dict[tuple[str, str], int] = {}
        self._pending: dict[tuple[Hashable | None, ...], int] = {(None,) * len(system.orders): 0}
        self._waiting: dict[tuple[Hashable | None, ...], int] = {(None,) * len(system.orders): 0}

    # -- interning ----------------------------------------------------------------------------------------------

    def local(self, component: int, local: Any) -> int:
        """The number of a local state."""
        return self.add_local(component, local)

    def add_local(self, component: int, local: Any) -> int:
        """The number of a local state, whatever the symmetries of the system."""
        one = self.components[component]
        data = encode_value(local)
        number = one.numbers.get(data)
        if number is not None:
            return number
        if encode_value(one.actor.canonical(local)) != data:
            raise Nondeterministic(
                f"{one.actor.name}: canonical names, given once more, are others ({one.actor.describe(local)}); name "
                "by first use, not by what the names were"
            )
        number = one.numbers[data] = len(one.locals)
        if number >= LOCALS_MAX:
            raise ConfigurationError(one.actor.name, number, "has too many local states; bound what grows")
        one.locals.append(local)
        one.digests.append(digest(one.actor.name.encode() + b"=" + data))
        one.pending.append(self._pending_of(one.actor.name, local))
        one.unsound.append(one.broken_in(local))
        one.seen.append(tuple(0 if view is None else _value(view, local) for view in one.views))
        one.inputs.append(tuple(self._spontaneous(one.actor, local)))
        return number

    def envelope(self, envelope: Envelope) -> int:
        """The number of an envelope."""
        return self.add_envelope(envelope)

    def add_envelope(self, envelope: Envelope) -> int:
        """The number of an envelope, whatever the symmetries of the system."""
        data = encode_envelope(envelope)
        number = self._numbers.get(data)
        if number is not None:
            return self._same(number, envelope)
        node = identity.node_of(envelope.to)
        dest = self.place.get(node)
        if dest is None:
            raise self._find_nobody(envelope, node)
        number = self._numbers[data] = len(self.envelopes)
        self.envelopes.append(envelope)
        self.digests.append(digest(b"to " + data))
        self.dest.append(dest)
        self.lossy.append(isinstance(envelope.event, Message))
        channel = (identity.node_of(envelope.sender), node)
        self.channel.append(self._channels.setdefault(channel, len(self._channels) + 1))
        return number

    def _find_nobody(self, envelope: Envelope, node: str) -> ConfigurationError:
        """Nobody is there to take it."""
        said, mend = "tells", "add a component of that name, or change the `route` or `tells` that names it"
        if isinstance(envelope.event, Request):
            said, mend = "asks", "add a ServiceActor of that name"
        mend += f" (there are: {', '.join(self.place)})"
        rule = f"{envelope.sender or 'the environment'} {said} it, and no component is called {node!r}; {mend}"
        return ConfigurationError(envelope.to, envelope.event, rule)

    def _same(self, number: int, envelope: Envelope) -> int:
        """The number, if the envelope that has it is this one.  What an event carries is encoded without its type: of
        two that differ in that alone one would never be explored.  Raises `ConfigurationError`, which names both."""
        known = self.envelopes[number]
        if known != envelope:
            rule = f"has the bytes of {envelope.event!r}; give them a field that tells them apart"
            raise ConfigurationError(envelope.to, known.event, rule)
        return number

    def _spontaneous(self, actor: Actor, local: Any) -> Iterator[Spontaneous]:
        system = self.system
        for event in actor.inputs(local):
            spends = next((one for one in system.budgets if one.spends(actor.name, event)), None)
            if spends is not None and not spends.limit:
                continue
            budget = FREE if spends is None else system.spendable.index(spends)
            event_number, wait = self.spontaneous(actor, local, event)
            yield Spontaneous(event_number, budget, wait)

    def spontaneous(self, actor: Actor, local: Any, event: Any) -> tuple[int, int]:
        """An event that may happen by itself in a local state, and what it waits for, as numbers."""
        waiting = tuple(order.waiting(actor.name, local, event) for order in self.system.orders)
        return self.envelope(Envelope("", actor.name, event)), self._waiting_of(waiting)

    # -- deadline orders ----------------------------------------------------------------------------------------

    def _pending_of(self, actor: str, local: Any) -> int:
        pending = tuple(order.pending(actor, local) for order in self.system.orders)
        number = self._pending.setdefault(pending, len(self._pending))
        for waiting, blocked in zip(self._waiting, self.block, strict=True):
            if number == len(blocked):
                blocked.append(self._blocks(pending, waiting))
        return number

    def _waiting_of(self, waiting: tuple[Hashable | None, ...]) -> int:
        number = self._waiting.setdefault(waiting, len(self._waiting))
        if number == len(self.block):
            self.block.append([self._blocks(pending, waiting) for pending in self._pending])
        return number

    def _blocks(self, pending: tuple[Hashable | None, ...], waiting: tuple[Hashable | None, ...]) -> bool:
        return any(
            early is not None and late is not None and order.before(early, late)
            for order, early, late in zip(self.system.orders, pending, waiting, strict=True)
        )

    # -- entries ------------------------------------------------------------------------------------------------

    def make(self, event: int, local: int) -> int:
        """Make the entry of a pair that has none, whatever the symmetries of the system; its number."""
        component = self.dest[event]
        one = self.components[component]
        before, envelope = one.locals[local], self.envelopes[event]
        number, made = len(self.entries), b""
        try:
            reaction, made, watch = self._react(one.actor, before, envelope)
        except (Nondeterministic, TellsTime):
            raise
        except Exception as error:  # whatever a step raises is a verdict: nothing in a table may raise
            self.errors[number] = f"{type(error).__name__}: {error}"
            entry = Entry(FAILED, broken=1)
        else:
            entry = self._interned(component, before, envelope, reaction, watch)
        one.cuts += entry.local == CUT
        self.entry_of[event, local] = number
        self.entries.append(entry)
        if self.rechecked:
            self.outcomes.append(digest(made))
        self.pairs.append((event, local))
        one.entries += 1
        return number

    def _react(self, actor: Actor, before: Any, envelope: Envelope) -> tuple[Reaction | None, bytes, Watch]:
        """Twice, and both times the same; its outcome (once: not asked for), and the steps that it is made of."""
        watch: Watch = []
        made = b""
        reaction = actor.react(before, envelope, watch)
        if self.twice:
            made, again = encode_outcome(reaction), actor.react(before, envelope)
            if made != encode_outcome(again):
                raise Nondeterministic(
                    f"{actor.name}: two results for {envelope.event!r} in one local state ({actor.describe(before)}): "
                    f"first {reaction!r}, then {again!r}; a step may depend on nothing but its record and event"
                )
        check_shift(actor, before, envelope, reaction)
        if reaction is not None and actor.within(reaction.local):
            self.cells.update((seen.full_machine, seen.row, seen.source) for seen in watch if seen.row >= 0)
        return reaction, made, watch

    def _interned(
        self, component: int, before: Any, envelope: Envelope, reaction: Reaction | None, watch: Watch
    ) -> Entry:
        if reaction is None:
            return Entry(WAITS)
        one = self.components[component]
        actor = one.actor
        after = actor.canonical(reaction.local)
        if not actor.within(after):
            return Entry(CUT)
        system = self.system
        broken = next(
            (
                number
                for number, step in enumerate(system.over_steps, 2)
                if not step.holds(actor.name, before, envelope.event, after)
            ),
            0,
        )
        number = self.local(component, after)
        broken = broken or _broken_on_the_way(one, watch, reaction.local) or one.unsound[number]
        calls = system.calls_after(actor, before, envelope.event, reaction, after)
        return Entry(
            number,
            tuple(self.envelope(one) for one in system.list_sent(reaction)),
            tuple(self.envelope(one) for one in calls),
            broken,
        )


def _broken_on_the_way(one: Component, watch: Watch, local: Any) -> int:
    """What a record breaks that a step of the reaction led to, and that is not part of the next local state.

    Raises `ConfigurationError` for a step of a machine that the component does not name.
    """
    steps = [seen for seen in watch if seen.fsm is not None]
    for seen in steps:
        if seen.full_machine not in one.check.machines:
            rule = (
                f"steps {seen.full_machine}, and does not name it in `machines`: nobody would see its invariants break"
            )
            raise ConfigurationError("actor", one.actor.name, rule)
    gone = (seen.after for seen in steps if not _keeps(local, seen.after))
    return next((broken for record in gone if (broken := one.broken_in(record))), 0)


def _keeps(local: Any, record: Any) -> bool:
    """Whether a local state plainly has this very record, so that it was looked at with it."""
    parts = getattr(local, "parts", None)
    if parts is not None:
        return parts.own.record is record or any(one.party.record is record for one in parts.parties)
    fields = (getattr(local, name) for name in getattr(local, "__struct_fields__", ()))
    return any(field is record or getattr(field, "record", None) is record for field in fields)


def encode_outcome(reaction: Reaction | None) -> bytes:
    """All that a reaction is, as bytes."""
    if reaction is None:
        return b""
    sends, calls = (tuple(encode_envelope(one) for one in some) for some in (reaction.sends, reaction.calls))
    return encode_value((encode_value(reaction.local), sends, calls))


def _view_of(views: tuple[View, ...], actor: str) -> View | None:
    return next((view for view in views if view.actor == actor), None)


def _value(view: View, local: Any) -> int:
    try:
        value = view.of(local)
    except Exception as error:
        raise failed_function(
            f"view of {view.actor}", getattr(getattr(local, "party", local), "record", local), error
        ) from error
    if not 0 <= value < view.size:
        raise ConfigurationError(f"view of {view.actor}", value, f"must lie in range({view.size})")
    return int(value)
