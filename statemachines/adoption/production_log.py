"""Production log: the rows that a real machine runs, written as they happen, and judged by the table of its factory.

    log = logged(order, "shop:make_order", "logs", node="web-1")
    order.pay(5)
    log.close()

`gapless analyze logs --protocol shop:make_order` judges them.  Nothing is blocked, and no step is taken twice: the
machine runs as ever, and each row is the operating system's before the next callback runs.

Adopted traces: the rows that an adopted machine ran, as rows of a trace that `gapless analyze` judges.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, Final
from zlib import crc32

import msgspec

from statemachines.adoption.declared_table import event_name, machine_name, protocol_name, protocol_of
from statemachines.adoption.live_machine import AdoptedSubject, read_rows, read_subject, state_of, walk_transitions
from statemachines.adoption.model_step import ModelAction, ModelStepper, StepOutcome
from statemachines.adoption.step_recorder import TakenRow
from statemachines.kernel import ConfigurationError
from statemachines.trace import TraceRow, list_fingerprints
from statemachines.trace.log import FORMAT, Head, TraceLog
from statemachines.trace.row import ROW, Run

_DEFAULTS: Final = {column.name: column.default for column in ROW}


def make_row(**cells: Any) -> TraceRow:
    """A row of a trace from its columns by name."""
    filled = {**_DEFAULTS, **cells}
    return tuple(filled[column.name] for column in ROW)


def table_fingerprints(place: str) -> dict[str, str]:
    """The fingerprints that a trace of the machine at `place` carries."""
    return list_fingerprints([protocol_of(place).name])


class RowMaker:
    """Makes the rows of one subject; `node`: the process that it is in."""

    def __init__(self, subject: AdoptedSubject, place: str, node: str) -> None:
        protocol = protocol_name(place)
        self._machines = [f"{protocol}/{machine_name(subject, one)}" for one in range(len(subject.machines))]
        self._names = [name.lower() for name in subject.names]
        self._node = node
        rows, _ = read_rows(subject)
        of_machine = [row.machine for row in rows]
        self._numbers = [of_machine[:place].count(machine) for place, machine in enumerate(of_machine)]
        """A row of the subject -> its number in the table of its own machine."""

    def step_row(self, t_ns: int, instance: str, taken: tuple[int, str, int, str, str], machine: int) -> TraceRow:
        """The row of a Transition that ran."""
        row, trigger, model, source, dest = taken
        return make_row(
            t_ns=t_ns,
            node=self._node,
            machine=self._machines[machine],
            instance=f"{instance}/{self._names[model]}{f':{machine + 1}' if len(self._machines) > 1 else ''}",
            kind="step",
            event=event_name(trigger),
            source=source,
            dest=dest,
            row=self._numbers[row] if row >= 0 else -1,
        )

    def rows_of(
        self, t_ns: int, instance: str, stepper: ModelStepper, action: ModelAction, outcome: StepOutcome
    ) -> list[TraceRow]:
        """The rows of a step: those that were taken (or that none was), then what was called on ports."""
        rows = [
            self.step_row(t_ns, instance, taken, stepper.rows[taken[0]].machine if taken[0] >= 0 else action.machine)
            for taken in outcome.rows
            if taken[4]
        ]
        rows += [
            make_row(
                t_ns=t_ns,
                node=self._node,
                kind="ask",
                event=call.method or call.port,
                peer=call.port,
                data=json.dumps({"arguments": call.arguments}),
            )
            for call in outcome.effects
        ]
        return rows


def write_runs(
    directory: Path, name: str, place: str, runs: Iterable[tuple[str, int, dict[str, Any], list[TraceRow]]]
) -> int:
    """Write whole runs, each (outcome, seed, parameters, rows), for `analyze`; how many rows there are."""
    from statemachines.trace.parquet import TraceWriter

    tables = msgspec.json.encode(table_fingerprints(place)).decode()
    versions = msgspec.json.encode({"gapless": version("gapless"), "transitions": version("transitions")}).decode()
    with TraceWriter(directory, name) as made:
        for number, (outcome, seed, parameters, rows) in enumerate(runs):
            given = msgspec.json.encode(parameters).decode()
            made.add(Run(number, name, seed, given, outcome, versions, tables), rows)
        return made.rows


LIVES_MAX = 100_000
"""Logs of one node in a directory."""


def _ignore(*given: Any) -> None:
    """Report nothing."""


class ProductionLog:
    """Writes the rows of the machines of one model (or several) until it is closed; made by `logged`."""

    def __init__(
        self, subject: AdoptedSubject, place: str, directory: Path, node: str, clock: Callable[[], int]
    ) -> None:
        self._subject = subject
        self._clock = clock
        self._lock = Lock()
        self._waiting: list[TakenRow] = []
        tables = table_fingerprints(place)
        self._maker = RowMaker(subject, place, node)
        self._log, self.life = _open_log(directory, node, tables)
        self._undo: list[Callable[[], None]] = []
        _, numbers = read_rows(subject)
        places = iter(numbers)
        for number, machine in enumerate(subject.machines):
            for trigger, _, transition in walk_transitions(machine):
                self._watch_row(transition, next(places), trigger, number)
            self._watch_state(machine, number)

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._log.path

    def close(self) -> None:
        """The machine runs on, and nothing more is written."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._log.close()

    def __enter__(self) -> ProductionLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _watch(
        self, owner: Any, name: str, end: Callable[..., None] = _ignore, fail: Callable[..., None] = _ignore
    ) -> None:
        """Report when a method of `owner` has ended: what it returned, and its arguments; or these where it raised."""
        original = getattr(owner, name)

        def call(*args: Any) -> Any:
            try:
                result = original(*args)
            except BaseException:
                fail(*args)
                raise
            if hasattr(result, "__await__"):
                return await_end(result, args)
            end(result, *args)
            return result

        async def await_end(waiting: Any, args: tuple[Any, ...]) -> Any:
            try:
                result = await waiting
            except BaseException:
                fail(*args)
                raise
            end(result, *args)
            return result

        setattr(owner, name, call)
        self._undo.append(partial(delattr, owner, name))

    def _watch_row(self, transition: Any, row: int, trigger: str, machine: int) -> None:
        """Report the row when its conditions have held; forget one that ended before its state was set: a callback
        raised."""

        def take(held: Any, event_data: Any) -> None:
            model = self._place_of(event_data.model)
            if model is None or not held:
                return
            state = state_of(event_data.machine, event_data.model)
            taken = TakenRow(row, trigger, machine, model, state, state)
            if transition.dest:
                with self._lock:
                    self._waiting.append(taken)
            else:
                self._write(taken)

        def forget(event_data: Any) -> None:
            self._pop(row=row, model=self._place_of(event_data.model))

        self._watch(transition, "_eval_conditions", end=take)
        self._watch(transition, "execute", fail=forget)

    def _watch_state(self, machine: Any, number: int) -> None:
        """Write the row when its state is set."""
        original = machine.set_state

        def set_state(state: Any, model: Any = None) -> None:
            models = machine.models if model is None else model if isinstance(model, list) else [model]
            before = {id(one): state_of(machine, one) for one in models}
            original(state, model)
            for one in models:
                place = self._place_of(one)
                taken = None if place is None else self._pop(machine=number, model=place)
                if taken is not None:
                    taken.source, taken.dest = before[id(one)], state_of(machine, one)
                    self._write(taken)

        machine.set_state = set_state
        self._undo.append(partial(delattr, machine, "set_state"))

    def _place_of(self, model: Any) -> int | None:
        return next((place for place, one in enumerate(self._subject.models) if one is model), None)

    def _pop(self, **fields: int | None) -> TakenRow | None:
        """Of the rows with such fields that have not set their state, the one that was taken last."""
        with self._lock:
            for place in reversed(range(len(self._waiting))):
                if all(getattr(self._waiting[place], name) == value for name, value in fields.items()):
                    return self._waiting.pop(place)
        return None

    def _write(self, taken: TakenRow) -> None:
        row = (taken.row, taken.trigger, taken.model, taken.source, taken.dest)
        with self._lock:
            self._log.write([self._maker.step_row(self._clock(), f"{self.life}/1", row, taken.machine)])


def logged(
    model: Any,
    place: str,
    directory: str | os.PathLike[str],
    *,
    node: str = "node",
    clock: Callable[[], int] = time.time_ns,
) -> ProductionLog:
    """Write every row that `model` (or a machine, or several) runs into a log of its own in `directory`.

    Args:
        model: what a factory returns, in use.
        place: `module:FACTORY` that makes such a machine; its table judges the log.
        directory: where the logs of a run are; each call begins a new life of the node.
        node: the name of this process; small letters, digits and `-`.
        clock: nanoseconds of the rows.

    Raises `ConfigurationError` where there is no such factory, its machine has other rows, or no log can be made.
    """
    from statemachines.adoption.declared_table import subject_at

    subject, made = read_subject(model), subject_at(place)
    ours, theirs = read_rows(subject)[0], read_rows(made)[0]
    if ours != theirs:
        differing = next((one.label for one in ours if one not in theirs), f"{len(theirs)} rows instead of {len(ours)}")
        rule = f"makes another machine than this one ({differing}); name the factory that made it"
        raise ConfigurationError("factory", place, rule)
    for machine in subject.machines:
        for one, other in zip(machine.models, made.machines[subject.machines.index(machine)].models, strict=False):
            if state_of(machine, one) != (begins := state_of(made.machines[subject.machines.index(machine)], other)):
                rule = f"is in this state, and a log begins in {begins}: begin the log when the model is made"
                raise ConfigurationError("model", state_of(machine, one), rule)
    if not node.replace("-", "").isalnum():
        raise ConfigurationError("node", node, "must be letters, digits and -")
    return ProductionLog(subject, place, Path(directory), node, clock)


def _open_log(directory: Path, node: str, tables: dict[str, str]) -> tuple[TraceLog, str]:
    """The log of the next life of the node: its number is the first that no log in the directory has."""
    for life in range(1, LIVES_MAX):
        name = f"{node}~{life}"
        if (directory / f"{name}.ndjson").exists():
            continue
        number = 1 + crc32(name.encode()) % (2**23 - 1)
        return TraceLog(directory, Head(FORMAT, node, name, number, tables, {})), name
    raise ConfigurationError("trace log", str(directory), f"has {LIVES_MAX} logs of {node}; take another directory")
