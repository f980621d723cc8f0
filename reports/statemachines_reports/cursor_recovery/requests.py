"""Requests: in each of its states an operation asks for one access, of the cursor that it looks at or has."""

from __future__ import annotations

import re

import numpy as np

from statemachines.cursor_recovery.memory import HEADER
from statemachines_reports.columns import STEPS, Segment
from statemachines_reports.cursor_recovery.operations import READER, WRITER, operations_of
from statemachines_reports.protocol import CheckVerdict, verdict

BOTH = {
    "1_load_cursor": "load own/N/state",
    "1_take_cursor": "compare_and_swap own/N/state",
    "1_clear_position": "store own/N/position",
    "2_load_read_head": "load read_head",
    "2_load_write_head": "load write_head",
    "3_check_cursor": "load other/N/state",
    "3_check_position": "load other/N/position",
    "8_release": "compare_and_swap own/N/state",
    "r_load_lock": "load lock/N",
    "r_load_life": "load incarnation/N",
    "r_lost_add": "compare_and_swap lost",
    "r_lost_count": "load lost",
    "r_lost_head": "load read_head",
    "r_lost_messages": "load read/N/messages",
    "r_lost_position": "load read/N/position",
    "r_reclaim": "compare_and_swap any/N/state",
}
ACCESSES = {
    READER: BOTH | {
        "3_load_size": "load data/N",
        "3_load_messages": "load data/N",
        "3_load_checksum": "load data/N",
        "3_load_commit_low": "load data/N",
        "3_load_commit_high": "load data/N",
        "3_scan_data": "copy_out",
        "3_skip": "compare_and_swap read_head",
        "4_give_back": "compare_and_swap own/N/state",
        "5_own_before_position": "load own/N/state",
        "5_set_messages": "store read/N/messages",
        "5_set_position": "store own/N/position",
        "6_move_head": "compare_and_swap read_head",
        "6_own_before_head": "load own/N/state",
        "7_copy_data": "copy_out",
        "7_own_after_copy": "load own/N/state",
    },
    WRITER: BOTH | {
        "3_give_back": "compare_and_swap own/N/state",
        "4_own_before_position": "load own/N/state",
        "4_set_position": "store own/N/position",
        "5_move_head": "compare_and_swap write_head",
        "5_own_before_head": "load own/N/state",
        "6_store_size": "store data/N",
        "6_store_checksum": "store data/N",
        "6_store_commit_low": "store data/N",
        "6_store_commit_high": "store data/N",
        "7_copy_data": "copy_in",
    },
}  # fmt: skip
"""Machine -> state -> the request that it makes there, and its key; N: a number, own, other, any: a pool."""
POOLS = {READER: ("read", "write"), WRITER: ("write", "read")}
"""Machine -> the pool of its own cursor, and the other one."""
COPIES = ("copy_in", "copy_out")
"""Requests whose key is no word."""
VALUES = (
    ("5_move_head", "4_set_position", "first", 0),
    ("6_move_head", "5_set_position", "first", 0),
    ("7_copy_data", "4_set_position", "first", HEADER),
    ("7_copy_data", "5_set_position", "first", HEADER),
    ("3_give_back", "1_take_cursor", "last", 0),
    ("4_give_back", "1_take_cursor", "last", 0),
    ("8_release", "1_take_cursor", "last", 0),
)
"""In this state the `first` of the request is what the request of that state had in a column, and so much more."""
CHOICES = {"own": "1_load_cursor", "other": "3_check_cursor"}
"""Where the cursor of a pool is chosen: until the next choice all accesses are of that one."""


def judge_requests(segment: Segment) -> CheckVerdict:
    """What each operation asks for in each of its states."""
    columns, operations = segment.columns, operations_of(segment)
    places = np.flatnonzero(operations.is_ask[1:] & ~operations.is_ask[:-1]) + 1
    places = places[operations.group[places] == operations.group[places - 1]]
    asks, steps, group = operations.row[places], operations.row[places - 1], operations.group[places]
    keys = [*columns.texts["key"], ""]
    shapes = [re.sub(r"\d+", "N", key) if "/" in key else key for key in keys]
    number = np.array([int(re.sub(r"[^0-9]+", "", key)[:12] or -1) if "/" in key else -1 for key in keys])
    number = number[columns["key"][asks]]
    is_right = np.ones(len(places), bool)
    for machine, accesses in ACCESSES.items():
        pools = dict(zip(("own", "other"), POOLS[machine], strict=True))
        of_machine = np.flatnonzero(columns.is_one_of("machine", (machine,), steps))
        latest = {
            pool: _find_latest(group, columns.is_one_of("dest", (state,), steps)) for pool, state in CHOICES.items()
        }
        for state, access in accesses.items():
            here = of_machine[columns.is_one_of("dest", (state,), steps[of_machine])]
            event, _, shape = access.partition(" ")
            pool, _, rest = shape.partition("/")
            named = pools.values() if pool == "any" else [pools.get(pool, pool)]
            wanted = {f"{one}/{rest}" if rest else one for one in named}
            fits = np.array([one in wanted for one in shapes])[columns["key"][asks[here]]] | (event in COPIES)
            is_right[here] &= fits & columns.is_one_of("event", (event,), asks[here])
            if pool in latest:
                at = latest[pool][here]
                is_right[here] &= (at < 0) | (number[at] == number[here])
    for state, before, column, more in VALUES:
        here = np.flatnonzero(columns.is_one_of("dest", (state,), steps))
        at = _find_latest(group, columns.is_one_of("dest", (before,), steps))[here]
        is_right[here] &= (at < 0) | (columns["first"][asks[here]] == columns[column][asks[at]] + more)
    is_right &= _is_what_it_writes(segment, asks)

    def describe(row: int) -> str:
        what = f"{columns.text('instance', row)} asks for {columns.text('event', row)} {columns.text('key', row)}"
        return f"{what}, and its state for another access"

    return verdict(columns, len(asks), np.sort(asks[~is_right]), describe)


def _find_latest(group: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """The latest place that is marked, up to each place and in its group; -1: there is none."""
    latest = np.maximum.accumulate(np.where(marked, np.arange(len(group)), -1))
    return np.where((latest >= 0) & (group[latest] == group), latest, -1)


def _is_what_it_writes(segment: Segment, asks: np.ndarray) -> np.ndarray:
    """Whether each request, if it copies data in, copies what its operation was called with."""
    columns = segment.columns
    writes = columns.rows_of(*STEPS, event=("write",))
    is_copy = columns.is_one_of("event", ("copy_in",), asks)
    codes = len(columns.texts["instance"]) + 1
    called, wanted = (columns["run"][rows] * codes + columns["instance"][rows] for rows in (writes, asks))
    content = dict(zip(called.tolist(), columns["key"][writes].tolist(), strict=True))
    data = columns["key"][asks].tolist()
    fits = [content.get(one, own) == own for one, own in zip(wanted.tolist(), data, strict=True)]
    return np.asarray(~is_copy | np.array(fits, bool))
