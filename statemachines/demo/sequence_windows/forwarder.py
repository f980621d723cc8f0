"""Forwarder: hands datagrams from the publishers' group to the receivers', and notes what it drops and repeats."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec

from statemachines.drivers.lives import begin_log
from statemachines.drivers.sequence_windows.datagram import decode
from statemachines.drivers.sequence_windows.multicast import Group, MulticastForwarder
from statemachines.kernel import Event, Message, TraceColumns
from statemachines.sequence_windows.sequence import base_of, frame_of
from statemachines.trace.row import event_row

NODE = "forwarder"


class ForwardedMessage(msgspec.Struct, frozen=True):
    """A message at the forwarder, which handed it over so many times (0: it dropped it)."""

    publisher: str
    payload: str
    copies: int


class Forwarding(Event, frozen=True):
    """Row `tell` of a forwarder when it begins: what it loses from now on is in its log."""


class Forwarded(Message, frozen=True, gc=False):
    """A message on its way, as a trace has it: base `first` of `frame`, on `subject`."""

    columns: ClassVar = TraceColumns(key="subject", term="frame", first="first", last="first")

    subject: str
    frame: int
    first: int


class Forwarder:
    """`passed`: every message, in the order in which they came.  What it drops and repeats is in its log, too."""

    def __init__(
        self, source: Group, to: Group, trace: Path, lose: Callable[[int], bool], repeat: Callable[[int], bool]
    ) -> None:
        self.passed: list[ForwardedMessage] = []
        self._log = begin_log(trace, f"{NODE}~1")
        self._log.write([event_row(time.time_ns(), NODE, NODE, "tell", Forwarding())])
        self._way = MulticastForwarder(source, to, lose=lose, repeat=repeat, observe=self._note)

    def forward(self) -> None:
        """What has arrived."""
        self._way.forward_ready()

    def close(self) -> None:
        """No more."""
        self._way.close()
        self._log.close()

    def _note(self, data: bytes, copies: int) -> None:
        one = decode(data)
        self.passed.append(ForwardedMessage(one.publisher, one.payload.decode(errors="replace"), copies))
        if copies != 1:
            message = Forwarded(one.subject, frame_of(one.number), base_of(one.number))
            kind = "duplicate" if copies else "drop"
            self._log.write([event_row(time.time_ns(), NODE, one.publisher, kind, message)])
