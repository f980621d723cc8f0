"""What fills the columns of a trace: an event says it, and what it says is held against its fields."""

from __future__ import annotations

from typing import ClassVar

import pytest

from statemachines import catalogue, registry
from statemachines.kernel import Call, DeclarationError, Message, TimerFired, TraceColumns
from statemachines.kernel.event import column_fields
from statemachines.shared_subscriptions.group_store import Refused
from statemachines.shared_subscriptions.message import Grant, Ping, Revoke
from statemachines.shared_subscriptions.stream_store import Published
from statemachines.trace import COLUMNS, event_row, fault_row, fingerprint, list_fingerprints
from statemachines.trace.log import LogRow
from statemachines.trace.parquet import SCHEMA
from statemachines.trace.row import ROW

FILLED = ("key", "term", "grant", "first", "last")


class Locked(Message, frozen=True):
    """Fields that are called as the columns are."""

    key: str
    term: int
    last: int | None = None


class Fenced(Message, frozen=True):
    """Other names."""

    columns: ClassVar = TraceColumns(key="lock", term="token", first="from_")

    lock: str
    token: int
    from_: int


class Later(Fenced, frozen=True):
    """What the one above it says holds."""

    wait: int = 0


class Halved(Message, frozen=True):
    """What it holds is not what a column can hold: properties are."""

    columns: ClassVar = TraceColumns(key="words", grant="pages", last="half")

    of: bytes
    twice: int

    @property
    def words(self) -> str:
        return self.of.decode()

    @property
    def half(self) -> int:
        return self.twice // 2

    @property
    def pages(self) -> int | None:
        return None

    @property
    def first(self) -> int:
        """Called as a column is, and not meant for it."""
        return 77


class Odd(Call, frozen=True):
    """Called like columns, and not to be held by them."""

    key: bytes
    first: bool
    last: str


class Ring(TimerFired, frozen=True):
    """A timer."""


def cells(event):
    row = dict(zip(COLUMNS[2:], event_row(1, "n", "n~1", "tell", event), strict=True))
    return tuple(row[name] for name in FILLED)


def test_fields_that_are_called_so_fill_their_columns():
    assert cells(Locked("a", 3)) == ("a", 3, None, None, None)
    assert cells(Locked("a", 3, 9)) == ("a", 3, None, None, 9)


def test_a_class_says_which_fields_do_and_those_below_it_inherit():
    assert cells(Fenced("a", 3, 7)) == ("a", 3, None, 7, None)
    assert cells(Later("a", 3, 7)) == ("a", 3, None, 7, None)


def test_a_property_fills_a_column_where_the_class_says_so():
    assert cells(Halved(b"a", 18)) == ("a", None, None, None, 9)


def test_a_property_of_another_type_is_refused():
    class Wrong(Halved, frozen=True):
        columns: ClassVar = TraceColumns(first="words")

    with pytest.raises(DeclarationError, match="first is filled from 'words', which is no int"):
        column_fields(Wrong)


def test_what_a_column_cannot_hold_is_left_out():
    assert cells(Odd(b"x", True, "y")) == (None,) * 5


def test_the_instance_of_a_timer_is_no_key():
    assert cells(Ring("orders")) == (None,) * 5


@pytest.mark.parametrize(
    ("columns", "says"),
    [(TraceColumns(key="lok"), "'lok', which it has not"), (TraceColumns(term="lock"), "'lock', which is no int")],
)
def test_a_field_that_cannot_fill_a_column_is_refused(columns, says):
    class Wrong(Message, frozen=True):
        lock: str

    Wrong.columns = columns
    with pytest.raises(DeclarationError, match=says):
        column_fields(Wrong)


def test_the_shipped_events_fill_what_they_did():
    assert cells(Grant("b", 5, 1, "0.0/a", 7, 100)) == ("0.0/a", 5, 7, 100, None)
    assert cells(Revoke("b", 5, 1, "0.0/a", 7)) == ("0.0/a", 5, 7, None, None)
    assert cells(Ping("b", 5, 1, 2)) == (None, 5, None, None, None)
    assert cells(Published("0.0/a", 3, 9)) == ("0.0/a", None, None, 3, 9)
    assert cells(Refused(1, "k")) == (None,) * 5


def test_every_event_of_every_machine_can_be_noted():
    for name in registry.names():
        for machine in catalogue.machines(name):
            for event in machine.alphabet:
                assert len(column_fields(event)) == len(FILLED)


def test_the_columns_are_declared_once():
    assert tuple(SCHEMA.names) == COLUMNS
    assert sorted(LogRow.__struct_fields__) == sorted(COLUMNS[2:])
    fault = dict(zip(COLUMNS[2:], fault_row(5, "n", "kill", data="{}"), strict=True))
    assert fault.pop("data") == "{}"
    said = {"t_ns": 5, "node": "n", "kind": "fault", "event": "kill"}
    assert fault == {column.name: column.default for column in ROW if column.name != "data"} | said


def test_a_fingerprint_a_protocol():
    found = list_fingerprints(["missed_samples", "shared_subscriptions"])
    assert found["missed_samples"] == fingerprint(catalogue.machines("missed_samples"))
    assert len(set(found.values())) == 2
