"""What fills the columns of a trace: an event says it, and what it says is held against its fields."""

from __future__ import annotations

from typing import ClassVar

import pytest

from statemachines.kernel import DeclarationError, Message, TraceColumns
from statemachines.kernel.event import column_fields


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


def test_a_property_of_another_type_is_refused():
    class Wrong(Halved, frozen=True):
        columns: ClassVar = TraceColumns(first="words")

    with pytest.raises(DeclarationError, match="first is filled from 'words', which is no int"):
        column_fields(Wrong)
