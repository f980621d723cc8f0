"""GroupUpkeep: gives members what sessions that have ended never acknowledged, and ends groups without sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.persistent_sessions.group_membership import GroupMembership
from statemachines.drivers.persistent_sessions.groups import Groups
from statemachines.drivers.persistent_sessions.host_request import ForgetGroup, ListIdleGroups, ReadReturned
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.returned_batch import ReturnedBatch, ReturnedMessage
from statemachines.drivers.persistent_sessions.shared_message_codec import SharedOrigin
from statemachines.drivers.shared_subscriptions.groups import destroy
from statemachines.kernel import GaplessError

logger = logging.getLogger("gapless")

LOOK_S: Final = 1.0
"""How often it is looked for messages that came back."""

GIVE_AGAIN_NS: Final = 10 * 10**9
"""A message that was given to a member, and is not stored for its session after so long, is given to another."""

CHECKS: Final = 20
"""How often within its expiry it is looked whether a group has sessions."""

CHECK_S_MAX: Final = 60.0


class GroupUpkeep:
    """`members` of the node, whose `desk` asks the database; `groups`: where they are; `clock`: steady."""

    def __init__(self, members: GroupMembership, groups: Groups, desk: RequestQueue, clock: Clock = steady_ns) -> None:
        self._members = members
        self._groups = groups
        self._desk = desk
        self._clock = clock
        self._given: dict[str, int] = {}
        """Message -> until when it is the member's that it was given to."""
        self._turn = 0

    async def give_returned(self) -> None:
        """Again and again: what came back goes to the members here."""
        while True:
            await asyncio.sleep(LOOK_S)
            members = self._members.list_members()
            if not members:
                continue
            found = await self._desk.ask(ReadReturned(tuple(sorted(members))))
            there = {message for its in found.values() for message, _ in its}
            self._given = {one: until for one, until in self._given.items() if one in there}
            for group, its in found.items():
                self._give(group, its, members[group])

    def _give(self, group: str, its: Sequence[tuple[str, Payload]], filters: Sequence[Any]) -> None:
        now_ns = self._clock()
        wanted = [(name, one) for name, one in its if self._given.get(name, 0) <= now_ns]
        if not wanted:
            return
        self._turn += 1
        member = filters[self._turn % len(filters)]
        self._given |= dict.fromkeys((message for message, _ in wanted), now_ns + GIVE_AGAIN_NS)
        batch = [ReturnedMessage(*one, SharedOrigin(group, "", 0, message)) for message, one in wanted]
        self._members.give(member, ReturnedBatch(batch))

    async def end_idle(self) -> None:
        """Again and again: groups that only subscriptions declared end, where no session has them for long."""
        expiry_s = self._groups.expiry_s
        while True:
            await asyncio.sleep(min(expiry_s / CHECKS, CHECK_S_MAX))
            for topic_filter in await self._desk.ask(ListIdleGroups(round(expiry_s * 1_000))):
                await self._end(topic_filter)

    async def _end(self, topic_filter: str) -> None:
        try:
            await destroy(topic_filter, store=self._groups.store, configuration=self._groups.configuration)
        except GaplessError as error:
            logger.warning("%s could not be ended, and is tried again: %s", topic_filter, error)
            return
        await self._desk.ask(ForgetGroup(topic_filter))
        logger.info("%s has ended: no session has subscribed it for %g s", topic_filter, self._groups.expiry_s)
