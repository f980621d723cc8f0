"""NodeLife: the life of a node that has a group store: counted there, and held until another process takes the name.

TakenName: a node's name, taken in the group store by one life of it at a time.

Three records hold the number of the newest life, its bits of chance, and when it took the name; whoever starts takes
the next number in one commit that expects what was read.  From then on it looks, again and again: where the store names
another life, that one is newer, and this one ends.  No clock decides who is newer, and nobody's safety rests on how
soon an older life looks: it delivers nothing after its own lease.

BytesInHand: how many bytes of messages a consumer has in hand, and whether it may read more.

In hand is what was fetched and is not acknowledged, whether the application has it yet or not.  What is acknowledged
says the session, so sizes are counted exactly, but only when the bound could be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from statemachines.drivers.clock import Clock
from statemachines.drivers.lives import Life, begin_life, last_number
from statemachines.drivers.node import NodeEnvironment
from statemachines.drivers.runtime import Runtime
from statemachines.drivers.shared_subscriptions.roles import PROTOCOL
from statemachines.drivers.shared_subscriptions.store import RecordDatabase, StoredPayload, size_of
from statemachines.kernel import ConfigurationError, Superseded, incarnation
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import Commit, Committed, Read, ReadDone, StoredRecord
from statemachines.shared_subscriptions.names import life_keys
from statemachines.shared_subscriptions.relaxed_order import find_held_again, find_low
from statemachines.shared_subscriptions.session_record import StreamReading

logger = logging.getLogger("gapless")

AGAIN_S: Final = 0.2
"""The pause before a store that failed is asked again."""

NUMBER_MAX: Final = 2**63 - 1
"""The store names no such life, nor a later one: the next would have no number."""

NOBODY: Final = 0
"""The bits of a life that has ended in good order."""


class NewestLife(NamedTuple):
    """What the store says of a name: the `number` and the `bits` of its newest life, as records (None: there was
    never one), the store's time when that one took the name (0: nobody knows), and the store's time."""

    number: StoredRecord | None
    bits: StoredRecord | None
    taken_ns: int
    time_ns: int

    @property
    def life(self) -> tuple[int, int]:
        """Number and bits; 0: none."""
        number = value_of(self.number)
        return number if 0 <= number < NUMBER_MAX else 0, value_of(self.bits)


def value_of(record: StoredRecord | None) -> int:
    """What one of the two records says."""
    return record.value if record is not None and isinstance(record.value, int) else 0


class TakenName:
    """`groups`: the store that names the newest life of `node`; `bits`: of our own; `clock`: the steady one."""

    def __init__(
        self, groups: RecordDatabase, node: str, bits: int, configuration: Configuration, clock: Clock
    ) -> None:
        assert bits != NOBODY
        self.number = 0
        self._groups = groups
        self._node = node
        self._bits = bits
        self._keys = life_keys(node)
        self._validity_ns = configuration.validity_ms * MS
        self._look_s = configuration.ping_interval_ms / 1_000
        self._clock = clock

    async def take(self, above: int) -> int:
        """The number of our life, greater than `above` and than that of any life that the store knows.

        A name that was taken less than a validity ago, and not given back, is waited for: two processes that are both
        started again and again under one name shall not end each other at full speed.
        """
        while True:
            found = await self._read()
            if found.life[0] == self.number and found.life[1] == self._bits:
                return self.number  # the commit whose outcome was open
            await self._wait_for_turn(found)
            self.number = max(above, found.life[0]) + 1
            if await self._put(found, self.number, self._bits):
                return self.number

    async def hold(self) -> None:
        """Until the store names another life; raises `Superseded` then."""
        while True:
            await asyncio.sleep(self._look_s)
            found = await self._read()
            number, bits = found.life
            if number > self.number or (number == self.number and bits not in (self._bits, NOBODY)):
                newer = incarnation(self._node, number, bits)
                rule = f"{newer} is the newer life of {self._node}, and this one ends; give each process its own name"
                raise Superseded(rule)
            if (number, bits) != (self.number, self._bits):
                logger.warning("%s: the store knew nothing of this life any more; it does again", self._node)
                await self._put(found, self.number, self._bits)

    async def give_back(self) -> None:
        """Nobody waits for this life any more; where the store does not answer at once, somebody may."""
        found = await self._read_once()
        if found is not None and found.life == (self.number, self._bits):
            await self._put(found, self.number, NOBODY)

    # -- inside -------------------------------------------------------------------------------------------------

    async def _wait_for_turn(self, found: NewestLife) -> None:
        """Until the life that was found is a validity old, by the store's time, or has been seen for so long."""
        if found.number is None or found.life[1] == NOBODY:
            return
        age_ns = max(0, found.time_ns - found.taken_ns) if found.taken_ns else 0
        end_ns = self._clock() + self._validity_ns - age_ns
        if end_ns > self._clock():
            wait_s = (end_ns - self._clock()) / 1e9
            logger.warning("%s: the name was taken %.1f s ago; waiting %.1f s", self._node, age_ns / 1e9, wait_s)
        while (left_ns := end_ns - self._clock()) > 0:
            await asyncio.sleep(min(left_ns / 1e9, self._look_s))
            now = await self._read_once()
            if now is not None and now.life != found.life:
                return  # given back, or taken by another: look anew

    async def _put(self, found: NewestLife, number: int, bits: int) -> bool:
        """Whether it is committed; where that is open, the next look tells."""
        expect = tuple(zip(self._keys, (found.number, found.bits), strict=False))
        put = tuple(zip(self._keys, (number, bits, found.time_ns), strict=True))
        (answer,) = await self._groups.ask(Commit(1, expect, put))
        return isinstance(answer, Committed)

    async def _read(self) -> NewestLife:
        while (found := await self._read_once()) is None:
            await asyncio.sleep(AGAIN_S)
        return found

    async def _read_once(self) -> NewestLife | None:
        (answer,) = await self._groups.ask(Read(1, self._keys))
        if not isinstance(answer, ReadDone):
            return None
        number, bits, taken = answer.records
        return NewestLife(number, bits, value_of(taken), answer.time_ns)


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


LOOK_S: Final = 0.5
"""How often a consumer that may read nothing looks whether streams were taken from it."""

KEPT_MAX: Final = 1_024
"""Sizes of one stream, beyond which those of acknowledged messages are forgotten."""

IN_HAND_MAX: Final = 64 * 2**20
"""Bytes, unless the application says otherwise."""

FULL: Final = (
    "%s: %d bytes of messages are in hand, and %d may be (buffer_bytes): nothing more is read for %g s now; acknowledge"
    " what is done, or raise the bound"
)


class MessageSizes:
    """Of one stream and grant: sizes of messages from offset `first` on, summed up."""

    __slots__ = ("first", "grant", "sums")

    def __init__(self, grant: int, first: int) -> None:
        self.grant = grant
        self.first = first
        self.sums = [0]

    @property
    def end(self) -> int:
        """The offset behind the last message."""
        return self.first + len(self.sums) - 1

    def leave(self, end: int) -> None:
        """Messages from `end` on were given back, and come again."""
        del self.sums[end - self.first + 1 :]

    def forget(self, first: int) -> None:
        """Messages before `first` are acknowledged."""
        done = min(max(first - self.first, 0), len(self.sums) - 1)
        del self.sums[:done]
        self.first += done

    def between(self, first: int, end: int) -> int:
        """Bytes of messages `first`..`end` - 1, as far as they are known."""
        low, high = (min(max(at - self.first, 0), len(self.sums) - 1) for at in (first, end))
        return self.sums[max(low, high)] - self.sums[low]


class BytesInHand:
    """At most `most` bytes, and one message; `readings`: of the session, by key; `warning_s`: a consumer that reads
    nothing for so long says so."""

    def __init__(self, most: int, readings: Callable[[], Mapping[str, StreamReading]], warning_s: float) -> None:
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise ConfigurationError("buffer_bytes", most, "must be a number of bytes, at least 1")
        self.node = ""
        """For the log."""
        self._most = most
        self._readings = readings
        self._warning_s = warning_s
        self._sizes: dict[str, MessageSizes] = {}
        self._again: dict[tuple[str, int, int], int] = {}
        """Of messages that were given back while their stream went on, and were fetched again."""
        self._counted = 0
        """No less than what is in hand."""
        self._change: asyncio.Event | None = None
        """Somebody waits for it."""

    def put(self, key: str, grant: int, first: int, messages: list[StoredPayload]) -> None:
        """These were fetched, from offset `first` on."""
        known = self._sizes.get(key)
        if known is None or known.grant != grant or not known.first <= first <= known.end:
            known = self._sizes[key] = MessageSizes(grant, first)
        known.leave(first)
        before = known.sums[-1]
        known.sums += accumulate(map(size_of, messages), initial=known.sums.pop())
        self._counted += known.sums[-1] - before
        if len(known.sums) > KEPT_MAX:
            self._forget_done(key, known)

    def put_again(self, key: str, grant: int, first: int, messages: list[StoredPayload]) -> None:
        """A message was fetched again that was given back."""
        size = sum(map(size_of, messages))
        self._again[key, grant, first] = size
        self._counted += size

    def note_change(self) -> None:
        """Messages were acknowledged, or readings have ended."""
        if self._change is not None:
            self._change.set()

    async def wait_room(self) -> int:
        """Returns when there is room, and for how many bytes; there is always room for one message where nothing is in
        hand."""
        waited_s, warning_s = 0.0, self._warning_s
        while (room := self._find_room()) <= 0:
            self._change = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._change.wait()
                    waited_s, warning_s = 0.0, self._warning_s
                    continue
            waited_s += LOOK_S
            if waited_s >= warning_s:
                logger.warning(FULL, self.node, self._counted, self._most, waited_s)
                warning_s *= 2
        self._change = None
        return room

    def _find_room(self) -> int:
        if self._counted >= self._most:
            self._count()
        return self._most - self._counted

    def _forget_done(self, key: str, sizes: MessageSizes) -> None:
        reading = self._readings().get(key)
        if reading is not None and reading.grant == sizes.grant:
            sizes.forget(find_low(reading))

    def _count(self) -> None:
        """Exactly; what is acknowledged is forgotten."""
        readings, self._counted = self._readings(), 0
        for key, sizes in list(self._sizes.items()):
            reading = readings.get(key)
            if reading is None or reading.grant != sizes.grant or reading.progress >= sizes.end:
                del self._sizes[key]
                continue
            sizes.forget(find_low(reading))
            self._counted += sizes.between(reading.progress, reading.fetched)
            self._counted -= sum(sizes.between(first, last + 1) for first, last in reading.acked.items())
            self._counted -= sum(sizes.between(at, at + 1) for at in reading.returned)
        living = find_held_again(readings)
        self._again = {one: size for one, size in self._again.items() if one in living}
        self._counted += sum(self._again.values())
