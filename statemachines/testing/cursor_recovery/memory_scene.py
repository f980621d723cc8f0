"""MemoryScene: one operation over a shared memory, which others change meanwhile, as far as the operation can tell.

    scene = MemoryScene(READER, new_reader(QUEUE, 0, 1), (Read(),), memory, (Meanwhile(Store(READ_HEAD, 20)),))
    scene.list_inputs(record)                                  # every answer that the memory may give in this state

The memory is the pure service.  At any moment each change of others may happen, once.  All that can come of it is
tabulated: for each record the answers that follow.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import Any

import msgspec

from statemachines.cursor_recovery.memory import Memory, Store
from statemachines.kernel import Ask, Event, Fsm, Map, Request

Words = Map[str, int]


class Meanwhile(msgspec.Struct, frozen=True):
    """What others do between two accesses of ours, at once."""

    requests: tuple[Request, ...]


class Moment(msgspec.Struct, frozen=True):
    """The `record`, what it has asked, the memory, and the changes that are still to come."""

    record: Any
    asked: Request | None
    words: tuple[tuple[str, int], ...]
    left: tuple[Meanwhile, ...]


class MemoryScene:
    """`record` of the machine `fsm`, told one of `calls`, over `words`, at `now_ns`; `others` may happen meanwhile."""

    def __init__(
        self,
        fsm: Fsm[Any],
        record: Any,
        calls: tuple[Event, ...],
        words: Words,
        others: tuple[Meanwhile, ...] = (),
        now_ns: int = 0,
    ) -> None:
        self.fsm = fsm
        self.record = record
        self.calls = calls
        self.memory = Memory(record.queue)
        self.now_ns = now_ns
        self._first = Moment(record, None, tuple(sorted(words.items())), others)

    def list_inputs(self, record: Any) -> tuple[Event, ...]:
        """What may be told in this state: the calls, or the answers; nothing where no run leads."""
        return self._answers.get(record, ())

    @cached_property
    def _answers(self) -> dict[Any, tuple[Event, ...]]:
        found: dict[Any, dict[Event, None]] = {}
        queue, seen = deque([self._first]), {self._first}
        while queue:
            for record, event, after in self._next(queue.popleft()):
                if event is not None:
                    found.setdefault(record, {})[event] = None
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
        return {record: tuple(events) for record, events in found.items()}

    def _next(self, moment: Moment) -> list[tuple[Any, Event | None, Moment]]:
        """What may happen at a moment, and the moments after that."""
        if moment.record.status in self.fsm.final:
            return []
        found: list[tuple[Any, Event | None, Moment]] = []
        for other in moment.left:
            words = Map(moment.words)
            for request in other.requests:
                words, _ = self.memory.apply(words, request, self.now_ns)
            left = tuple(one for one in moment.left if one is not other)
            after = Moment(moment.record, moment.asked, tuple(sorted(words.items())), left)
            found.append((moment.record, None, after))
        if moment.asked is None:
            return found + [self._feed(moment, event, moment.words) for event in self.calls]
        words, (answer,) = self.memory.apply(Map(moment.words), moment.asked, self.now_ns)
        return [*found, self._feed(moment, answer, tuple(sorted(words.items())))]

    def _feed(
        self, moment: Moment, event: Event, words: tuple[tuple[str, int], ...]
    ) -> tuple[Any, Event | None, Moment]:
        step = self.fsm.step(moment.record, event, 0)
        asked = next((effect.request for effect in step.effects if isinstance(effect, Ask)), None)
        return moment.record, event, Moment(step.record, asked, words, moment.left)


def play_accesses(fsm: Fsm[Any], record: Any, call: Event, words: Words, now_ns: int, accesses: int = 1_000) -> Words:
    """The memory after so many accesses of an operation that nobody disturbs: it ends, or dies there."""
    memory = Memory(record.queue)
    step = fsm.step(record, call, 0)
    for _ in range(accesses):
        asked = next((effect.request for effect in step.effects if isinstance(effect, Ask)), None)
        if asked is None:
            break
        words, (answer,) = memory.apply(words, asked, now_ns)
        step = fsm.step(step.record, answer, 0)
    return words


def change_words(before: Words, after: Words) -> Meanwhile:
    """The change of the memory from one state to another, at once."""
    return Meanwhile(tuple(Store(word, value) for word, value in sorted(after.items()) if before.get(word, 0) != value))
