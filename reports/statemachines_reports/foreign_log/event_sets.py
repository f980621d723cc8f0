"""Event sets: level `events`: the set of states that a machine may be in is carried along by table look-up.

Sets are numbered as they are found, so that a step of all instances at once is one look-up of [set, symbol].  A long
instance is cut into pieces; each piece is carried from every set that the row before it may lead to, and the pieces are
joined afterwards.

Instance rows: the rows of a log by the instances of its machine, each in the order in which it happened.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log.log_mapping import LogMapping
from statemachines_reports.foreign_log.log_rows import LogRows, code_rows, find_holes, group_rows
from statemachines_reports.foreign_log.log_verdict import SHOWN, LogTally
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


EMPTY, BEYOND, EVERY = 0, 1, 2
"""The numbers of the empty set, of those that the bound leaves out, and of the set of all states."""

CELLS_MAX: Final = 2**24
PIECE_MIN, PIECE_MAX = 256, 4_096


class SetTable:
    """`next[set, symbol]`: the set afterwards; symbols beyond the alphabet are the same ones behind missing lines."""

    def __init__(self, steps: np.ndarray, initial: int, sets_max: int) -> None:
        symbols, size = steps.shape[0], steps.shape[1]
        if symbols * max(size, sets_max) * size > CELLS_MAX * 64:
            rule = f"gives {symbols:,} different rows of {size} states; map fewer guards, or leave columns.state out"
            raise ConfigurationError("--map", "guards", rule)
        every = np.ones(size, bool)
        first = np.zeros(size, bool)
        first[initial] = True
        self.sets = [np.zeros(size, bool), np.zeros(size, bool), every]
        known = {self.sets[EMPTY].tobytes(): EMPTY, every.tobytes(): EVERY}
        self.start = known.setdefault(first.tobytes(), len(self.sets))
        if self.start == len(self.sets):
            self.sets.append(first)
        lines = [np.full(symbols, EMPTY), np.full(symbols, BEYOND)]
        place = EVERY
        while place < len(self.sets):
            after = steps[:, self.sets[place], :].any(axis=1)
            distinct, which = np.unique(after, axis=0, return_inverse=True)
            numbers = []
            for one in distinct:
                number = known.get(one.tobytes())
                if number is None:
                    number = BEYOND if len(self.sets) - 2 >= sets_max else len(self.sets)
                    if number != BEYOND:
                        known[one.tobytes()] = number
                        self.sets.append(one)
                numbers.append(number)
            lines.append(np.array(numbers)[which.reshape(-1)] if len(distinct) else np.zeros(0, np.int64))
            place += 1
        table = np.array(lines, np.int32).reshape(len(lines), symbols)
        behind = np.broadcast_to(table[EVERY], table.shape).copy()
        behind[EMPTY], behind[BEYOND] = EMPTY, BEYOND
        self.next = np.concatenate([table, behind], axis=1)
        self.symbols = symbols

    def carry(self, symbols: np.ndarray, begins: np.ndarray, lengths: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """The last set of each lane of symbols; `sets` to begin with."""
        width = self.next.shape[1]
        flat = (self.next * np.int32(width)).reshape(-1)
        return np.asarray(_run_lanes(flat, symbols, begins, lengths, sets * width) // width)

    def carry_long(self, symbols: np.ndarray, begin: int, end: int, start: int) -> tuple[int, int, int]:
        """The same of one long instance: its last set; where the piece begins in which it became `EMPTY` or `BEYOND`
        (the last piece otherwise), and the set there."""
        size = int(np.clip(np.sqrt(end - begin), PIECE_MIN, PIECE_MAX))
        places = np.arange(begin, end, size)
        images = [np.setdiff1d(self.next[EVERY:, one], (EMPTY, BEYOND)) for one in range(self.next.shape[1])]
        froms = [np.array([start]), *(images[symbol] for symbol in symbols[places[1:] - 1].tolist())]
        lanes = np.concatenate(([0], np.cumsum([len(one) for one in froms])))
        of = np.repeat(np.arange(len(places)), np.diff(lanes))
        lengths = np.minimum(places + size, end) - places
        ends = self.carry(symbols, places[of], lengths[of], np.concatenate(froms))
        now, place = start, begin
        for piece in range(len(places)):
            own = int(np.searchsorted(froms[piece], now))
            after = int(ends[lanes[piece] + own])
            place = int(places[piece])
            if after in (EMPTY, BEYOND):
                return after, place, now
            last, now = now, after
        return now, place, last


def _run_lanes(
    flat: np.ndarray, symbols: np.ndarray, begins: np.ndarray, lengths: np.ndarray, states: np.ndarray
) -> np.ndarray:
    """All lanes at once, row by row; the longest first, so that those that go on stand in front."""
    order = np.argsort(-lengths, kind="stable")
    begin, length = begins[order].astype(np.int64), lengths[order]
    state = states[order].astype(np.int32)
    if len(length):
        active = len(length) - np.searchsorted(length[::-1], np.arange(int(length[0])), side="right")
        for step, lanes in enumerate(active.tolist()):
            place = state[:lanes] + symbols[begin[:lanes] + step]
            state[:lanes] = flat[place]
    result = np.empty_like(state)
    result[order] = state
    return result


def judge_events(log: LogRows, mapping: LogMapping, table: MachineTable) -> list[LogTally]:
    """Whole instances: for which no run of the machine has these events."""
    rows = InstanceRows(log, mapping, table)
    sets = SetTable(table.fill_steps(rows.alphabet), table.initial, mapping.sets_max)
    symbols = rows.symbols
    if len(rows.resets):
        symbols = symbols.copy()
        symbols[rows.resets] += sets.symbols
    start = sets.start if mapping.begins_whole else EVERY
    count = len(rows.begins) - 1
    lengths = np.diff(rows.begins)
    long = np.flatnonzero(lengths > PIECE_MAX)
    short = np.flatnonzero(lengths <= PIECE_MAX)
    ends = np.full(count, start, np.int64)
    ends[short] = sets.carry(symbols, rows.begins[short], lengths[short], np.full(len(short), start))
    pieces: dict[int, tuple[int, int]] = {}
    for one in long.tolist():
        end, place, before = sets.carry_long(symbols, int(rows.begins[one]), int(rows.begins[one + 1]), start)
        ends[one], pieces[one] = end, (place, before)
    judged = ~rows.unclear & (lengths > 0)
    broken = np.flatnonzero((ends == EMPTY) & judged)
    doubtful = rows.find_doubtful() if len(broken) else np.zeros(count, bool)
    details = []
    for one in broken[:SHOWN].tolist():
        place, now = pieces.get(one, (int(rows.begins[one]), start))
        details.append(_describe(rows, table, sets, symbols, one, place, now, bool(doubtful[one])))
    beyond = np.flatnonzero((ends == BEYOND) & judged)
    tallies = [LogTally("events", int(judged.sum()), len(broken), int((~doubtful[broken]).sum()), tuple(details))]
    if len(beyond):
        why = f"needs more than {mapping.sets_max} sets of states; raise sets_max, or map columns.state or guards"
        named = tuple(f"{rows.name_instance(one)}: {why}" for one in beyond[:SHOWN].tolist())
        tallies.append(LogTally("bounds", int(judged.sum()), len(beyond), 0, named))
    return [*tallies, *rows.tally_unclear()]


def _describe(
    rows: InstanceRows,
    table: MachineTable,
    sets: SetTable,
    symbols: np.ndarray,
    instance: int,
    place: int,
    now: int,
    doubtful: bool,
) -> str:
    """The longest legal prefix, what was possible there, and why the next row was not."""
    while (after := int(sets.next[now, symbols[place]])) != EMPTY:
        place, now = place + 1, after
    legal = place - int(rows.begins[instance])
    symbol = rows.alphabet[int(symbols[place]) % sets.symbols]
    if symbols[place] >= sets.symbols:
        now = EVERY
    states = np.flatnonzero(sets.sets[now]).tolist()
    upto = (
        f"{legal:,} lines are legal, up to {rows.name_place(place - 1)}; then"
        if legal
        else "not even its first line is legal:"
    )
    why = " | ".join(table.explain_step(symbol, state) for state in states[:3])
    doubt = "; lines of it may have been written twice, or swapped" if doubtful else ""
    return (
        f"{rows.name_place(place)}: {rows.name_instance(instance)}: {table.events[symbol.event]} is not possible in "
        f"{table.name_states(states)}: {upto} {why}; possible there: {table.list_possible(states)}{doubt}"
    )
