"""Fault: one entry of a fault schedule, as data.  What a kind does stands in `faults/`, one place for each."""

from __future__ import annotations

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """`kind` hits `target` (a node or a device, "" = the network or all stores) from `at_ns` for `for_ns`; a partition
    cuts what `target` sends to `peer`; `rate`: the share of messages or requests that are hit; `amount`: how much, in
    the unit of the kind."""

    kind: str
    at_ns: int
    for_ns: int
    target: str = ""
    peer: str = ""
    rate: float = 0.0
    amount: int = 0
