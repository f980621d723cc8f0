"""Acknowledgements: what a client has said of the packets that it has, as a node takes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from statemachines.persistent_sessions.message import Puback, Pubcomp, Pubrec

Acknowledgement = Puback | Pubrec | Pubcomp
KINDS: Final = frozenset((Puback, Pubrec, Pubcomp))


def fold_acknowledgements(asked: Iterable[Acknowledgement]) -> list[Acknowledgement]:
    """The same, packets of QoS 1 that follow each other as one; how many a client says that it means is not heard."""
    found: list[Acknowledgement] = []
    last = 0
    for one in asked:
        before = found[-1] if found else None
        if not isinstance(one, Puback):
            found.append(one)
        elif isinstance(before, Puback) and last + 1 == one.packet:
            found[-1] = Puback(before.packet, one.packet)
        else:
            found.append(Puback(one.packet))
        last = one.packet
    return found
