"""TlsGate: the TLS handshakes of a listener, bounded in number and in time.

A connection whose handshake is not over takes 300 KiB in asyncio, and a listener with TLS has any number of them, for a
minute each.  Here a connection begins without TLS, so that it is counted, and its handshake comes behind that.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from statemachines.drivers.tcp import limit_reads


class TlsGate:
    """Connections whose handshake is not over.

    Args:
        tls: of the listener.
        limit_s: seconds that a handshake may take.
        most: connections at a time; where there are more, the oldest makes room.
    """

    def __init__(self, tls: ssl.SSLContext, limit_s: float, most: int) -> None:
        self._tls = tls
        self._limit_s = limit_s
        self._most = most
        self._open: dict[asyncio.Transport, asyncio.Task[None]] = {}

    def enter(self, transport: asyncio.Transport, protocol: GatedProtocol) -> None:
        """Begin the handshake of a connection."""
        self._open[transport] = asyncio.ensure_future(self._shake_hands(transport, protocol))
        if len(self._open) > self._most:
            oldest = next(iter(self._open))
            self._open.pop(oldest)
            oldest.abort()

    async def _shake_hands(self, transport: asyncio.Transport, protocol: GatedProtocol) -> None:
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                transport, protocol, self._tls, server_side=True, ssl_handshake_timeout=self._limit_s
            )
        except OSError as error:  # the handshake has failed, and the connection is closed
            error.__traceback__ = None  # its frames would keep it, and the connection, until garbage is collected
            return
        finally:
            self._open.pop(transport, None)
        if secured is not None:  # else it was lost
            protocol.begin(secured)

    async def close(self) -> None:
        """End those connections."""
        tasks = list(self._open.values())
        for one in list(self._open):
            one.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


class GatedProtocol(asyncio.Protocol):
    """In front of a protocol in the order of its classes: that begins behind the handshake.

    A subclass names the `gate`; None: there is no TLS.
    """

    gate: TlsGate | None = None
    _has_begun = False
    _is_lost = False
    _early = b""
    _has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """There is a connection, maybe without its handshake."""
        limit_reads(transport)
        if self.gate is None:
            self.begin(transport)
        else:
            self.gate.enter(cast("asyncio.Transport", transport), self)

    def begin(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over; what came with its last bytes is there already."""
        if self._is_lost:
            return
        self._has_begun = True
        super().connection_made(transport)
        if self._early:
            super().data_received(self._early)
            self._early = b""
        if self._has_ended:
            super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._has_begun:
            super().data_received(data)
        else:
            self._early += data

    def eof_received(self) -> Any:
        """The client has ended its side."""
        self._has_ended = True
        return super().eof_received() if self._has_begun else None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._is_lost = True
        if self._has_begun:
            super().connection_lost(exc)


class GatedStream(GatedProtocol, asyncio.StreamReaderProtocol):
    """A reader and a writer behind the handshake."""
