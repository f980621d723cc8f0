"""Directed systems: the smallest systems in which mistakes are looked for, one after the other."""

from __future__ import annotations

from functools import partial

from statemachines.cursor_recovery.memory import CELL
from statemachines_spec.cursor_recovery.systems import (
    DEAD,
    EARLIER,
    EMPTY,
    LATER,
    SLOW,
    TWO,
    A,
    B,
    QueueSetting,
    build,
    obligations_of,
)
from statemachines_spec.directed_system import DirectedSystem

SETTINGS = (
    ("left by the dead", QueueSetting(((EMPTY,),), 1, left=DEAD, begin=32, instants=LATER), True),
    ("left by earlier lives", QueueSetting(((A,),), 1, left=EARLIER, begin=32, write_cursors=2, instants=LATER), True),
    ("alone", QueueSetting(((A, B),), 1), True),
    ("one of each", QueueSetting(((A, TWO),), 1, crashes=1, instants=LATER), True),
    ("one of each, far", QueueSetting(((TWO, A),), 1, crashes=1, instants=LATER, capacity=24), True),
    ("a lap is a block", QueueSetting(((A, B),), 1, crashes=1, instants=LATER, capacity=20), True),
    ("two readers", QueueSetting(((A,),), 2, capacity=24), True),
    (
        "two readers, one cursor",
        QueueSetting(((TWO,),), 2, crashes=1, read_cursors=1, instants=LATER, capacity=24),
        True,
    ),
    (
        "two cursors left by the dead",
        QueueSetting(((A,),), 1, left=DEAD, begin=32, read_cursors=2, write_cursors=2, instants=LATER),
        True,
    ),
    ("two writers", QueueSetting(((A,), (B,)), 1, capacity=40), False),
    ("a writer dies", QueueSetting(((A,), (EMPTY,)), 1, crashes=1, instants=LATER, capacity=24, write_cursors=1), True),
    ("with room", QueueSetting(((A,), (EMPTY,)), 1, crashes=1, instants=LATER, capacity=40, write_cursors=1), False),
    (
        "a slice at a time",
        QueueSetting(
            ((A,), (EMPTY,)), 1, crashes=1, instants=LATER, capacity=36, write_cursors=1, slice_bytes=2 * CELL
        ),
        True,
    ),
    ("slow", QueueSetting(((A,),), 1, instants=SLOW, capacity=24), False),
    ("two slow writers", QueueSetting(((A,), (EMPTY,)), 1, instants=LATER, capacity=32), False),
    ("a reader of two dies", QueueSetting(((A,),), 2, crashes=1, instants=LATER, capacity=24), False),
    ("slow by age", QueueSetting(((A,),), 1, instants=LATER, capacity=24, by_age=True), False),
    ("dead by age", QueueSetting(((EMPTY, A),), 1, left=DEAD, begin=32, instants=LATER, by_age=True), True),
    ("readers by age", QueueSetting(((A,),), 2, instants=LATER, capacity=24, read_cursors=1, by_age=True), False),
    (
        "two cursors left by age",
        QueueSetting(
            ((A,),), 1, left=DEAD, begin=32, instants=LATER, by_age=True, capacity=40, read_cursors=2, write_cursors=2
        ),
        True,
    ),
    ("outrun", QueueSetting(((EMPTY, A), (B,)), 1, capacity=20), False),
    (
        "a writer of two dies",
        QueueSetting(((A,), (B,)), 1, crashes=1, instants=LATER, capacity=40, write_cursors=1),
        True,
    ),
)
"""Name, bounds, and whether READ and WRITE are judged too."""

DIRECTED_SYSTEMS = tuple(
    DirectedSystem(name, "", partial(build, name, "", setting), obligations_of if live else None)
    for name, setting, live in SETTINGS
)
