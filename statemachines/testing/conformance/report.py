"""Report: the verdict on an implementation, in words and as JSON.

ScriptFile: the inputs of a run as lines of JSON, to be kept, read and played again.

{"begin": 0}
{"feed": {"type": "granted", "token": 1}}
{"wait_ns": 1000000000}
{"late": "retry"}
"""

from __future__ import annotations

import shlex
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from statemachines import catalogue
from statemachines.kernel import ConfigurationError, GaplessError, Map, name_of
from statemachines.kernel.pmap import dec_hook
from statemachines.testing.conformance.campaign import (
    INPUTS_MAX,
    ConformanceCoverage,
    ConformanceOutcome,
    ConformanceVerdict,
)
from statemachines.testing.conformance.conformance_run import (
    Begin,
    Cell,
    ConformanceViolation,
    FedInput,
    Late,
    Move,
    Wait,
)
from statemachines.testing.conformance.interface import twin_of
from statemachines.testing.conformance.relation import Output, make_plain, words_of
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.whole_file import write_whole


def line_of(move: Move) -> dict[str, Any]:
    """A move as its line has it."""
    match move:
        case Begin(start):
            return {"begin": start}
        case FedInput(event):
            return {"feed": make_plain(event)}
        case Wait(ns, is_turned):
            return {"wait_turned_ns" if is_turned else "wait_ns": ns}
    return {"late": move.timer}


def save(path: Path, moves: Iterable[Move]) -> None:
    """Write the moves; the folder is made.  Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, b"".join(msgspec.json.encode(line_of(move)) + b"\n" for move in moves))


def load(path: Path, role: ConformanceRole) -> tuple[Move, ...]:
    """The moves in a file.  Raises `ConfigurationError`, with the number of the line, for what is none."""
    moves: list[Move] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            moves.append(_move(msgspec.json.decode(line), role))
        except (msgspec.MsgspecError, ValueError) as error:
            rule = f"is no move of {role.fsm.full_name}: {error}; a line is begin, feed, wait_ns or late"
            raise ConfigurationError(f"{path}, line {number}", line[:80].decode(errors="replace"), rule) from None
    if not moves or not isinstance(moves[0], Begin):
        raise ConfigurationError("script", str(path), 'must begin with a line {"begin": 0}')
    return tuple(moves)


def _move(line: Any, role: ConformanceRole) -> Move:
    if not isinstance(line, dict) or len(line) != 1:
        raise ValueError("it is no object with one key")
    (what, value), *_ = line.items()
    match what, value:
        case "begin", int(start) if 0 <= start < len(role.starts):
            return Begin(start)
        case ("wait_ns" | "wait_turned_ns") as kind, int(ns) if ns >= 0:
            return Wait(ns, kind != "wait_ns")
        case "late", str(timer) if timer.partition(" ")[0] in role.fsm.timer_registry():
            return Late(timer)
        case "feed", {"type": str(name)}:
            kinds = {name_of(kind): kind for kind in role.interface.alphabet.takes}
            if name not in kinds:
                raise ValueError(f"no event is called {name!r}; there are: {', '.join(kinds)}")
            return FedInput(event_from(kinds[name], value))
    raise ValueError(f"{what!r} cannot be {value!r}")


def event_from(kind: type[Any], value: dict[str, Any]) -> Any:
    """The event that an object is.  Raises `msgspec.ValidationError` for fields that it has not."""
    msgspec.convert(value, twin_of(kind, True))
    return value_from(kind, {field: one for field, one in value.items() if field != "type"})


def value_from(hint: Any, value: Any) -> Any:
    """The value of this type that JSON has so (`json_values.make_plain`)."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Map:
        key, one = args
        pairs = value.items() if isinstance(value, dict) else value
        return Map([(value_from(key, name), value_from(one, item)) for name, item in pairs])
    if origin is Annotated:
        return value_from(args[0], value)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and isinstance(value, dict):
        hints = get_type_hints(hint, include_extras=True)
        return hint(**{field: value_from(hints[field], one) for field, one in value.items() if field != "type"})
    if origin is tuple and isinstance(value, list):
        each = [args[0]] * len(value) if args[-1] is ... else args
        return tuple(value_from(one, item) for one, item in zip(each, value, strict=True))
    if origin in (Union, types.UnionType) and isinstance(value, dict):
        kinds = {name_of(one): one for one in args if isinstance(one, type) and issubclass(one, msgspec.Struct)}
        return value_from(kinds[value["type"]] if "type" in value else next(iter(kinds.values())), value)
    return msgspec.convert(value, hint, dec_hook=dec_hook)


MS = 1_000_000
MISSED_MAX = 20


def text_of(verdict: ConformanceVerdict, role: ConformanceRole) -> str:
    """The verdict for people: what was fed, what was expected by which clause, what came; and the coverage."""
    lines = [f"{verdict.outcome.value}: {role.fsm.full_name}"]
    if verdict.outcome is ConformanceOutcome.FAIL:
        lines += [*_violation(verdict, role), "", "the inputs that repeat it:", *_inputs(verdict.moves)]
        return "\n".join(lines)
    if verdict.why:
        lines += [f"  {verdict.why}"]
    return "\n".join([*lines, *_coverage(verdict, role)])


def repeat_of(role_name: str, script: Path, command: Iterable[str]) -> str:
    """The command that repeats a run."""
    return f"gapless conform {role_name} --script {shlex.quote(str(script))} -- {shlex.join(command)}"


def json_of(verdict: ConformanceVerdict, role: ConformanceRole) -> dict[str, Any]:
    """The verdict for programs."""
    shown: dict[str, Any] = {
        "role": role.fsm.full_name,
        "outcome": verdict.outcome.value,
        "why": verdict.why,
        "script": [line_of(move) for move in verdict.moves],
    }
    if (coverage := verdict.coverage) is not None:
        shown |= _coverage_json(coverage, role)
    found = verdict.violation
    if found is not None:
        shown |= {
            "fed": found.fed,
            "at_ns": found.at_ns,
            "expected": [{"effects": list(map(str, one)), "clauses": list(rows)} for one, rows in found.expected],
            "came": list(map(str, found.came)),
        }
    return shown


def _coverage_json(coverage: ConformanceCoverage, role: ConformanceRole) -> dict[str, Any]:
    return {
        "bounds": {"systems": [one.name for one in role.starts], "inputs_of_a_run": INPUTS_MAX},
        "rows": coverage.rows,
        "rows_taken": coverage.taken,
        "rows_missed": [describe_cell(cell, role) for cell in coverage.missed],
        "rows_without_path": [describe_cell(cell, role) for cell in coverage.pathless],
        "pairs": coverage.pairs,
        "pairs_taken": coverage.pairs_taken,
        "rows_not_separated": coverage.unseparated,
        "inputs": coverage.inputs,
        "runs": coverage.runs,
    }


def _violation(verdict: ConformanceVerdict, role: ConformanceRole) -> Iterator[str]:
    if verdict.violation is None:
        yield f"  {verdict.why}"
    else:
        yield from describe_violation(verdict.violation, role)


def describe_violation(found: ConformanceViolation, role: ConformanceRole) -> Iterator[str]:
    """What was fed, what was expected by which clause, what came."""
    yield f"  fed       {found.fed} at {found.at_ns / MS:g} ms, {' or '.join(found.states)}"
    for number, (outputs, clauses) in enumerate(found.expected):
        yield from _listed("expected" if not number else "or", outputs)
        for clause in dict.fromkeys(clauses):
            yield f"            by {clause}{_clause_text(role, clause)}"
    yield from _listed("came", found.came)
    yield f"  wrong     {found.wrong}"


def _listed(title: str, outputs: tuple[Output, ...]) -> Iterator[str]:
    for number, one in enumerate(outputs or ("nothing",)):
        yield f"  {title if not number else '':8}  {one}"


def _clause_text(role: ConformanceRole, clause: str) -> str:
    try:
        found = catalogue.clauses(role.fsm.protocol).get(clause) if role.fsm.protocol else None
    except (ConfigurationError, GaplessError):
        return ""
    return "" if found is None else f": {found.text}"


def _inputs(moves: tuple[Move, ...]) -> Iterator[str]:
    for number, move in enumerate(moves, 1):
        yield f"  {number:3}  {_words(move)}"


def _words(move: Move) -> str:
    match move:
        case Begin(start):
            return f"begin (start {start})"
        case Wait(ns, is_turned):
            return f"{ns / MS:g} ms pass{', timers that are due at one moment in the other order' * is_turned}"
        case Late(timer):
            return f"the timer {timer}, which was taken back, fires late"
    assert isinstance(move, FedInput)
    return words_of(move.event)


def _coverage(verdict: ConformanceVerdict, role: ConformanceRole) -> Iterator[str]:
    found = verdict.coverage
    if found is None:
        return
    yield f"  rows      {found.taken} of {found.rows} that can be taken within the bounds, state by state"
    if verdict.outcome is not ConformanceOutcome.PASS:
        return
    if found.missed:
        yield f"            not taken: {describe_cells(found.missed, role)}"
    if found.pathless:
        yield f"            without a path within the bounds: {describe_cells(found.pathless, role)}"
    if not found.is_whole:
        yield "            the bounds were not reached: there may be more"
    yield f"  pairs     {found.pairs_taken} of {found.pairs} pairs of rows that can follow each other"
    if found.unseparated:
        yield f"  states    after {found.unseparated} of the rows some wrong state cannot be told from the right one"
    yield f"  bounds    {len(role.starts)} systems: {', '.join(one.name for one in role.starts)}"
    yield f"            drawn runs have {INPUTS_MAX} inputs at most, of these systems and now and then of other values"
    yield f"  inputs    {found.inputs}, with {found.runs} drawn runs"


def describe_cells(cells: tuple[Cell, ...], role: ConformanceRole) -> str:
    """Rows by name."""
    more = f" and {len(cells) - MISSED_MAX} more" if len(cells) > MISSED_MAX else ""
    return ", ".join(describe_cell(cell, role) for cell in cells[:MISSED_MAX]) + more


def describe_cell(cell: Cell, role: ConformanceRole) -> str:
    """A row by its machine, number, event, state and clause."""
    machine, row, status = cell
    line = role.line_of(machine, row)
    return f"{machine.rpartition('/')[2]} {row} {name_of(line.event)} in {status} [{line.clause}]"
