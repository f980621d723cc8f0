"""Publisher: puts messages into the stream store.

async with Publisher("messages.db") as publisher:
    await publisher.publish("orders", [b"first", b"second"])
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from statemachines.drivers.clock import steady_ns, wall_offset_ns
from statemachines.drivers.lives import begin_life, chance_bits
from statemachines.drivers.message_head import Headers, MessageHead, encode_head, make_head
from statemachines.drivers.opening import closed_on_failure
from statemachines.drivers.shared_subscriptions.open_stores import directory_of, open_store_patiently, open_stream_store
from statemachines.drivers.shared_subscriptions.roles import PROTOCOL
from statemachines.drivers.shared_subscriptions.store import Heads
from statemachines.drivers.sql.failure import OutcomeOpen, StoreUnavailable
from statemachines.kernel import ConfigurationError, node_of
from statemachines.shared_subscriptions.stream_store import Appended, Published
from statemachines.trace import event_row

logger = logging.getLogger("gapless")

AGAIN_S = 0.1
"""The pause before an append is repeated."""


class Publisher:
    """`store`: path or URL of the stream store; `patience_s`: how long `publish` repeats an append that the store
    did not carry out (busy, restarted), and a store that is not there yet is waited for; the rest as for
    `SharedSubscription`."""

    def __init__(
        self,
        store: str | Path,
        *,
        node: str | None = None,
        state: str | Path | None = None,
        trace: str | Path | None = None,
        number: int | None = None,
        patience_s: float = 0.0,
    ) -> None:
        self._name = node
        self.node = node or ""
        self._patience_s = patience_s
        self._where = store
        self._state = Path(state) if state is not None else directory_of(store)
        self._trace = None if trace is None else Path(trace)
        self._number = number

    async def __aenter__(self) -> Publisher:
        who = self._name or "publisher"
        self._store = await open_store_patiently(open_stream_store, self._where, who=who, patience_s=self._patience_s)
        bits = chance_bits()
        async with closed_on_failure(self._store.close):
            life = begin_life(
                self._name, self._state, self._trace, self._number, PROTOCOL,
                kind="publisher", bits=bits, store=self._store.identity,
            )  # fmt: skip
        self.node = node_of(life.name)
        self._life, self._log = life.name, life.log
        self._offset = wall_offset_ns()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._store.close()
        if self._log is not None:
            self._log.close()

    async def publish(
        self,
        topic: str,
        payload: bytes | Sequence[bytes],
        *,
        headers: Headers | None = None,
        key: bytes | None = None,
        timestamp: float | None = None,
        heads: Sequence[MessageHead | None] = (),
    ) -> Appended:
        """Append a message, or several, to the topic's stream, all or none; they are in the store when this returns.

        What is done to `payload` meanwhile changes nothing.

        Args:
            headers: names and values, of each of these messages: 64 at most, with key and timestamp 16 KiB at most.
            key: what each of them is about, 1 KiB at most.
            timestamp: seconds since the epoch, of each of them; the store does not say one.
            heads: a head for each message, or None, where they differ; then none of the three above.

        Raises:
            ConfigurationError: what is given breaks a rule; nothing was written.
            StoreUnavailable: they are not there.
            OutcomeOpen: that is not known; nor is it where this call is cancelled.
        """
        payloads = (payload,) if isinstance(payload, bytes) else tuple(payload)
        common = make_head(headers, key, timestamp)
        if common is not None:
            if heads:
                rule = "must not be given beside headers, key or timestamp, which are of every message"
                raise ConfigurationError("heads", f"{len(heads)} heads", rule)
            heads = (common,) * len(payloads)
        appended = await self._append(topic, payloads, tuple(map(encode_head, heads)))
        if self._log is not None and appended.last >= appended.first:
            event = Published(appended.stream, appended.first, appended.last)
            self._log.write([event_row(steady_ns() + self._offset, self.node, self._life, "tell", event)])
        return appended

    async def _append(self, topic: str, payloads: Sequence[bytes], heads: Heads) -> Appended:
        deadline, is_said = time.monotonic() + self._patience_s, False
        while True:
            try:
                return await self._store.append(topic, payloads, heads)
            except OutcomeOpen:
                raise
            except StoreUnavailable as error:
                if time.monotonic() > deadline:
                    raise
                if not is_said:
                    logger.warning("%s: waits for the store, %g s at most: %s", self._life, self._patience_s, error)
                is_said = True
            await asyncio.sleep(AGAIN_S)
