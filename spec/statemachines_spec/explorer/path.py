"""Path: a run of a system, transition by transition, with all that its components did on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from statemachines.kernel import GaplessError, identity
from statemachines_spec.explorer.actor import Actor, Envelope, SeenStep
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.entry_tables import WAITS
from statemachines_spec.explorer.moves import Kind, Move, Moves, ReplayedAction, State
from statemachines_spec.explorer.property import NO_ERROR, Always, combinations
from statemachines_spec.explorer.system import System

ScriptLine = tuple[str, str, int]
"""An action that any process can follow: kind, digest of the envelope in hexadecimal, what found room (bits)."""


class Turn(msgspec.Struct, frozen=True):
    """One component takes one event within a transition."""

    actor: str
    envelope: Envelope
    before: str
    after: str
    steps: tuple[SeenStep, ...]
    sends: tuple[Envelope, ...]
    local_before: Any = None
    local_after: Any = None


class Leg(msgspec.Struct, frozen=True):
    """One transition: what each component did (nothing when a message is lost), and messages that found no room."""

    kind: Kind
    envelope: Envelope
    turns: tuple[Turn, ...]
    left_out: tuple[Envelope, ...]
    line: ScriptLine


class ExploredPath(msgspec.Struct, frozen=True):
    """A run from the initial state; `broken`: the property that does not hold at its end ("" = none is known to), with
    `why`; `last`: the local states there, by component; `quiet`: no message is in flight there."""

    legs: tuple[Leg, ...]
    broken: str
    why: str
    last: dict[str, Any]
    quiet: bool = False

    @property
    def script(self) -> tuple[ScriptLine, ...]:
        """What `follow` takes."""
        return tuple(leg.line for leg in self.legs)


def along(
    entries: Entries, states: Sequence[State], ending: int = 0, moves: Moves | None = None,
    events: Sequence[int] | None = None,
) -> ExploredPath:  # fmt: skip
    """The path through these states (with symmetry: a true run through states that they stand for); `ending`: the
    property that a step out of the last one breaks; `moves`: others than the system's; `events`: what happens between
    the states, where several things could."""
    moves = Moves(entries) if moves is None else moves
    state, actions = states[0], []
    for number, after in enumerate(states[1:]):
        found = (
            move
            for move in moves.of(state)
            if _leads_to(moves, move, after) and (events is None or move.action.event == events[number])
        )
        move = _least(moves, found)
        assert move.target is not None
        actions.append(move.action)
        state = move.target
    if ending:
        actions.append(_least(moves, (move for move in moves.of(state) if move.broken == ending)).action)
    return _carried_out(moves, states[0], actions)


def follow(system: System, script: Iterable[ScriptLine]) -> ExploredPath:
    """Carry a script out from the beginning; raises `GaplessError` where it cannot be."""
    entries = Entries(system)
    moves = Moves(entries)
    state, actions = moves.first(), []
    for number, line in enumerate(script, 1):
        found = [move for move in moves.of(state) if _line(entries, move.action) == tuple(line)]
        if not found:
            raise GaplessError(f"line {number} of the script, {line}: nothing of the kind can happen there")
        actions.append(found[0].action)
        if found[0].target is None:
            break
        state = found[0].target
    return _carried_out(moves, moves.first(), actions)


def broken_in(entries: Entries, state: State) -> int | None:
    """The first property that a state breaks."""
    flying = len(entries.components) + len(entries.system.spendable)
    for number, one in enumerate(entries.system.over_states):
        if not isinstance(one, Always) or (one.quiet and state[flying]):
            continue
        place, stride = 0, 1
        for view in one.views:
            component = entries.place[view.actor]
            place += entries.components[component].seen[state[component]][number] * stride
            stride *= view.size
        if combinations(one)[place]:
            return number
    return None


def _leads_to(moves: Moves, move: Move, after: State) -> bool:
    return move.target is not None and moves.least(move.target) == after


def _least(moves: Moves, found: Iterable[Move]) -> Move:
    """Of several actions, always the same one."""
    digests = moves.entries.digests
    return min(found, key=lambda move: (move.action.kind, digests[move.action.event], move.action.kept))


def _line(entries: Entries, action: ReplayedAction) -> ScriptLine:
    return (action.kind.name.lower(), f"{entries.digests[action.event]:016x}", action.kept)


def _carried_out(moves: Moves, first: State, actions: list[ReplayedAction]) -> ExploredPath:
    entries, system = moves.entries, moves.entries.system
    state, legs, broken, why = first, [], "", ""
    for action in actions:
        move = next(move for move in moves.of(state) if move.action == action)
        legs.append(_leg(moves, state, action))
        if move.broken == 1:
            broken, why = NO_ERROR, legs[-1].turns[-1].after
        elif move.broken:
            one = entries.step_properties[move.broken - 2]
            broken, why = one.name, one.text
        if move.target is None:
            break
        state = move.target
    declared = broken == NO_ERROR or broken in (one.name for one in system.over_steps)
    if not declared and (number := broken_in(entries, state)) is not None:
        broken, why = system.over_states[number].name, system.over_states[number].text
    if not broken and not legs and (ending := entries.unsound_start):
        broken, why = entries.step_properties[ending - 2].name, entries.step_properties[ending - 2].text
    last = {one.actor.name: one.locals[local] for one, local in zip(entries.components, state, strict=False)}
    return ExploredPath(tuple(legs), broken, why, last, not state[moves.net])


def _leg(moves: Moves, state: State, action: ReplayedAction) -> Leg:
    entries = moves.entries
    envelope = entries.envelopes[action.event]
    line = _line(entries, action)
    if action.kind is Kind.DROP:
        return Leg(action.kind, envelope, (), (), line)
    turns: list[Turn] = []
    local = list(state[: moves.width])
    queue = [action.event]
    for event in queue:
        component = entries.dest[event]
        one = entries.components[component]
        before = one.locals[local[component]]
        entry = entries.entry(event, local[component])
        if entry.local <= WAITS:
            error = entries.errors.get(entries.entry_of[event, local[component]], "")
            seen = tuple(_until_it_raises(one.actor, before, entries.envelopes[event]))
            turns.append(Turn(one.actor.name, entries.envelopes[event], one.actor.describe(before), error, seen, ()))
            break
        watch: list[SeenStep] = []
        one.actor.react(before, entries.envelopes[event], watch)
        local[component] = entry.local
        sends = tuple(entries.envelopes[number] for number in entry.sends)
        after = one.actor.describe(one.locals[entry.local])
        turns.append(
            Turn(
                one.actor.name, entries.envelopes[event], one.actor.describe(before), after, tuple(watch), sends,
                before, one.locals[entry.local],
            )
        )  # fmt: skip
        queue += entry.calls
    return Leg(action.kind, envelope, tuple(turns), _left_out(moves, state, action), line)


def _until_it_raises(actor: Actor, local: Any, envelope: Envelope) -> list[SeenStep]:
    watch: list[SeenStep] = []
    with suppress(Exception):
        actor.react(local, envelope, watch)
    return watch


def _left_out(moves: Moves, state: State, action: ReplayedAction) -> tuple[Envelope, ...]:
    """The messages that were sent and found no room."""
    entries = moves.entries
    sends = moves.cascade(action.event, state[: moves.width]).sends
    messages = [message for message in state[moves.net :] if message]
    if action.kind is Kind.DELIVER:
        messages.remove(action.event)
    sends = moves.fresh(messages, sends)
    return tuple(entries.envelopes[one] for bit, one in enumerate(sends) if not action.kept >> bit & 1)


def node_of(envelope: Envelope) -> str:
    """The component that an envelope comes from."""
    return identity.node_of(envelope.sender)
