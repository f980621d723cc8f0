"""NodeLife: the life of a node that has a group store: counted there, and held until another process takes the name."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from statemachines.drivers.environment import NodeEnvironment
from statemachines.drivers.lives import Life, begin_life, last_number
from statemachines.drivers.runtime import Runtime
from statemachines.drivers.shared_subscriptions.roles import PROTOCOL
from statemachines.drivers.shared_subscriptions.store import RecordDatabase
from statemachines.drivers.shared_subscriptions.taken_name import TakenName
from statemachines.shared_subscriptions.configuration import Configuration

GIVE_BACK_S: Final = 1.0
"""A store that does not answer for so long keeps no node from ending."""


class GroupNodeLife:
    """`life`: what everything of this node is called by; `taken`: its name, if it has one that others may take."""

    def __init__(self, life: Life, taken: TakenName | None) -> None:
        self.life = life
        self._taken = taken
        self._holding: asyncio.Task[None] | None = None

    def hold(self, runtime: Runtime) -> None:
        """From now on, until `end`: a node whose name was taken cannot go on."""
        if self._taken is None:
            return
        self._holding = asyncio.ensure_future(self._taken.hold())

        def note_end(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                runtime.fail(error)

        self._holding.add_done_callback(note_end)

    async def give_back(self) -> None:
        """It ends in good order: whoever takes the name next need not wait."""
        if self._taken is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GIVE_BACK_S):
                    await self._taken.give_back()

    async def end(self) -> None:
        """Nobody looks any more."""
        if self._holding is not None:
            self._holding.cancel()
            await asyncio.gather(self._holding, return_exceptions=True)


async def begin_node_life(
    groups: RecordDatabase,
    environment: NodeEnvironment,
    configuration: Configuration,
    *,
    name: str | None,
    kind: str,
    state: Path,
    trace: Path | None,
    number: int | None,
) -> GroupNodeLife:
    """The next life of the node called `name`, or the only one of a name that is made now (None: of this `kind`).

    Waits for the group store, and for a name that was taken just now.
    """
    bits = environment.bits()
    if name is None or not bits:
        life = begin_life(name, state, trace, number, PROTOCOL, kind=kind, bits=bits, store=groups.identity)
        return GroupNodeLife(life, None)
    taken = TakenName(groups, name, bits, configuration, environment.steady_ns)
    count = await taken.take(last_number(state, name))
    life = begin_life(
        name, state, trace, number, PROTOCOL, kind=kind, life=count, bits=bits, store=groups.identity
    )  # fmt: skip
    return GroupNodeLife(life, taken)
