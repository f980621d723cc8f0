"""UDP multicast: one datagram a message, from a sender to whoever has joined the group.

A receiver's buffer that is full, and any router, may drop a datagram without a word; the numbers show it.  On the
loopback interface (the default) nothing leaves this machine.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Self

import msgspec

from statemachines.drivers.sequence_windows.datagram import DATAGRAM_MAX
from statemachines.kernel import ConfigurationError

LOOPBACK = "127.0.0.1"
BUFFER = 4 << 20
"""Bytes that a receiver asks the system to hold; it may give less."""


class Group(msgspec.Struct, frozen=True):
    """`address` (IPv4, 224.0.0.0/4) and `port` of a group, at the `interface` with this address; `hops`: how many
    routers a datagram may pass.  `ConfigurationError` for what is none."""

    address: str
    port: int
    interface: str = LOOPBACK
    hops: int = 1

    def __post_init__(self) -> None:
        for key in ("address", "interface"):
            try:
                found = ipaddress.IPv4Address(getattr(self, key))
            except ValueError:
                raise ConfigurationError(key, getattr(self, key), "must be an IPv4 address") from None
            if (key == "address") is not found.is_multicast:
                rule = "must be a multicast address, 224.0.0.0 to 239.255.255.255" if key == "address" else "is none"
                raise ConfigurationError(key, getattr(self, key), rule)
        if not 0 < self.port < 65536:
            raise ConfigurationError("port", self.port, "must be 1 to 65535")
        if not 0 <= self.hops <= 255:
            raise ConfigurationError("hops", self.hops, "must be 0 to 255")


def parse_group(text: str, interface: str = LOOPBACK) -> Group:
    """`239.1.2.3:7600`; raises `ConfigurationError`."""
    address, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()):
        raise ConfigurationError("group", text, "must be ADDRESS:PORT")
    return Group(address, int(port), interface)


class _Socket:
    """A socket that is closed with the `with` block."""

    socket: socket.socket

    def close(self) -> None:
        """No more."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class MulticastSender(_Socket):
    """Sends datagrams to the group; `ConfigurationError` where the interface is not there."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(group.interface))
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, group.hops)
        except OSError as error:
            self.close()
            raise ConfigurationError("interface", group.interface, f"cannot be used: {error.strerror}") from error

    def send(self, data: bytes) -> None:
        """One datagram; OSError as the system says."""
        self.socket.sendto(data, (self.group.address, self.group.port))


class MulticastReceiver(_Socket):
    """Has joined the group; `receive_ready()` gives what has arrived, `socket` can be waited for."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            self.socket.bind((group.address, group.port))
            joined = struct.pack("4s4s", socket.inet_aton(group.address), socket.inet_aton(group.interface))
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
            self.socket.setblocking(False)
        except OSError as error:
            self.close()
            raise ConfigurationError("group", f"{group.address}:{group.port}", f"{error.strerror}") from error

    def receive_ready(self, at_most: int = 256) -> list[bytes]:
        """The datagrams that have arrived, no more than so many; none: an empty list."""
        found: list[bytes] = []
        while len(found) < at_most:
            try:
                found.append(self.socket.recv(DATAGRAM_MAX + 1))
            except BlockingIOError:
                break
        return found


class MulticastForwarder(_Socket):
    """Hands datagrams from one group to another; some are lost, some come twice.

    `lose(number)` and `repeat(number)` say so of the datagram that arrives as the `number`-th, from 0 on; `lost` and
    `repeated` are the numbers of those; `observe(data, copies)` sees each, and how often it was handed over.
    """

    def __init__(
        self,
        source: Group,
        to: Group,
        *,
        lose: Callable[[int], bool],
        repeat: Callable[[int], bool],
        observe: Callable[[bytes, int], object] | None = None,
    ) -> None:
        if (source.address, source.port) == (to.address, to.port):
            raise ConfigurationError("to", f"{to.address}:{to.port}", "is the group that it forwards from")
        self.receiver = MulticastReceiver(source)
        self.sender = MulticastSender(to)
        self.socket = self.receiver.socket
        self.count = 0
        self.lost: list[int] = []
        self.repeated: list[int] = []
        self._lose = lose
        self._repeat = repeat
        self._observe = observe

    def forward_ready(self) -> int:
        """Hand over what has arrived; how many datagrams that were."""
        found = self.receiver.receive_ready()
        for data in found:
            number, self.count = self.count, self.count + 1
            copies = 0 if self._lose(number) else 2 if self._repeat(number) else 1
            if copies != 1:
                (self.repeated if copies else self.lost).append(number)
            for _ in range(copies):
                self.sender.send(data)
            if self._observe is not None:
                self._observe(data, copies)
        return len(found)

    def close(self) -> None:
        """Both sides."""
        self.receiver.close()
        self.sender.close()


def by_chance(share: float, seed: int) -> Callable[[int], bool]:
    """This share of all, drawn by the seed."""
    chance = Random(seed)
    return lambda number: chance.random() < share
