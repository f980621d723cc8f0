"""Acknowledgements: what a client has said of the packets that it has, as a node takes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from statemachines.kernel import Message
from statemachines.persistent_sessions.message import Puback, Pubcomp, Pubrec


class FrontAcknowledged(Message, frozen=True, gc=False):
    """From a front within the process: the client has acknowledged these packets of QoS 1, in this order."""

    packets: tuple[int, ...]


Acknowledgement = Puback | Pubrec | Pubcomp
KINDS: Final = frozenset((Puback, Pubrec, Pubcomp, FrontAcknowledged))


def fold_acknowledgements(asked: Iterable[Acknowledgement | FrontAcknowledged]) -> list[Acknowledgement]:
    """The same, packets of QoS 1 that follow each other as one; how many a client says that it means is not heard."""
    found: list[Acknowledgement] = []
    packets: list[int] = []
    for one in asked:
        if isinstance(one, FrontAcknowledged):
            packets += one.packets
        elif isinstance(one, Puback):
            packets.append(one.packet)
        else:
            found += _fold_packets(packets)
            packets = []
            found.append(one)
    return found + _fold_packets(packets)


def _fold_packets(packets: list[int]) -> list[Acknowledgement]:
    runs: list[Acknowledgement] = []
    place = 0
    while place < len(packets):
        first, begin = packets[place], place
        while place < len(packets) and packets[place] == first + place - begin:
            place += 1
        runs.append(Puback(first, packets[place - 1] if place - begin > 1 else 0))
    return runs


def list_packets(asked: Iterable[Acknowledgement | FrontAcknowledged]) -> list[int]:
    """The packets of messages that the client has."""
    found: list[int] = []
    for one in asked:
        if isinstance(one, FrontAcknowledged):
            found += one.packets
        elif not isinstance(one, Pubcomp):
            found.append(one.packet)
    return found
