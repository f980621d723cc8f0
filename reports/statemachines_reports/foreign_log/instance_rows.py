"""Instance rows: the rows of a log by the instances of its machine, each in the order in which it happened."""

from __future__ import annotations

import numpy as np

from statemachines_reports.foreign_log.log_integrity import find_holes
from statemachines_reports.foreign_log.log_mapping import LogMapping
from statemachines_reports.foreign_log.log_rows import LogRows, code_rows, group_rows
from statemachines_reports.foreign_log.log_tally import SHOWN, LogTally
from statemachines_reports.foreign_log.machine_table import MachineTable, Symbol


class InstanceRows:
    """`order`: rows by instance; `begins`: where each instance begins in it, one more at the end; `symbols` of the rows
    in that order, as codes into `alphabet`.

    `unclear`: instances whose rows stand in logs of several processes, and nothing orders them.  `resets`: places in
    `order` before which lines are missing.
    """

    def __init__(self, log: LogRows, mapping: LogMapping, table: MachineTable) -> None:
        self.log = log
        self.mapping = mapping
        self._collect_alphabet(table)
        self._arrange()
        self._find_resets()

    def _collect_alphabet(self, table: MachineTable) -> None:
        log, mapping = self.log, self.mapping
        guards = [f"guard:{guard}" for guard in mapping.guards]
        columns = [log["event"], *(log[guard] for guard in guards)]
        if "state" in log and mapping.level == "events":
            columns.append(log["state"])
        events, self.states = _list_places(log, "event", table.events), _list_places(log, "state", table.states)
        if len(columns) == 1:
            self._codes, self.alphabet = log["event"], [Symbol(one) for one in events[:-1]]
            return
        self._codes, count = code_rows(*columns)
        rows = np.zeros(count, np.int64)
        rows[self._codes] = np.arange(log.size)
        self.alphabet = [
            Symbol(
                events[log["event"][row]],
                tuple((guard, int(log[f"guard:{guard}"][row])) for guard in mapping.guards),
                self.states[log["state"][row]] if len(columns) == len(guards) + 2 else -1,
            )
            for row in rows.tolist()
        ]

    def _arrange(self) -> None:
        log, mapping = self.log, self.mapping
        if "instance" in log:
            codes, count = log["instance"], max(log.count_texts("instance"), 1)
        else:
            codes, count = np.zeros(log.size, np.int32), 1
        order, begins = group_rows(codes, count)
        self.unclear = np.zeros(count, bool)
        process = log.process
        is_single = not log.size or process.min() == process.max()
        changes = None if is_single else _find_changes(process[order], begins)
        if changes is not None and changes.any():
            mixed = np.zeros(count, bool)
            mixed[codes[order[changes]]] = True
            if "time" in log and mapping.clock_error_ms is not None:
                order = np.lexsort((log["line"], log["file"], log["time"], codes))
                changes = _find_changes(process[order], begins)
                apart = np.diff(log["time"][order], prepend=0)
                close = changes & (apart <= int(mapping.clock_error_ms * 1e6))
                mixed = np.zeros(count, bool)
                mixed[codes[order[close]]] = True
            self.unclear = mixed
        self.order, self.begins = order, begins
        self.symbols = self._codes[order].astype(np.int32, copy=False)

    def _find_resets(self) -> None:
        holes = find_holes(self.log)
        if not holes.any():
            self.resets = np.zeros(0, np.int64)
            return
        holes, process = holes[self.order], self.log.process[self.order]
        first = np.zeros(len(holes), bool)
        first[self.begins[:-1][self.begins[:-1] < len(holes)]] = True
        differs = np.ones(len(holes), bool)
        differs[1:] = (holes[1:] != holes[:-1]) | (process[1:] != process[:-1])
        self.resets = np.flatnonzero((holes > 0) & (first | differs))

    def find_doubtful(self) -> np.ndarray:
        """Instances with two equal lines at one time, since one may have been written twice, or with times that go
        back, since two may have been swapped."""
        log, order = self.log, self.order
        count = len(self.begins) - 1
        doubtful = np.zeros(count, bool)
        if "time" not in log or "number" in log or not len(order):
            return doubtful
        columns = [self.symbols, log["time"][order], log.process[order]]
        columns += [log[name][order] for name in ("state", "source") if name in log]
        equal = np.ones(len(order), bool)
        equal[0] = False
        for one in columns:
            equal[1:] &= one[1:] == one[:-1]
        equal[1:] |= log["time"][order][1:] < log["time"][order][:-1]
        equal[self.begins[:-1][self.begins[:-1] < len(order)]] = False
        doubtful[np.searchsorted(self.begins, np.flatnonzero(equal), side="right") - 1] = True
        return doubtful

    def name_instance(self, instance: int) -> str:
        """An instance, for people."""
        row = int(self.order[self.begins[instance]])
        names = self.mapping.roles.get("instance")
        return f"{'/'.join(names)} {self.log.read_text('instance', row)}" if names else "the machine"

    def name_place(self, position: int) -> str:
        """Where the row at a place of the order stands."""
        return self.log.name_place(int(self.order[position]))

    def tally_unclear(self) -> list[LogTally]:
        """The instances that are not judged, since nothing orders their rows."""
        there = np.flatnonzero(self.unclear)
        if not len(there):
            return []
        why = (
            "lines of two processes are no further apart than clock_error_ms"
            if "time" in self.log and self.mapping.clock_error_ms is not None
            else "its lines stand in logs of several processes; map columns.time and declare clock_error_ms"
        )
        details = tuple(f"{self.name_instance(one)}: {why}" for one in there[:SHOWN].tolist())
        return [LogTally("unordered", len(self.unclear), len(there), 0, details)]


def _find_changes(process: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Places where another process goes on with an instance."""
    changes = np.zeros(len(process), bool)
    changes[1:] = process[1:] != process[:-1]
    changes[begins[:-1][begins[:-1] < len(process)]] = False
    return changes


def _list_places(log: LogRows, name: str, known: tuple[str, ...]) -> list[int]:
    """Code of a text -> its place among the names that the machine has; one more for none."""
    if name not in log:
        return [-1]
    places = {text: place for place, text in enumerate(known)}
    return [*(places.get(text, -1) for text in log.list_texts(name)), -1]
