"""Counterexample: a path as text, as a sequence diagram, as a test to paste."""

from __future__ import annotations

import msgspec

from statemachines.kernel import TimerFired, name_of
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.explore import ExploredPath, Leg, Turn, node_of
from statemachines_spec.explorer.moves import Kind
from statemachines_spec.explorer.service_actor import Asked
from statemachines_spec.explorer.system import System

_KINDS = {Kind.INPUT: "", Kind.DELIVER: "takes", Kind.COPY: "takes a copy of", Kind.DROP: "is lost:"}


def describe_path(path: ExploredPath) -> str:
    """Who did what, step by step: states before and after, the row's clause, what was sent."""
    lines = []
    for number, leg in enumerate(path.legs, 1):
        lines += _leg_lines(number, leg)
    if path.broken:
        lines.append(f"broken: {path.broken}: {path.why}")
    return "\n".join(lines)


def draw_mermaid(system: System, path: ExploredPath) -> str:
    """A Mermaid sequence diagram."""
    lines = ["sequenceDiagram"]
    names = [actor.name for actor in system.actors]
    lines += [f"    participant {_id(name)} as {name}" for name in names]
    for number, leg in enumerate(path.legs, 1):
        envelope = leg.envelope
        if leg.kind is Kind.DROP:
            lines.append(f"    {_id(node_of(envelope))}-x{_id(_to(envelope))}: {number}. {describe_event(envelope)}")
            continue
        if leg.kind is Kind.INPUT:
            lines.append(f"    Note over {_id(leg.turns[0].actor)}: {number}. {describe_event(envelope)}")
        else:
            arrow = "->>" if leg.kind is Kind.DELIVER else "-->>"
            lines.append(
                f"    {_id(node_of(envelope))}{arrow}{_id(leg.turns[0].actor)}: {number}. {describe_event(envelope)}"
            )
        for turn in leg.turns:
            if turn.before != turn.after:
                lines.append(f"    Note right of {_id(turn.actor)}: {turn.after.replace(';', ',')}")
    if path.broken:
        first, last = _id(names[0]), _id(names[-1])
        lines.append(f"    Note over {first},{last}: broken: {path.broken}")
    return "\n".join(lines) + "\n"


def pytest_function(system: System, path: ExploredPath) -> str:
    """A test that follows the path, to paste into a file of tests.  Raises `ValueError` for a system that no other
    process can make (it has no `origin`)."""
    if system.origin is None:
        raise ValueError(f"{system.name}: without an origin no test can make the system again")
    (module, _, function), arguments = system.origin[0].partition(":"), system.origin[1]
    given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    name = "".join(letter if letter.isalnum() else "_" for letter in f"{system.name}_{path.broken}").lower()
    lines = [
        f"from {module} import {function}",
        "",
        "from statemachines_spec.explorer.explore import follow",
        "from statemachines_spec.explorer.replay import replay",
        "",
        "SCRIPT = (",
        *(f"    {leg.line!r},  # {_headline(leg)}" for leg in path.legs),
        ")",
        "",
        "",
        f"def test_{name}() -> None:",
        f"    one = {function}({given})",
        "    path = follow(one, SCRIPT)",
        f"    assert path.broken == {path.broken!r}",
        f"    assert replay(one, path).broken == {path.broken!r}",
    ]
    return "\n".join(lines) + "\n"


def describe_event(envelope: Envelope) -> str:
    """An event and its fields, in one line; who sends it and who takes it is said elsewhere."""
    event = envelope.event
    if isinstance(event, TimerFired):
        return f"{name_of(type(event))} fires" + (f" for {event.key}" if event.key else "")
    if isinstance(event, Asked):
        event = event.request
    fields = {
        field: value
        for field in event.__struct_fields__
        if not isinstance(value := getattr(event, field), msgspec.Struct)
    }
    known = {envelope.sender, envelope.to} - {""}
    shown = ", ".join(
        f"{field}={value}" for field, value in fields.items() if not (isinstance(value, str) and value in known)
    )
    return name_of(type(event)) + (f"({shown})" if shown else "")


def _leg_lines(number: int, leg: Leg) -> list[str]:
    lines = [f"{number:3}. {_headline(leg)}"]
    for place, turn in enumerate(leg.turns):
        lines += _turn_lines(turn, place > 0)
    lines += [f"       no room for {describe_event(one)} to {one.to}" for one in leg.left_out]
    return lines


def _headline(leg: Leg) -> str:
    envelope = leg.envelope
    event = describe_event(envelope)
    if leg.kind is Kind.INPUT:
        return f"{envelope.to}: {event}"
    if leg.kind is Kind.DROP:
        return f"lost: {event} from {envelope.sender} to {envelope.to}"
    copy = " (a copy; it stays in flight)" if leg.kind is Kind.COPY else ""
    return f"{envelope.to} takes {event} from {envelope.sender}{copy}"


def _turn_lines(turn: Turn, called: bool) -> list[str]:
    lines = []
    if called:
        if not turn.steps and turn.before == turn.after:
            return []
        lines.append(f"       then {turn.actor}: {describe_event(turn.envelope)}")
    for step in turn.steps:
        where = f"{step.machine} {step.instance}".strip()
        row = f"row {step.row} [{step.clause}]" if step.row >= 0 else "no row"
        lines.append(f"       {where}: {step.source} -> {step.dest} by {step.event}, {row}")
    if turn.before != turn.after:
        lines.append(f"       {turn.actor} was: {turn.before}")
        lines.append(f"       {turn.actor} is:  {turn.after}")
    lines += [f"       sends {describe_event(one)} to {one.to}" for one in turn.sends]
    return lines


def _to(envelope: Envelope) -> str:
    return envelope.to.partition("~")[0]


def _id(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)
