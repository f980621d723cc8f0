"""Declared tables: the rows of a live machine as a table of the kernel, which is shown, drawn, and judges traces.

It is the table alone: what a row does is what the callbacks of the machine do, and `Fsm.step` is never called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from typing import Any, Final, NoReturn

import msgspec

from statemachines.adoption.live_machine import (
    AdoptedSubject,
    TransitionRow,
    name_state,
    read_rows,
    read_subject,
    walk_states,
)
from statemachines.kernel import STAY, Call, ConfigurationError, Fsm, Ignore, Protocol, Refuse
from statemachines.kernel import Row as TableRow
from statemachines.kernel.event import snake
from statemachines.registry import load, register

CLAUSE: Final = "adopted"
"""In place of the clause that a declared machine has for each row."""

PREFIX: Final = "ADOPTED"


class AdoptedRecord(msgspec.Struct, frozen=True):
    """What a table needs of a record."""

    status: Enum


def build_fsm(subject: AdoptedSubject, machine: int, *, protocol: str = "", automatic: bool = True) -> Fsm[Any]:
    """The table of one machine of a subject; raises `ConfigurationError` for one with parallel states.

    A row of a state with substates is taken in each of them, and a destination is the state that is entered in the end.
    The numbers of its rows are those of `read_rows`; what no row takes is refused, or ignored as the machine says.
    """
    live = subject.machines[machine]
    rows, _ = read_rows(subject)
    own = [row for row in rows if row.machine == machine and (automatic or not row.automatic)]
    names = list(dict.fromkeys([*(name for name, _ in walk_states(live)), *_named_in(own)]))
    states = Enum("AdoptedState", {f"S{place}": name for place, name in enumerate(names)})  # type: ignore[misc]
    by_name = {one.value: one for one in states}
    events = {row.trigger: _event_type(row.trigger) for row in own}
    _check_names(events)
    table: list[TableRow | Ignore] = [_table_row(live, row, events, by_name) for row in own]
    table += _undecided(live, table, events, by_name)
    return Fsm(
        machine_name(subject, machine),
        protocol=protocol,
        record=AdoptedRecord,
        states=states,
        initial=by_name[_initial_of(live)],
        rows=tuple(table),
    )


def _check_names(triggers: Iterable[str]) -> None:
    named: dict[str, str] = {}
    for one in triggers:
        other = named.setdefault(event_name(one), one)
        if other != one:
            rule = f"is named like {other!r} in a table ({event_name(one)}); rename one of them"
            raise ConfigurationError("trigger", one, rule)


def machine_name(subject: AdoptedSubject, machine: int) -> str:
    """How a table is called: after the model that its machine is on."""
    live = subject.machines[machine]
    kind = re.sub(r"\W", "_", snake(type(live.models[0] if live.models else live).__name__)).strip("_") or "machine"
    name = kind if kind[0].isalpha() else f"machine_{kind}"
    return name if len(subject.machines) == 1 else f"{name}_{machine + 1}"


def _named_in(rows: list[TransitionRow]) -> Iterator[str]:
    for row in rows:
        yield row.source
        if row.dest:
            yield row.dest


def _table_row(live: Any, row: TransitionRow, events: dict[str, Any], by_name: dict[str, Any]) -> TableRow:
    sources = tuple(state for name, state in by_name.items() if _is_in(live, name, row.source))
    dest = by_name[_entered(live, row.dest)] if row.dest else STAY
    return TableRow(events[row.trigger], sources, dest, _action(row), _guard(row), CLAUSE)


def _is_in(live: Any, state: str, parent: str) -> bool:
    separator = getattr(live.state_cls, "separator", None)
    return state == parent or (separator is not None and state.startswith(f"{parent}{separator}"))


def _entered(live: Any, name: str) -> str:
    """The state that is entered in the end: a state with substates goes on to its initial one."""
    state = dict(walk_states(live)).get(name)
    initial = getattr(state, "initial", None)
    if initial is None:
        return name
    if isinstance(initial, list | tuple):
        if len(initial) > 1:
            rule = f"{name} has parallel states, so the machine has no table of single states: neither shown nor traced"
            raise ConfigurationError("machine", type(live).__name__, f"{rule}; it is searched all the same")
        initial = initial[0]
    return _entered(live, f"{name}{live.state_cls.separator}{getattr(initial, 'name', initial)}")


def _initial_of(live: Any) -> str:
    """The state that the factory leaves its models in."""
    initial = getattr(live.models[0], live.model_attribute)
    if isinstance(initial, list | tuple):
        raise ConfigurationError("machine", type(live).__name__, "begins in parallel states: it has no table")
    return name_state(live, initial)


def _undecided(
    live: Any, table: list[TableRow | Ignore], events: dict[str, Any], by_name: dict[str, Any]
) -> Iterator[Ignore]:  # fmt: skip
    """What transitions does where no row is: a MachineError, unless the state or the machine ignores it."""
    decided = {(one.on, state) for one in table if isinstance(one, TableRow) for state in one.source}  # type: ignore[union-attr]
    states = dict(walk_states(live))
    for event in events.values():
        ignored: list[Any] = []
        refused: list[Any] = []
        for name, member in by_name.items():
            if (event, member) in decided:
                continue
            own = states[name].ignore_invalid_triggers if name in states else None
            ignores = live.ignore_invalid_triggers if own is None else own
            (ignored if ignores else refused).append(member)
        if ignored:
            yield Ignore((event,), tuple(ignored), CLAUSE)
        if refused:
            yield Refuse((event,), tuple(refused), CLAUSE)


@cache
def _event_type(trigger: str) -> Any:
    return msgspec.defstruct(trigger, [], bases=(Call,), frozen=True)


def event_name(trigger: str) -> str:
    """A trigger as tables and traces name it: in snake case, as every event."""
    return snake(trigger)


def _guard(row: TransitionRow) -> Callable[..., bool]:
    """Every row has a guard, so that rows behind it stand in the table as well; "" is one that always holds."""
    return _make_callback(" and ".join(row.guards))


def _action(row: TransitionRow) -> Callable[..., Any] | None:
    return _make_callback(", ".join(row.actions)) if row.actions else None


def _make_callback(name: str) -> Callable[..., Any]:
    def run(*given: Any) -> NoReturn:
        raise ConfigurationError("step", name, "is a callback of an adopted machine: only that machine runs it")

    run.__name__ = name
    return run


# -- as a protocol, for traces --------------------------------------------------------------------------------------


def protocol_of(place: str) -> Protocol:
    """The protocol that traces of an adopted machine name; another process makes its tables from the factory again.

    Raises `ConfigurationError` where there is no factory at `place`, or its machine has no table.
    """
    subject = subject_at(place)
    name = protocol_name(place)
    machines = {
        machine_name(subject, one): f"{__name__}:{encode_place(place, one)}" for one in range(len(subject.machines))
    }
    for one in range(len(subject.machines)):
        build_fsm(subject, one, protocol=name)
    return register(Protocol(name, PREFIX, machines, about=f"adopted from {place}"))


def protocol_name(place: str) -> str:
    """The name of the protocol of a factory: its place in small letters."""
    return f"adopted_{re.sub(r'[^a-z0-9]+', '_', place.lower()).strip('_')}"[:64]


def subject_at(place: str) -> AdoptedSubject:
    """What the factory at a place makes."""
    factory: Any = load(place, object, "factory")
    if not callable(factory):
        raise ConfigurationError("factory", place, f"is a {type(factory).__name__}, and not a function that makes one")
    return read_subject(factory())


def adopt_machine(place: str, factory: Any) -> Fsm[Any]:
    """The table of the one machine that the factory at a place makes."""
    if not callable(factory):
        rule = f"is a {type(factory).__name__}; name a declared machine (Fsm), or a factory of a transitions machine"
        raise ConfigurationError("machine", place, rule)
    subject = subject_at(place)
    if len(subject.machines) != 1:
        rule = f"makes {len(subject.machines)} machines; give a factory for the one that is meant"
        raise ConfigurationError("machine", place, rule)
    return build_fsm(subject, 0, automatic=False)


def encode_place(place: str, machine: int) -> str:
    """A place and the number of a machine as one name, which `__getattr__` of this module reads."""
    return f"table_{place.replace('_', '_u').replace('.', '_d').replace(':', '_c')}_m{machine}"


@cache
def _table_at(name: str) -> Fsm[Any]:
    whole, _, machine = name.removeprefix("table_").rpartition("_m")
    letters = {"u": "_", "d": ".", "c": ":"}
    place = re.sub(r"_([udc])", lambda found: letters[found[1]], whole)
    return build_fsm(subject_at(place), int(machine), protocol=protocol_name(place))


def __getattr__(name: str) -> Fsm[Any]:
    """The table of an adopted machine, by its encoded place."""
    if not re.fullmatch(r"table_\w+_m\d+", name):
        raise AttributeError(name)
    return _table_at(name)
