"""Adopted traces: the rows that an adopted machine ran, as rows of a trace that `gapless analyze` judges."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from statemachines.adoption.declared_table import event_name, machine_name, protocol_name, protocol_of
from statemachines.adoption.live_machine import AdoptedSubject, read_rows
from statemachines.adoption.model_step import ModelAction, ModelStepper, StepOutcome
from statemachines.trace import TraceRow, list_fingerprints
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


__all__ = ["RowMaker", "make_row", "write_runs"]
