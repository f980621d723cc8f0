"""State steps: level `states`: each step of a log is judged by itself against the table of its machine."""

from __future__ import annotations

import numpy as np

from statemachines_reports.foreign_log.instance_rows import InstanceRows
from statemachines_reports.foreign_log.log_mapping import LogMapping
from statemachines_reports.foreign_log.log_rows import LogRows
from statemachines_reports.foreign_log.log_tally import SHOWN, LogTally
from statemachines_reports.foreign_log.machine_table import MachineTable, Symbol


def judge_states(log: LogRows, mapping: LogMapping, table: MachineTable) -> list[LogTally]:
    """Whole instances: steps that no row of the table takes, and those that begin where the one before did not end."""
    rows = InstanceRows(log, mapping, table)
    steps = table.fill_steps(rows.alphabet)
    order, begins = rows.order, rows.begins
    dest = np.array(rows.states)[log["state"][order]]
    before = np.full(len(order), -1)
    before[1:] = dest[:-1]
    heads = begins[:-1][begins[:-1] < begins[1:]]
    before[heads] = table.initial if mapping.begins_whole else -1
    before[rows.resets] = -1
    unclear = np.repeat(rows.unclear, np.diff(begins))
    before[unclear] = -1
    source = before
    tallies = []
    doubtful = np.repeat(rows.find_doubtful(), np.diff(begins))
    if "source" in log:
        places = {text: place for place, text in enumerate(table.states)}
        coded = np.array([*(places.get(text, -1) for text in log.list_texts("source")), -1])
        source = coded[log["source"][order]]
        checked = (source >= 0) & (before >= 0)
        tallies.append(_tally_continuity(rows, table, checked, before, source, doubtful))
        source = np.where(source < 0, before, source)
    checked = source >= 0
    legal = np.ones(len(order), bool)
    legal[checked] = steps[rows.symbols[checked], source[checked], dest[checked]]
    wrong = np.flatnonzero(~legal)
    certain = ~doubtful[wrong] if "source" not in log else np.ones(len(wrong), bool)
    details = tuple(
        _describe(rows, table, place, int(source[place]), int(dest[place])) for place in wrong[:SHOWN].tolist()
    )
    tallies.insert(0, LogTally("steps", int(checked.sum()), len(wrong), int(certain.sum()), details))
    return [*tallies, *rows.tally_unclear()]


def _tally_continuity(
    rows: InstanceRows,
    table: MachineTable,
    checked: np.ndarray,
    before: np.ndarray,
    source: np.ndarray,
    doubtful: np.ndarray,
) -> LogTally:
    wrong = np.flatnonzero(checked & (source != before))
    details = tuple(
        f"{rows.name_place(place)}: {_name_instance_at(rows, place)} begins in {table.states[source[place]]}, and "
        f"was in {table.states[before[place]]}"
        for place in wrong[:SHOWN].tolist()
    )
    return LogTally("continuity", int(checked.sum()), len(wrong), int((~doubtful[wrong]).sum()), details)


def _name_instance_at(rows: InstanceRows, place: int) -> str:
    return rows.name_instance(int(np.searchsorted(rows.begins, place, side="right")) - 1)


def _describe(rows: InstanceRows, table: MachineTable, place: int, source: int, dest: int) -> str:
    symbol = rows.alphabet[int(rows.symbols[place])]
    said = Symbol(symbol.event, symbol.guards, dest)
    return f"{rows.name_place(place)}: {_name_instance_at(rows, place)}: {table.explain_step(said, source)}"
