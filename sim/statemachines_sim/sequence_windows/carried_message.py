"""Carried message: a numbered message on the simulated network, with its place among those that were sent.

In a trace its subject stands in `key`, the frame in `term`, the base in `first` and `last`, and in `grant` the ordinal:
of what the machines know of it nothing, and of what judges need all.
"""

from __future__ import annotations

from typing import ClassVar

from statemachines.kernel import Message, TraceColumns
from statemachines.sequence_windows.message import Numbered


class Carried(Message, frozen=True, gc=False):
    """A message of `publisher` on `subject`; `ordinal`: the how manieth of both it is, from 0 on, which only
    judges read.  The others as for `Numbered`."""

    columns: ClassVar = TraceColumns(key="subject", term="frame", grant="ordinal", first="first", last="first")

    publisher: str
    subject: str
    ordinal: int
    frame: int
    first: int
    time_ns: int = 0
    chain: int = 0

    @property
    def numbered_event(self) -> Numbered:
        """As a receiver's machine takes it."""
        return Numbered(self.frame, self.first, self.first, self.time_ns, self.chain)
