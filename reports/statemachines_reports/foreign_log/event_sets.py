"""Event sets: level `events`: the set of states that a machine may be in is carried along by table look-up.

Sets are numbered as they are found, so that a step of all instances at once is one look-up of [set, symbol].  A long
instance is cut into pieces; each piece is carried from every set that the row before it may lead to, and the pieces are
joined afterwards.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log.instance_rows import InstanceRows
from statemachines_reports.foreign_log.log_mapping import LogMapping
from statemachines_reports.foreign_log.log_rows import LogRows
from statemachines_reports.foreign_log.log_tally import SHOWN, LogTally
from statemachines_reports.foreign_log.machine_table import MachineTable

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
