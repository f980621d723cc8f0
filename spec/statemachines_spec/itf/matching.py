"""Matching: an ITF trace as a run of a closed system: every state of it is one that the system can be in then.

Between two states of the trace the system takes one transition, or none.  All global states that agree with the trace
so far are carried along, since a trace may say less than a state has.  A variable is the component of that name, or
stands at a *place*: `tm.status` is a field of a component, and `*.status` that field of each component that the
variable, a map or a record, has as a key.  Of a component's record fields may be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.trace.itf import ItfTrace, Value, encode_itf, entries_of, has_part
from statemachines_spec.explorer.explore import ExploredPath as Run
from statemachines_spec.explorer.explore import along
from statemachines_spec.explorer.moves import State
from statemachines_spec.explorer.system import System
from statemachines_spec.itf.state_values import NETWORK, StateValues

STATES_MAX: Final = 20_000
"""Global states that are carried along, at most."""
EVERY: Final = "*"
SHOWN: Final = 6


class VariablePlace(NamedTuple):
    """Where the value of a variable is: a component (or the network), and the fields that lead to it."""

    component: str
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.component, *self.fields))


class Expected(NamedTuple):
    """What a state of the trace says of one place."""

    place: VariablePlace
    value: Value


class Match(msgspec.Struct, frozen=True):
    """`steps` of `of` states of the trace were followed; `run`: a run that has them all; `why`: what the next state
    has that the system cannot do, or why nothing is decided (`bounded`)."""

    steps: int
    of: int
    run: Run | None = None
    why: str = ""
    bounded: bool = False


def match_run(
    system: System, trace: ItfTrace, places: Mapping[str, str] | None = None, ignored: Iterable[str] = ()
) -> Match:
    """Follow the trace; raises `ConfigurationError` for a variable that stands nowhere in the system."""
    matcher = _Matcher(StateValues(system))
    skipped = frozenset(ignored)
    read = {
        name: matcher.place(name, (places or {}).get(name, name)) for name in trace.vars if name not in skipped
    }  # fmt: skip
    for name in (*skipped, *(places or {})):
        if name not in trace.vars:
            raise ConfigurationError("variable", name, f"is not in the trace; it has: {', '.join(trace.vars)}")
    return matcher.follow([matcher.expected(number, state, read) for number, state in enumerate(trace.steps)])


class _Matcher:
    """Carries along the global states of one system."""

    def __init__(self, values: StateValues) -> None:
        self.values = values
        self.moves = values.moves
        self._known: dict[tuple[int, int, int], bool] = {}

    def place(self, variable: str, text: str) -> VariablePlace:
        """The place of a variable."""
        first, *fields = text.split(".")
        if (first == EVERY and fields) or first in self.values.names:
            return VariablePlace(first, tuple(fields))
        rule = (
            f"is no component; there are: {', '.join(self.values.names)}; say where it stands (--map {variable}="
            "COMPONENT.FIELD, or *.FIELD for a map by component), or leave it out (--ignore)"
        )
        raise ConfigurationError("variable", text, rule)

    def expected(self, number: int, state: dict[str, Value], read: Mapping[str, VariablePlace]) -> list[Expected]:
        """What one state of the trace says."""
        found: list[Expected] = []
        for name, place in read.items():
            if place.component != EVERY:
                found.append(Expected(place, state[name]))
                continue
            entries = entries_of(state[name])
            if entries is None:
                raise ConfigurationError("variable", name, f"is no map by component in state {number}")
            for key, value in entries.items():
                if key not in self.values.components:
                    there = ", ".join(self.values.components)
                    raise ConfigurationError(f"key of {name}", key, f"is no component; there are: {there}")
                found.append(Expected(VariablePlace(key, place.fields), value))
        return found

    def follow(self, steps: list[list[Expected]]) -> Match:
        """Step by step, as long as some state agrees."""
        first = self.moves.first()
        levels: list[dict[State, State]] = []
        possible: dict[State, State] = {first: first}
        for number, expected in enumerate(steps):
            agreeing = {state: before for state, before in possible.items() if self._agrees(number, state, expected)}
            if not agreeing:
                return Match(number, len(steps), why=self._why(number, possible, expected))
            levels.append(agreeing)
            possible = {}
            for state in agreeing:
                possible.setdefault(state, state)
                for move in self.moves.of(state):
                    if move.target is not None:
                        possible.setdefault(move.target, state)
            if len(possible) > STATES_MAX:
                why = f"more than {STATES_MAX} states of the system agree with it; say more of them in the trace"
                return Match(number + 1, len(steps), why=why, bounded=True)
        return Match(len(steps), len(steps), self._run(levels))

    def _run(self, levels: list[dict[State, State]]) -> Run:
        state = next(iter(levels[-1]))
        states = [state]
        for level in reversed(levels):
            before = level[state]
            if before != state:
                states.append(before)
            state = before
        return along(self.values.entries, states[::-1], moves=self.moves)

    def _agrees(self, number: int, state: State, expected: list[Expected]) -> bool:
        return all(self._has(number, turn, state, one) for turn, one in enumerate(expected))

    def _has(self, number: int, turn: int, state: State, one: Expected) -> bool:
        if one.place.component == NETWORK and NETWORK in self.values.names:
            return has_part(self.values.messages(state), one.value)
        local = state[self.values.entries.place[one.place.component]]
        known = self._known.get((number, turn, local))
        if known is None:
            found = (
                has_part(value, one.value) for value in _values_at(self.values.local(state, one.place.component), one)
            )
            known = self._known[number, turn, local] = any(found)
        return known

    def _why(self, number: int, possible: dict[State, State], expected: list[Expected]) -> str:
        """Which place cannot have its value, and what it can have instead."""
        for turn, one in enumerate(expected):
            if not any(self._has(number, turn, state, one) for state in possible):
                said = sorted({self._difference(state, one) for state in possible})
                return "; or ".join(said[:SHOWN])
        return "no single transition leads there, though each value by itself is possible"

    def _difference(self, state: State, one: Expected) -> str:
        if one.place.component == NETWORK and NETWORK in self.values.names:
            return _difference(self.values.messages(state), one.value, str(one.place))
        values = _values_at(self.values.local(state, one.place.component), one)
        if not values:
            return f"{one.place} is not there"
        nearest = max(values, key=lambda value: len({*value} & {*one.value}) if _are_records(value, one.value) else 0)
        return _difference(nearest, one.value, str(one.place))


def _are_records(*values: Value) -> bool:
    return all(isinstance(one, dict) and not any(name.startswith("#") for name in one) for one in values)


def _difference(whole: Value, part: Value, at: str) -> str:
    """The first field in which a value is not `part`."""
    if _are_records(whole, part):
        for name in part:
            if name not in whole:
                return f"{at}.{name} is not there"
            if not has_part(whole[name], part[name]):
                return _difference(whole[name], part[name], f"{at}.{name}")
    return f"{at} is {_text(whole)}, not {_text(part)}"


def _values_at(local: Any, one: Expected) -> list[Value]:
    """The values at a place: in the local state, and in the record of the machine that it holds."""
    record = getattr(getattr(local, "party", None), "record", None)
    found = []
    for begin in (record, local):
        value, there = begin, begin is not None
        for field in one.place.fields:
            there = there and hasattr(value, field)
            value = getattr(value, field, None)
        if there:
            found.append(encode_itf(value))
    return found


def _text(value: Value) -> str:
    return msgspec.json.encode(value).decode()[:200]
