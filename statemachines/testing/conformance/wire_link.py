"""WireLink: how an implementation and the kit come together: the kit listens, or dials until somebody listens."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol

from statemachines.drivers.credentials import Credentials
from statemachines.drivers.tcp import Address, describe_failure
from statemachines.kernel import ConfigurationError
from statemachines.testing.conformance.wire_peer import WirePeer

REACH_S: Final = 15.0
"""An implementation that listens is there within so long."""

AGAIN_S: Final = 0.05


class WireLink(Protocol):
    """The way to the implementation."""

    address: Address

    async def open(self) -> None:
        """Begin; raises `ConfigurationError` for an address that cannot be used."""

    def close(self) -> None:
        """No further connection."""


class Listener:
    """The kit listens at `address`; each connection is a peer."""

    def __init__(self, address: Address, credentials: Credentials, accept: Callable[[], WirePeer]) -> None:
        self.address = address
        self._credentials = credentials
        self._accept = accept

    async def open(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        host, port = self.address
        try:
            tls = self._credentials.listening()
            self._server = await loop.create_server(self._accept, host, port, ssl=tls)
        except (OSError, UnicodeError) as error:
            rule = f"cannot be listened on: {getattr(error, 'strerror', None) or error}; choose another, or port 0"
            raise ConfigurationError("address", f"{host}:{port}", rule) from error
        self.address = self._server.sockets[0].getsockname()[:2]

    def close(self) -> None:
        """Listen no more."""
        self._server.close()


class Dialler:
    """The kit keeps connections to `address`; port 0: a free one, at which the implementation is to listen.

    Args:
        accept: makes the peer of a connection, by its place.
        count: so many connections are kept.
        give_up: called with what is wrong when nobody listens for `REACH_S`.
    """

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        accept: Callable[[int], WirePeer],
        give_up: Callable[[str], None],
        count: int,
    ) -> None:
        self.address = address
        self._credentials = credentials
        self._accept = accept
        self._give_up = give_up
        self._count = count

    async def open(self) -> None:
        """Dial, again and again."""
        self._tls = self._credentials.dialling()
        host, port = self.address
        if port == 0:
            self.address = (host, find_free_port(host))
        self._tasks = [asyncio.ensure_future(self._keep(place)) for place in range(self._count)]

    def close(self) -> None:
        """Dial no more."""
        for task in self._tasks:
            task.cancel()

    async def _keep(self, place: int) -> None:
        loop = asyncio.get_running_loop()
        host, port = self.address
        began = loop.time()
        why = ""
        while True:
            try:
                async with asyncio.timeout(max(0.1, began + REACH_S - loop.time())):
                    name = host if self._tls is not None else None
                    _, peer = await loop.create_connection(
                        lambda: self._accept(place), host, port, ssl=self._tls, server_hostname=name
                    )
            except (OSError, UnicodeError) as error:
                why = describe_failure(error, self._tls is not None)
                if loop.time() - began > REACH_S:
                    self._give_up(f"nobody can be reached at {host}:{port}: {why}; listen there")
                    return
            else:
                await peer.closed.wait()
                began = loop.time()
            await asyncio.sleep(AGAIN_S)


def find_free_port(host: str) -> int:
    """A port that nobody listens at.  Raises `ConfigurationError` for a host that is not here."""
    try:
        with socket.create_server((host, 0)) as one:
            port: int = one.getsockname()[1]
            return port
    except (OSError, UnicodeError) as error:
        rule = f"has no free port: {getattr(error, 'strerror', None) or error}; give HOST:PORT where it listens"
        raise ConfigurationError("address", f"{host}:0", rule) from error
