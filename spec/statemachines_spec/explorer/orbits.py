"""Orbits: what each renaming makes of local states, envelopes and entries, and the check that it changes nothing else.

With a local state, or an envelope, all its renamed ones are given numbers (its *orbit*), and the tables here say which
is which.  An entry is made together with those of the renamed pairs, each by its own `react`, and they must come to
the same, renamed.  So must inputs, budgets, deadline orders, views, the initial state and the properties.  Whatever
differs is an error that shows both: then no verdict could be trusted.

Why one state of each orbit is enough: a renaming that commutes with every entry takes runs to runs.  So a state can be
reached if and only if its renamed ones can, in as many steps, and a property that does not change under renaming breaks
in all of them or in none.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from statemachines.kernel import identity
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.entry_tables import Entry, EntryTables
from statemachines_spec.explorer.property import Always, Sometimes, View, combinations
from statemachines_spec.explorer.symmetry import Asymmetric, differences, one_after_another, renamings

Row = tuple[int, ...]
"""One number for each renaming."""

SHOWN = 5
"""Of the differences between two local states an error shows the first ones."""


class Orbits:
    """The tables of one system; `places` by renaming and component: where it goes; `locals` by component and local
    state, `envelopes` by envelope: the renamed ones; `digests` and `envelope_digests`: theirs."""

    def __init__(self, entries: EntryTables) -> None:
        system = entries.system
        self.entries = entries
        self.renamings = renamings(system.symmetries)
        self._after = one_after_another(self.renamings)
        names = [actor.name for actor in system.actors]
        self.places = tuple(
            tuple(names.index(one.names.get(name, name)) for name in names) for one in self.renamings
        )  # fmt: skip
        none: Row = (0,) * len(self.renamings)
        self.locals: list[list[Row]] = [[none] for _ in names]
        self.digests: list[list[Row]] = [[none] for _ in names]
        self.envelopes: list[Row] = [none]
        self.envelope_digests: list[Row] = [none]
        self._pending: list[set[tuple[int, int]]] = [set() for _ in self.renamings]
        self._waiting: list[set[tuple[int, int]]] = [set() for _ in self.renamings]
        for one in system.over_states:
            self._check_property(one)

    # -- numbers ------------------------------------------------------------------------------------------------

    def local(self, component: int, local: Any) -> int:
        """The number of a local state that is new, with its orbit."""
        entries = self.entries
        where = [places[component] for places in self.places]
        numbers = [
            entries.add_local(place, one.of(local) if turn else local)
            for turn, (place, one) in enumerate(zip(where, self.renamings, strict=True))
        ]
        for turn, (place, number) in enumerate(zip(where, numbers, strict=True)):
            row = tuple(numbers[after[turn]] for after in self._after)
            known = self.locals[place]
            if number < len(known):
                self._check_row(known[number], row, local)
                continue
            known.append(row)
            self.digests[place].append(
                tuple(
                    entries.components[places[place]].digests[image]
                    for places, image in zip(self.places, row, strict=True)
                )
            )
        for turn, number in enumerate(numbers[1:], 1):
            self._check_local(turn, component, numbers[0], number)
        if entries.system.orders:
            for place, number in sorted(set(zip(where, numbers, strict=True))):
                self._check_orders(place, number)
        return numbers[0]

    def envelope(self, envelope: Envelope) -> int:
        """The number of an envelope that is new, with its orbit."""
        entries = self.entries
        numbers = [
            entries.add_envelope(one.of(envelope) if turn else envelope) for turn, one in enumerate(self.renamings)
        ]
        for turn, number in enumerate(numbers):
            row = tuple(numbers[after[turn]] for after in self._after)
            if number < len(self.envelopes):
                self._check_row(self.envelopes[number], row, envelope)
                continue
            self.envelopes.append(row)
            self.envelope_digests.append(tuple(entries.digests[image] for image in row))
        for turn, number in enumerate(numbers[1:], 1):
            self._check_envelope(turn, numbers[0], number)
        return numbers[0]

    def fill(self, event: int, local: int) -> int:
        """Make the entry of a pair that has none, and those of the renamed pairs; its number."""
        entries = self.entries
        number = entries.make(event, local)
        component = entries.dest[event]
        for turn in range(1, len(self.renamings)):
            pair = (self.envelopes[event][turn], self.locals[component][local][turn])
            other = entries.entry_of.get(pair)
            if other is None:
                other = entries.make(*pair)
            self._check_entry(turn, number, other)
        return number

    # -- what must be the same ----------------------------------------------------------------------------------

    def check_start(self, start: tuple[int, ...]) -> None:
        """Who may change places begins alike."""
        for turn, places in enumerate(self.places):
            for component, local in enumerate(start):
                image, other = self.locals[component][local][turn], start[places[component]]
                if image != other:
                    one, there = self.entries.components[component], self.entries.components[places[component]]
                    raise Asymmetric(
                        f"{one.actor.name} and {there.actor.name} do not begin alike where {self.renamings[turn]}: "
                        f"the first, renamed, has {_differing(there.locals[image], there.locals[other])}"
                    )

    def _check_row(self, known: Row, row: Row, value: Any) -> None:
        if known != row:
            raise Asymmetric(f"the renaming makes one of two, or comes back to another: {value!r}")

    def _check_local(self, turn: int, component: int, local: int, image: int) -> None:
        """What may happen by itself, and what properties see."""
        entries = self.entries
        ours, theirs = entries.components[component], entries.components[self.places[turn][component]]
        wanted = sorted((self.envelopes[one.event][turn], one.budget) for one in ours.inputs[local])
        found = sorted((one.event, one.budget) for one in theirs.inputs[image])
        if wanted != found:
            shown = [[(entries.envelopes[event].event, budget) for event, budget in some] for some in (wanted, found)]
            raise Asymmetric(
                f"{ours.actor.name} in ({ours.actor.describe(ours.locals[local])}) and {theirs.actor.name} do not have "
                f"the same inputs where {self.renamings[turn]}: renamed, the first has {shown[0]}, the second "
                f"{shown[1]}"
            )
        if ours.seen[local] != theirs.seen[image]:
            raise Asymmetric(
                f"the properties do not see the same of {ours.actor.name} in "
                f"({ours.actor.describe(ours.locals[local])}) and of {theirs.actor.name} where {self.renamings[turn]}: "
                f"{ours.seen[local]} and {theirs.seen[image]}"
            )

    def _check_orders(self, component: int, local: int) -> None:
        """A deadline holds an event back if and only if the renamed one holds the renamed event back: for this local
        state together with every other one so far."""
        entries = self.entries
        ours, block = entries.components[component], entries.block
        for turn, places in enumerate(self.places):
            theirs, image = entries.components[places[component]], self.locals[component][local][turn]
            waits = {one.event: one.wait for one in theirs.inputs[image]}
            late = {(one.wait, waits[self.envelopes[one.event][turn]]) for one in ours.inputs[local]}
            late -= self._waiting[turn]
            early = {(ours.pending[local], theirs.pending[image])} - self._pending[turn]
            self._waiting[turn] |= late
            pairs = [(one, other) for one in self._pending[turn] for other in late]
            pairs += [(one, other) for one in early for other in self._waiting[turn]]
            self._pending[turn] |= early
            for (before, before_image), (after, after_image) in pairs:
                if block[after][before] != block[after_image][before_image]:
                    raise Asymmetric(
                        f"the deadline orders change where {self.renamings[turn]}, seen at {ours.actor.name} in "
                        f"({ours.actor.describe(ours.locals[local])}): an event waits, and the renamed one does not"
                    )

    def _check_envelope(self, turn: int, number: int, image: int) -> None:
        entries, names = self.entries, self.renamings[turn].names
        ours, theirs = entries.envelopes[number], entries.envelopes[image]
        sender = identity.node_of(ours.sender)
        if (
            entries.dest[image] != self.places[turn][entries.dest[number]]
            or identity.node_of(theirs.sender) != names.get(sender, sender)
            or entries.lossy[image] != entries.lossy[number]
        ):
            raise Asymmetric(f"the renaming makes {theirs!r} of {ours!r} where {self.renamings[turn]}")

    def _check_entry(self, turn: int, number: int, other: int) -> None:
        entries = self.entries
        expected = self._image(turn, number)
        found = _in_order(entries, entries.entries[other])
        if found == expected:
            return
        (event, local), (other_event, there) = entries.pairs[number], entries.pairs[other]
        one, another = (entries.components[entries.dest[taken]] for taken in (event, other_event))
        more = ""
        if min(expected.local, found.local) > 0 and expected.local != found.local:
            more = f"; renamed, {_differing(another.locals[expected.local], another.locals[found.local])}"
        raise Asymmetric(
            f"{one.actor.name} takes {entries.envelopes[event].event!r} in ({one.actor.describe(one.locals[local])}), "
            f"and {another.actor.name} takes {entries.envelopes[other_event].event!r} in "
            f"({another.actor.describe(another.locals[there])}), where {self.renamings[turn]}: renamed, the first "
            f"comes to {self._describe_entry(another, expected)}; the second comes to "
            f"{self._describe_entry(another, found)}{more}"
        )

    def _image(self, turn: int, number: int) -> Entry:
        """An entry renamed."""
        entries = self.entries
        entry, component = entries.entries[number], entries.dest[entries.pairs[number][0]]
        if entry.local <= 0:
            return entry
        changed = Entry(
            self.locals[component][entry.local][turn],
            tuple(self.envelopes[one][turn] for one in entry.sends),
            tuple(self.envelopes[one][turn] for one in entry.calls),
            entry.broken,
        )
        return _in_order(entries, changed)

    def _describe_entry(self, component: Any, entry: Entry) -> str:
        if entry.local <= 0:
            return {0: "nothing, it waits", -1: "nothing within the bounds"}.get(entry.local, "an error")
        words = [f"({component.actor.describe(component.locals[entry.local])})"]
        envelopes = self.entries.envelopes
        words += [f"sends {envelopes[one].event!r} to {envelopes[one].to}" for one in entry.sends]
        words += [f"calls {envelopes[one].to} with {envelopes[one].event!r}" for one in entry.calls]
        if entry.broken:
            words.append(f"breaks step property {entry.broken}")
        return ", ".join(words)

    # -- properties ---------------------------------------------------------------------------------------------

    def _check_property(self, one: Always | Sometimes) -> None:
        """Every renaming of a combination of its views is a hit if and only if the combination is."""
        actors = [view.actor for view in one.views]
        table = combinations(one)
        for renaming in self.renamings[1:]:
            order = []
            for view in one.views:
                name = renaming.names.get(view.actor, view.actor)
                if name not in actors:
                    raise Asymmetric(
                        f"property {one.name!r} reads {view.actor} and not {name}, with which it may change places: "
                        "state it for all of them"
                    )
                order.append(actors.index(name))
            _check_table(one, table, order)


def _check_table(one: Always | Sometimes, table: list[bool], order: list[int]) -> None:
    sizes = [view.size for view in one.views]
    if any(sizes[there] != size for size, there in zip(sizes, order, strict=True)):
        raise Asymmetric(f"property {one.name!r}: views of components that may change places differ in size: {sizes}")
    strides = _strides(one.views)
    for place, hit in enumerate(table):
        values = [place // stride % size for stride, size in zip(strides, sizes, strict=True)]
        image = sum(value * strides[there] for value, there in zip(values, order, strict=True))
        if table[image] != hit:
            raise Asymmetric(
                f"property {one.name!r} changes its verdict where components change places: it is not the same for "
                f"the values {values} of its views as for the renamed ones"
            )


def _strides(views: tuple[View, ...]) -> list[int]:
    strides, size = [], 1
    for view in views:
        strides.append(size)
        size *= view.size
    return strides


def _differing(one: Any, other: Any) -> str:
    return "; ".join(islice(differences(one, other), SHOWN))


def _in_order(entries: EntryTables, entry: Entry) -> Entry:
    """The same outcome, whatever the order of messages on different channels (and of all where the network keeps
    none); calls are taken one after another, so their order stays."""
    kept = entries.system.network.ordered
    sends = tuple(sorted(entry.sends, key=entries.channel.__getitem__ if kept else None))
    return Entry(entry.local, sends, entry.calls, entry.broken)
