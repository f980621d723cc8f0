"""Invariants: what the machines of a system declare of their records, as properties that every system has.

Nobody asks for them: they come with the machines that run in the components (`Actor.machines`), and with their child
machines.  Each is evaluated once for each local state, when that gets its number, and for a record that a step led to
and no local state keeps.  A walker looks up nothing more for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from statemachines.kernel import Fsm
from statemachines.kernel.pmap import Map
from statemachines_spec.explorer.party import InternedParty


class MachineInvariant(msgspec.Struct, frozen=True):
    """An invariant of a machine, as a property of a system; `name`: the machine's name and its own, as `lock:held`."""

    name: str
    text: str


def machine_invariants(machines: Iterable[Fsm[Any]]) -> tuple[MachineInvariant, ...]:
    """Those of these machines and their child machines, parents before children."""
    found: dict[str, MachineInvariant] = {}
    for fsm in _families(machines):
        for one in fsm.invariants:
            name = f"{fsm.name}:{one.name}"
            found.setdefault(name, MachineInvariant(name, f"{fsm.full_name} declares it [{one.clause}]"))
    return tuple(found.values())


class RecordCheck:
    """The invariants of these machines and their child machines; their numbers are their places in `names`."""

    def __init__(self, machines: Iterable[Fsm[Any]], names: Sequence[str]) -> None:
        families = tuple(_families(machines))
        self.machines = frozenset(fsm.full_name for fsm in families)
        self._parties: dict[InternedParty, tuple[int, ...]] = {}
        self._of: dict[type[Any], list[tuple[type[Any], int, Callable[[Any], bool]]]] = {}
        for fsm in families:
            for one in fsm.invariants:
                number = names.index(f"{fsm.name}:{one.name}")
                self._of.setdefault(fsm.record_type, []).append((type(fsm.initial), number, one.holds))

    def broken_in(self, value: Any) -> int | None:
        """The first invariant that a record anywhere in `value` breaks (None: none).  One that raises does not hold."""
        return min(self._all_broken(value), default=None) if self._of else None

    def _all_broken(self, value: Any) -> Iterator[int]:
        todo = [value]
        for one in todo:
            if isinstance(one, msgspec.Struct):
                for states, number, holds in self._of.get(type(one), ()):
                    if type(getattr(one, "status", None)) is states and not _holds(holds, one):
                        yield number
                todo += [field for name in one.__struct_fields__ if type(field := getattr(one, name)) not in _PLAIN]
            elif isinstance(one, InternedParty):
                yield from self._broken_in_party(one)
            elif isinstance(one, Map | Mapping):
                todo += chain.from_iterable(one.items())
            elif isinstance(one, tuple | list | frozenset):
                todo += one

    def _broken_in_party(self, party: InternedParty) -> tuple[int, ...]:
        """The same for a party that many local states have: it is looked at once."""
        known = self._parties.get(party)
        if known is None:
            known = self._parties[party] = tuple(self._all_broken(party.record))
        return known


_PLAIN = frozenset((str, int, bool, bytes, float, type(None)))


def _families(machines: Iterable[Fsm[Any]]) -> Iterator[Fsm[Any]]:
    return chain.from_iterable(fsm.family() for fsm in machines)


def _holds(holds: Callable[[Any], bool], record: Any) -> bool:
    try:
        return bool(holds(record))
    except Exception:  # a promise that cannot be looked at is not kept
        return False
