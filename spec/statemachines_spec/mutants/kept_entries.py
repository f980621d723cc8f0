"""Kept entries: the entries of an original system under a mutant: what the mutant cannot touch is not made again."""

from __future__ import annotations

from typing import Any

from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.entry_tables import Component, Nondeterministic, encode_value
from statemachines_spec.mutants.original import Original, TracedEntries

_LISTS = ("locals", "digests", "inputs", "pending", "seen", "unsound")


class KeptEntries(Entries):
    """`affected`: numbers of entries that are to be made again; `locals_affected`: (component, number) of local states
    whose inputs and views are.  Numbers mean the same as in the original, so entries of both can be compared."""

    def __init__(self, original: Original, affected: set[int], locals_affected: set[tuple[int, int]]) -> None:
        before = original.entries
        vars(self).update(vars(before))
        self.components = tuple(_copy(one) for one in before.components)
        for name in ("envelopes", "lossy", "channel", "dest", "entries", "pairs"):
            setattr(self, name, list(getattr(before, name)))
        self.digests = list(before.digests)
        self.block = [list(row) for row in before.block]
        for name in ("_numbers", "_channels", "_pending", "_waiting"):
            setattr(self, name, dict(getattr(before, name)))
        self.errors = dict(before.errors)
        self.cells = set()
        self.changed = self._remade(before, affected, sorted(locals_affected))

    def _remade(self, before: TracedEntries, affected: set[int], locals_affected: list[tuple[int, int]]) -> bool:
        """Whether any of those that are made again comes out otherwise."""
        changed = False
        for component, number in locals_affected:
            changed |= self._reckon(self.components[component], number)
        affected = affected | self._led_astray(before)
        gone = {before.pairs[number] for number in affected}
        self.entry_of = {pair: number for pair, number in before.entry_of.items() if pair not in gone}
        for number in sorted(affected):
            changed |= self.entries[self.make(*before.pairs[number])] != before.entries[number]
        return changed

    def _reckon(self, one: Component, number: int) -> bool:
        """What is known of a local state beside its entries, once more."""
        local = one.locals[number]
        if encode_value(one.actor.canonical(local)) != encode_value(local):
            raise Nondeterministic(f"{one.actor.name}: canonical names are others ({one.actor.describe(local)})")
        known = one.inputs[number], one.pending[number], one.seen[number], one.unsound[number]
        one.inputs[number] = tuple(self._spontaneous(one.actor, local))
        one.pending[number] = self._pending_of(one.actor.name, local)
        one.seen[number] = tuple(0 if view is None else int(view.of(local)) for view in one.views)
        one.unsound[number] = one.broken_in(local)
        return known != (one.inputs[number], one.pending[number], one.seen[number], one.unsound[number])

    def _led_astray(self, before: TracedEntries) -> set[int]:
        """The entries that lead to a local state whose records keep their invariants otherwise than before."""
        pairs = zip(before.components, self.components, strict=True)
        differing = [
            {at for at, (was, now) in enumerate(zip(old.unsound, new.unsound, strict=True)) if was != now}
            for old, new in pairs
        ]
        if not any(differing):
            return set()
        entries = zip(before.pairs, before.entries, strict=True)
        return {at for at, ((event, _), entry) in enumerate(entries) if entry.local in differing[before.dest[event]]}


def _copy(one: Component) -> Component:
    made: Component = object.__new__(Component)
    vars(made).update(vars(one))
    for name in _LISTS:
        setattr(made, name, list(getattr(one, name)))
    made.numbers = dict(one.numbers)
    return made


def print_of(entries: Entries) -> frozenset[Any]:
    """All that entries say, whatever their numbers are: for entries that were made for themselves."""
    digests = [one.digests for one in entries.components]
    said: set[Any] = set()
    for (event, local), entry in zip(entries.pairs, entries.entries, strict=True):
        component = entries.dest[event]
        after = digests[component][entry.local] if entry.local > 0 else entry.local
        sends, calls = (tuple(entries.digests[one] for one in some) for some in (entry.sends, entry.calls))
        said.add((entries.digests[event], digests[component][local], after, sends, calls, entry.broken))
    for number, one in enumerate(entries.components):
        for at, inputs in enumerate(one.inputs):
            said.add((number, one.digests[at], tuple(entries.digests[each.event] for each in inputs), one.seen[at]))
    return frozenset(said)
