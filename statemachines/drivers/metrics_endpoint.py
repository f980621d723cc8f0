"""MetricsEndpoint: what a node counts, and whether it is well, over HTTP for those who watch it.

`GET /metrics` answers in the text format of OpenMetrics, `GET /health` with 200 and `ok`, or 503 and the reason.  Each
connection has one answer.  Whoever can reach the port can read both, so it belongs on an address of the operator.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, NamedTuple, Self

from statemachines.drivers.tcp import Address
from statemachines.kernel import ConfigurationError

CONNECTIONS_MAX: Final = 16
HEAD_MAX: Final = 8_192
"""Bytes of a request before its empty line."""

PATIENCE_S: Final = 5.0
"""A request must have come, and its answer gone, within it."""

TEXT: Final = "text/plain; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Metric(NamedTuple):
    """`name` without `gapless_`; `kind`: gauge, or counter, whose sample gets `_total` behind its name."""

    name: str
    kind: str
    about: str
    value: float


def write_metrics(metrics: Iterable[Metric]) -> str:
    """The text of OpenMetrics."""
    lines: list[str] = []
    for one in metrics:
        name = f"gapless_{one.name}"
        sample = f"{name}_total" if one.kind == "counter" else name
        lines += [f"# TYPE {name} {one.kind}", f"# HELP {name} {one.about}", f"{sample} {one.value:.15g}"]
    return "\n".join((*lines, "# EOF", ""))


class MetricsEndpoint:
    """`listen`: where it answers; `read_metrics`: what the node counts; `find_trouble`: why it is not well ("": it is).

    Raises `ConfigurationError` on entry where it cannot listen.
    """

    def __init__(
        self, listen: Address, read_metrics: Callable[[], Iterable[Metric]], find_trouble: Callable[[], str]
    ) -> None:
        self._listen = listen
        self._read_metrics = read_metrics
        self._find_trouble = find_trouble
        self._open: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def __aenter__(self) -> Self:
        host, port = self._listen
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_MAX)
        except OSError as error:
            raise ConfigurationError("metrics", f"{host}:{port}", f"cannot be listened at: {error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                if len(self._open) <= CONNECTIONS_MAX:
                    async with asyncio.timeout(PATIENCE_S):
                        writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                        await writer.drain()
        finally:
            self._open.discard(task)
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "only GET and HEAD\n")
        if path == b"/metrics":
            return _response("200 OK", write_metrics(self._read_metrics()), OPEN_METRICS, is_head=method == b"HEAD")
        if path == b"/health":
            trouble = self._find_trouble()
            status = "503 Service Unavailable" if trouble else "200 OK"
            return _response(status, f"{trouble or 'ok'}\n", is_head=method == b"HEAD")
        return _response("404 Not Found", "there are /metrics and /health\n")


def _response(status: str, text: str, kind: str = TEXT, *, is_head: bool = False) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if is_head else body)
