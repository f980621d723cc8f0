"""CircularQueue: many processes put, many get, through shared memory; any of them may die between any two accesses.

    with CircularQueue.create("jobs") as queue:        # in one process
        queue.put(b"a message")
    queue = CircularQueue.attach("jobs")               # in another one
    message = queue.get(timeout=1.0)

`put` and `get` wait, and raise what stopped them; `try_put` and `try_get` never wait, and name every outcome of the
machines (docs/queue.md).  What was acknowledged is delivered once, or was taken by a reader that died, and is counted.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from statemachines.cursor_recovery.block import length_of
from statemachines.cursor_recovery.memory import CELL, FREE, Queue
from statemachines.cursor_recovery.reader import ReadDone, ReadOutcome
from statemachines.cursor_recovery.writer import Outcome
from statemachines.drivers.cursor_recovery.attachment import Attachment, Instruments
from statemachines.drivers.cursor_recovery.bell import REMOVED, Bell, Patience, fifo_of, fifos_of
from statemachines.drivers.cursor_recovery.errors import (
    ClosedQueue,
    Fenced,
    ForkedAmidOperation,
    GetTimeout,
    MessageTooLarge,
    MissingQueue,
    PutTimeout,
    SegmentError,
)
from statemachines.drivers.cursor_recovery.framing import Codec, split_messages
from statemachines.drivers.cursor_recovery.owner import check_platform, removed_error
from statemachines.drivers.cursor_recovery.segment import attach_segment, create_segment, identity_of, path_of
from statemachines.drivers.cursor_recovery.stats import Stats, stats_of
from statemachines.drivers.cursor_recovery.turns import HELD, Turns

T = TypeVar("T")
R = TypeVar("R")
Taken: TypeAlias = tuple[int, bytes]
"""A message that is this process's: the position of its block, and what was put."""
WRITTEN, DELIVERED = Outcome.WRITTEN, ReadOutcome.DELIVERED
LOOKS, NAP_S = 3, 0.0001
"""A reader that finds nothing looks again so often, so many seconds apart, before it sleeps until it is woken: waking
costs both sides more, and a reader that is close behind a writer holds it up at every access."""
LOOK_FOR_REMOVAL_S = 0.1
"""Who only tries, and fails, looks so often whether the queue is still there."""
_ALL: weakref.WeakSet[CircularQueue[Any]] = weakref.WeakSet()


class Got(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What `try_get` came to: the `message` when DELIVERED; the `position` of its block when it was taken, else -1."""

    outcome: ReadOutcome
    message: T | None = None
    position: int = -1


class CircularQueue(Generic[T]):
    """This process's end of a queue.  Its threads take turns; each other process, forked ones too, has an end of its
    own.  Made by `create` or `attach`."""

    def __init__(self, name: str, path: Path, codec: type[T] | None, instruments: Instruments) -> None:
        self.name = name
        self.path = path
        self._skipped_before = 0
        self.discarded_messages = 0
        """Messages that this process had taken and lost, by age alone (`threshold_only`)."""
        self._codec: Codec[T] = Codec(codec)
        self._encode, self._decode = self._codec.encode, self._codec.decode
        self._is_plain = self._codec.is_plain
        self._instruments = instruments
        self._creator = 0
        self._turns = Turns()
        self._rest: deque[Taken] = deque()
        self._looked_s = 0.0
        self._sleepers: dict[asyncio.AbstractEventLoop, set[asyncio.Future[None]]] = {}
        self._closed = True  # until it is attached
        self._here: Attachment | None = None
        self._segment = attach_segment(path)
        try:
            check_platform(self._segment.queue)
            self._here = Attachment(self._segment, instruments)
        except BaseException:
            self._segment.close()
            raise
        self._closed = False
        _ALL.add(self)

    # -- made and unmade --------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        name: str,
        *,
        capacity: int = 1 << 20,
        read_cursors: int = 4,
        write_cursors: int = 4,
        threshold: float = 2.0,
        threshold_only: bool = False,
        codec: type[T] | None = None,
        directory: Path | None = None,
        instruments: Instruments | None = None,
    ) -> CircularQueue[T]:
        """Make a queue and attach to it; used as a context manager, it is removed in the end.

        `capacity`: bytes of the data area; `read_cursors`, `write_cursors`: how many may read or write at one moment;
        `threshold`: seconds after which a cursor's owner is suspected; `threshold_only`: and is then held for dead.
        Raises `ConfigurationError`, `ExistingQueue`, `NoRoomForQueue`.
        """
        queue = Queue(
            capacity=capacity,
            read_cursors=read_cursors,
            write_cursors=write_cursors,
            threshold_ns=round(threshold * 1e9),
            threshold_only=threshold_only,
        )
        check_platform(queue)
        path = path_of(name, directory)
        create_segment(path, queue)
        try:
            made = cls(name, path, codec, instruments or Instruments())
        except BaseException:
            cls.unlink(name, directory=directory)
            raise
        made._creator = os.getpid()
        return made

    @classmethod
    def attach(
        cls,
        name: str,
        *,
        codec: type[T] | None = None,
        directory: Path | None = None,
        instruments: Instruments | None = None,
    ) -> CircularQueue[T]:
        """Take part in a queue that somebody has made.

        Raises `MissingQueue`, `DamagedQueue`, `TooManyProcesses` (more than 256 at once).
        """
        return cls(name, path_of(name, directory), codec, instruments or Instruments())

    @staticmethod
    def unlink(name: str, *, directory: Path | None = None) -> None:
        """Remove a queue, whatever state it is in; those who are attached are told at their next call.

        Raises `MissingQueue` where there is nothing of that name.
        """
        path = path_of(name, directory)
        _tell_of_removal(path)
        fifos = fifos_of(path, identity_of(path))
        try:
            path.unlink()
        except FileNotFoundError:
            raise MissingQueue(path, "no such file", "a queue", "it may have been removed already") from None
        for fifo in fifos:
            fifo.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of it in this process; the queue stays.  Messages of a block that were not asked for yet are lost."""
        if hasattr(self, "_segment") and not self._segment.is_closed:
            self._closed = True
            self._in_turn(self._close)

    def _close(self) -> None:
        """Whatever of it was broken off is done the next time."""
        self._let_go()
        self._segment.close()

    def __enter__(self) -> CircularQueue[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if self._creator == os.getpid():
            try:
                self.unlink(self.name, directory=self.path.parent)
            except MissingQueue:
                return

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., CircularQueue[T]], tuple[str, type[T] | None, Path]]:
        """In another process: an end of its own of the same queue."""
        return _attach, (self.name, self._codec.of, self.path.parent)

    # -- put --------------------------------------------------------------------------------------------------------

    def try_put(self, message: T) -> Outcome:
        """Publish one message, if that can be done now."""
        return self._write(self._encode(message), 1)

    def put(self, message: T, timeout: float | None = None) -> None:
        """Publish one message; waits for room, at most `timeout` seconds (None: for ever).

        Raises `PutTimeout`, `MessageTooLarge`, `Fenced`.
        """
        payload: bytes = message if type(message) is bytes and self._is_plain else self._encode(message)  # type: ignore[assignment]
        outcome = self._write(payload, 1)
        if outcome is not WRITTEN:
            self._put_later(outcome, payload, 1, timeout)

    def try_put_many(self, messages: Sequence[T]) -> Outcome:
        """Publish all of them in one block, or none; delivered, lost and counted together."""
        payload, count = self._codec.join(messages)
        return self._write(payload, count) if count else WRITTEN

    def put_many(self, messages: Sequence[T], timeout: float | None = None) -> None:
        """As `put`, all of them in one block; none is nothing to do."""
        payload, count = self._codec.join(messages)
        if count and (outcome := self._write(payload, count)) is not WRITTEN:
            self._put_later(outcome, payload, count, timeout)

    def _put_later(self, outcome: Outcome, payload: bytes, messages: int, timeout: float | None) -> None:
        """The first attempt came to `outcome`: wait, or say why it never will."""

        def attempt() -> Outcome | None:
            outcome = self._write(payload, messages)
            return None if outcome in (Outcome.FULL, Outcome.NO_CURSOR) else outcome

        if outcome in (Outcome.FULL, Outcome.NO_CURSOR):
            waited = self._wait("writers", attempt, timeout)
            if waited is None:
                raise PutTimeout(f"{self.path}: {outcome.value} for {timeout} s; the message was not written")
            outcome = waited
        self._raise_unless_written(outcome, len(payload) + (CELL if messages != 1 else 0))

    def _raise_unless_written(self, outcome: Outcome, size: int) -> None:
        if outcome is Outcome.OVERSIZE:
            raise MessageTooLarge(
                f"{self.path}: {length_of(size)} bytes with their header; the whole data area has "
                f"{self._segment.queue.capacity}: make a queue of a larger capacity"
            )
        if outcome is Outcome.FENCED:
            raise Fenced(f"{self.path}: slower than the threshold; whether the message is delivered is not known")

    # -- get --------------------------------------------------------------------------------------------------------

    def try_get(self) -> Got[T]:
        """The next message, if there is one now.

        Of a block of several the first; the others are this process's, and come with its next calls, without a look at
        shared memory.
        """
        one = self._take_left()
        if one is None:
            told = self._read()
            if (one := self._first_of(told)) is None:
                return Got(told.outcome, None, told.position)
        position, payload = one
        return Got(ReadOutcome.DELIVERED, self._decode(payload, position), position)

    def get(self, timeout: float | None = None) -> T:
        """The next message; waits for it, at most `timeout` seconds (None: for ever).  Raises `GetTimeout`."""
        one = self._take_left() if self._rest else None
        if one is None:
            told = self._read()
            if told.messages == 1 and told.outcome is DELIVERED:
                return told.payload if self._is_plain else self._decode(told.payload, told.position)  # type: ignore[return-value]
            one = self._first_of(told) or self._wait_for(self._arrived, timeout)
        position, payload = one
        return self._decode(payload, position)

    def try_get_many(self) -> Got[list[T]]:
        """The messages of the next block, or what is left of the present one."""
        one = self._take_left()
        if one is None:
            told = self._read()
            if (one := self._first_of(told)) is None:
                return Got(told.outcome, None, told.position)
        return Got(ReadOutcome.DELIVERED, self._with_the_rest(one), one[0])

    def get_many(self, timeout: float | None = None) -> list[T]:
        """As `get`, all messages of a block."""
        return self._block_arrived() or self._wait_for(self._block_arrived, timeout)

    async def aget(self, timeout: float | None = None) -> T:
        """As `get`, in an event loop; may be cancelled while it waits, and loses nothing then."""
        one = self._take_left() or self._first_of(self._read()) or await self._await_message(timeout)
        position, payload = one
        return self._decode(payload, position)

    def _take_left(self) -> Taken | None:
        """The next of what is left of a block: one step, so that no two threads take the same, and none finds nothing
        where it has just seen something."""
        try:
            return self._rest.popleft()
        except IndexError:
            return None

    def _first_of(self, told: ReadDone) -> Taken | None:
        """The first message of what was delivered is the caller's, the others whichever thread's asks next."""
        if told.outcome is not ReadOutcome.DELIVERED:
            return None
        if told.messages == 1:
            return told.position, told.payload
        first, *others = split_messages(told.payload, told.messages)
        self._rest.extend([(told.position, payload) for payload in others])
        return told.position, first

    def _with_the_rest(self, one: Taken) -> list[T]:
        taken = [one]
        while (one_more := self._take_left()) is not None:
            taken.append(one_more)
        return [self._decode(payload, position) for position, payload in taken]

    def _wait_for(self, attempt: Callable[[], R | None], timeout: float | None) -> R:
        """What it comes to in the end."""
        is_hasty = timeout is not None and timeout <= LOOKS * NAP_S
        found = (None if is_hasty else self._look_soon(attempt)) or self._wait("readers", attempt, timeout)
        if found is None:
            raise GetTimeout(f"{self.path}: no message for {timeout} s")
        return found

    def _look_soon(self, attempt: Callable[[], R | None]) -> R | None:
        """A few looks before sleeping, for what a writer that is at work writes meanwhile."""
        for _ in range(LOOKS):
            time.sleep(NAP_S)
            if (found := attempt()) is not None:
                return found
        return None

    def _arrived(self) -> Taken | None:
        return self._take_left() or self._first_of(self._read())

    def _block_arrived(self) -> list[T] | None:
        """A block that nobody has taken anything of does not go message by message."""
        one = self._take_left() if self._rest else None
        if one is None:
            told = self._read()
            if told.outcome is DELIVERED and told.messages > 1:
                return self._codec.split(told.payload, told.messages, told.position)
            one = self._first_of(told)
        return None if one is None else self._with_the_rest(one)

    # -- one operation ----------------------------------------------------------------------------------------------

    def _write(self, payload: bytes, messages: int) -> Outcome:
        """One write; the threads of this process take turns (see `turns`)."""
        frame = sys._getframe()
        turn = self._turns.cell
        if turn.setdefault(HELD, frame) is not frame:
            turn = self._turns.wait(frame, self._let_go)
        del frame  # or it would have itself among its variables
        here = None
        try:
            try:
                here = self._here or self._attach_again()
                outcome = here.write(payload, messages)
            except BaseException:
                if here is not None:
                    here.lock.close()  # one indivisible call: whatever else is cut short, nobody waits for us any more
                raise
        except BaseException as error:
            self._cut(here, error)
            del turn[HELD]
            raise
        del turn[HELD]
        if self._turns.is_awaited:
            self._turns.let_others()
        if outcome is not WRITTEN:
            if outcome is None:
                raise removed_error(self.path)
            if outcome is Outcome.FULL or outcome is Outcome.NO_CURSOR:
                self._look_for_removal()
        return outcome

    def _read(self) -> ReadDone:
        """One read; the threads of this process take turns."""
        frame = sys._getframe()
        turn = self._turns.cell
        if turn.setdefault(HELD, frame) is not frame:
            turn = self._turns.wait(frame, self._let_go)
        del frame  # or it would have itself among its variables
        here = None
        try:
            try:
                here = self._here or self._attach_again()
                told = here.read()
            except BaseException:
                if here is not None:
                    here.lock.close()
                raise
        except BaseException as error:
            self._cut(here, error)
            del turn[HELD]
            raise
        del turn[HELD]
        if self._turns.is_awaited:
            self._turns.let_others()
        if told.outcome is not DELIVERED:
            if told.outcome is ReadOutcome.DISCARDED:
                self.discarded_messages += told.messages
            self._look_for_removal()
        return told

    def _in_turn(self, act: Callable[[], R]) -> R:
        """Something that is no operation, while there is none."""
        frame = sys._getframe()
        turn = self._turns.cell
        if turn.setdefault(HELD, frame) is not frame:
            turn = self._turns.wait(frame, self._let_go)
        del frame  # or it would have itself among its variables
        try:
            return act()
        finally:
            del turn[HELD]

    def _attached(self) -> Attachment:
        return self._here or self._attach_again()

    def _attach_again(self) -> Attachment:
        """After a fork, and after an operation was cut."""
        if self._closed:
            raise ClosedQueue(f"{self.path}: the queue was closed in this process; attach again")
        if self._segment.mapped.closed:
            self._segment.map()
        self._here = here = Attachment(self._segment, self._instruments, self._skipped_before)
        return here

    def _cut(self, here: Attachment | None, error: BaseException) -> None:
        """An operation broke off: what it left behind is a dead owner's from now on."""
        if here is None:
            return
        if self._here is not here:
            raise ForkedAmidOperation(
                f"{self.path}: forked amid an operation, which goes on in the parent; this process may begin anew"
            ) from error
        self._let_go()

    def _let_go(self) -> None:
        """Once more, where it was broken off."""
        here = self._here
        if here is not None:
            here.end()
            self._skipped_before = here.skipped_bytes
            self._here = None

    @property
    def skipped_bytes(self) -> int:
        """Bytes that this process found to be no message: what writers left that died."""
        here = self._here
        return self._skipped_before if here is None else here.skipped_bytes

    def _forked(self) -> None:
        """In the child, at once: slot, mapping and messages are the parent's."""
        self._turns = Turns()
        self._rest.clear()
        self._sleepers = {}
        self._skipped_before = 0
        here, self._here = self._here, None
        if here is not None:
            here.forget()

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _look_for_removal(self) -> None:
        """It came to nothing: now and then, look whether the queue is still there."""
        now_s = time.monotonic()
        if now_s - self._looked_s > LOOK_FOR_REMOVAL_S:
            self._looked_s = now_s
            self._check_removed()

    def _check_removed(self) -> None:
        here = self._here
        if here is not None and here.is_removed:
            for bell in (here.readers_bell, here.writers_bell):
                bell.write()  # the byte that says so is for all who sleep
            raise removed_error(self.path)

    def _bell(self, side: str) -> Bell:
        here = self._here
        if here is None:
            here = self._in_turn(self._attached)
        return here.readers_bell if side == "readers" else here.writers_bell

    def _wait(self, side: str, attempt: Callable[[], R | None], timeout: float | None) -> R | None:
        """Attempt until something comes of it, asleep in between; None: not in time."""
        until_s = None if timeout is None else time.monotonic() + timeout
        patience = Patience()
        while True:
            bell = self._bell(side)
            bell.enter()
            try:
                bell.arm()
                result = attempt()
                sleep_s = self._sleep_s(patience, until_s, reads=side == "readers") if result is None else None
                if sleep_s is not None:
                    bell.sleep(sleep_s)
                    continue
            finally:
                bell.leave()
            if result is not None:
                self._hand_over(bell)
            return result

    async def _await_message(self, timeout: float | None) -> Taken:
        until_s = None if timeout is None else time.monotonic() + timeout
        patience = Patience()
        while True:
            bell = self._bell("readers")
            bell.enter()
            try:
                bell.arm()
                result = self._arrived()
                sleep_s = self._sleep_s(patience, until_s, reads=True) if result is None else None
                if sleep_s is not None:
                    await self._asleep(bell, sleep_s)
                    continue
            finally:
                bell.leave()
            if result is None:
                raise GetTimeout(f"{self.path}: no message for {timeout} s")
            self._hand_over(bell)
            return result

    def _sleep_s(self, patience: Patience, until_s: float | None, *, reads: bool = False) -> float | None:
        """How long to sleep now; None: no more.  A read that looked through a slice is followed by the next at once."""
        self._check_removed()
        here = self._here
        if reads and here is not None and here.has_looked:
            return 0.0 if until_s is None or time.monotonic() < until_s else None
        word = here.in_the_way if here is not None else FREE
        aged_in_s = here.seconds_until_aged(word) if word != FREE and here is not None else None
        sleep_s = patience.next_s(in_the_way=bool(word), aged_in_s=aged_in_s)
        if until_s is None:
            return sleep_s
        left_s = until_s - time.monotonic()
        return None if left_s <= 0 else min(sleep_s, left_s)

    def _hand_over(self, bell: Bell) -> None:
        """Whoever has waited, and got it, wakes the next one if there may be more."""
        here = self._here
        if here is not None:
            bell.hand_over(lambda: bool(self._rest) or here.has_more())

    async def _asleep(self, bell: Bell, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        sleepers = self._sleepers.setdefault(loop, set())
        if not sleepers:
            loop.add_reader(bell.fd, _wake, bell, sleepers)
        sleepers.add(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            sleepers.discard(future)
            if not sleepers:
                loop.remove_reader(bell.fd)
                self._sleepers.pop(loop, None)

    # -- what there is ----------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """The queue as it is now, word by word, while others go on.  Raises `DamagedQueue` where a guard is broken."""

        def look() -> Stats:
            here = self._attached()
            here.segment.check_guards()
            return stats_of(here)

        return self._in_turn(look)


def _wake(bell: Bell, sleepers: set[asyncio.Future[None]]) -> None:
    bell.drain()
    for future in sleepers:
        if not future.done():
            future.set_result(None)


def _attach(name: str, codec: type[T] | None, directory: Path) -> CircularQueue[T]:
    return CircularQueue.attach(name, codec=codec, directory=directory)


def _tell_of_removal(path: Path) -> None:
    """Mark the segment and wake everybody, if it is one."""
    try:
        segment = attach_segment(path)
    except (SegmentError, OSError):
        return
    for side in ("readers", "writers"):
        offsets = [segment.layout.offset_of(f"{side}_{word}") for word in ("wait", "asleep")]
        bell = Bell(fifo_of(path, segment.identity, side), *map(segment.words.cell_u64, offsets))
        bell.flag.store(REMOVED)
        bell.write()
        bell.close()
    segment.close()


def _forked() -> None:
    for queue in list(_ALL):
        queue._forked()


os.register_at_fork(after_in_child=_forked)
