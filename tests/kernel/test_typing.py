"""A row that is wired wrongly is a type error: mypy says so, on the line of the row."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TABLE = """
from msgspec import Struct

from statemachines.kernel import STAY, Call, Effects, Row, Status, TimerFired


class Knock(Call, frozen=True):
    n: int


class Bell(TimerFired, frozen=True):
    pass


class DoorStatus(Status):
    OPEN = "open"


(OPEN,) = DoorStatus


class Door(Struct, frozen=True):
    status: DoorStatus = OPEN


class Window(Struct, frozen=True):
    status: DoorStatus = OPEN


def knock(record: Door, event: Knock, now_ns: int) -> tuple[Door, Effects]:
    return record, ()


def is_second(record: Door, event: Knock) -> bool:
    return event.n == 2


def is_window(record: Window, event: Knock) -> bool:
    return True


def forgets_effects(record: Door, event: Knock, now_ns: int) -> Door:
    return record


ROWS = (
    Row(Knock, OPEN, STAY, knock, is_second, "right"),
    Row(Knock, OPEN, STAY, None, None, "right"),
    Row(Bell, OPEN, STAY, knock, None, "wrong: the action takes another event"),
    Row(Bell, OPEN, STAY, None, is_second, "wrong: the guard takes another event"),
    Row(Knock, OPEN, STAY, knock, is_window, "wrong: guard and action take other records"),
    Row(Knock, OPEN, STAY, forgets_effects, None, "wrong: the action gives no effects"),
    Row(Knock, OPEN, STAY, knock, knock, "wrong: a guard takes no time"),
    Row(Knock, "open", STAY, knock, None, "wrong: a state is no text"),
)
"""


def test_wrong_wiring_is_a_type_error_and_right_wiring_is_none(tmp_path: Path) -> None:
    path = tmp_path / "table.py"
    path.write_text(TABLE)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path).stdout
    wrong = {int(number) for number in re.findall(r"table\.py:(\d+): error", said)}
    lines = TABLE.splitlines()
    assert wrong == {number for number, line in enumerate(lines, 1) if '"wrong' in line}, said
