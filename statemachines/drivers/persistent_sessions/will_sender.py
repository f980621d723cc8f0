"""WillSender: publishes wills that are due, of whatever node their clients were at.

Each node has one.  A will is deleted in the transaction that publishes it, so one node sends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

import msgspec

from statemachines.drivers.authority import Authority
from statemachines.drivers.clock import steady_ns
from statemachines.drivers.persistent_sessions.front_message import RetainedPublisher
from statemachines.drivers.persistent_sessions.host_request import (
    DropWill,
    DueWill,
    DueWills,
    EndWills,
    FindDueWills,
    ReadStoreTime,
)
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.session_server import SessionServer
from statemachines.drivers.rate_limited_log import RateLimitedLog

logger = logging.getLogger("gapless")

LOOK_S: Final = 1.0
"""Between two looks for wills that are due; a look comes sooner where a connection has ended here."""


class WillSender:
    """`desk` and `server` of a node; `authority` says whether a client may publish its will."""

    def __init__(self, desk: RequestQueue, server: SessionServer, authority: Authority) -> None:
        self._desk = desk
        self._server = server
        self._authority = authority
        self._denied = RateLimitedLog(steady_ns)

    async def run(self) -> None:
        """For ever."""
        while True:
            self._server.session_ended.clear()
            due: DueWills = await self._desk.ask(FindDueWills())
            if due.wills:
                since_ns = await self._desk.ask(ReadStoreTime())
                await asyncio.gather(*(self._settle(one, since_ns) for one in due.wills))
            if due.has_ended:
                await self._desk.ask(EndWills())
            elif not due.wills:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._server.session_ended.wait()

    async def _settle(self, due: DueWill, since_ns: int) -> None:
        """Publish it behind what its client has published (PS-521), or delete it if its client may not publish it
        (PS-450)."""
        allowed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._authority.check(due.will.identity, "publish", due.client, due.will.topic, allowed.set_result)
        if not await allowed:
            if self._denied.count_event():
                what = "the will of client %s is not sent: it may not publish it (%d such wills so far)"
                logger.warning(what, due.client, self._denied.count)
            await self._desk.ask(DropWill(due.connection))
            return
        stored = asyncio.Event()
        known = RetainedPublisher(due.will.identity, due.client)
        publisher = b"" if self._authority.is_open else msgspec.json.encode(known)
        self._server.messages.publish_will(due, since_ns, publisher, stored.set)
        await stored.wait()
