"""SentMessages: what a publisher keeps of what it has sent, for receivers that missed some.

Which messages those are says the Cache of missed samples, one for each subject; the bytes are kept here.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from statemachines.drivers.sequence_windows.recovery_query import RecoveryQuery
from statemachines.kernel import ConfigurationError, Send
from statemachines.missed_samples.cache import CACHE, CacheQuery, CacheRecord, Published, Reply
from statemachines.missed_samples.selector import range_text

SOURCE, KEY = "publisher", "subject"
"""A Cache stands beside one publisher, and for one subject: their names are said elsewhere."""
OVERHEAD = 256
"""Bytes that a message takes beside its own, roughly."""


class KeptSubject:
    """The newest messages of a subject: the `record` of their Cache, and which numbers are here, the lowest first."""

    __slots__ = ("numbers", "record")

    def __init__(self, history: int) -> None:
        self.record = CacheRecord(SOURCE, KEY, history=history, places=1)
        self.numbers: deque[int] = deque()


class SentMessages:
    """The newest `history` messages of each subject; of all of them at most `bytes_max` bytes, beyond which those go
    that were sent first, and of at most `subjects_max` subjects, beyond which the one goes that was silent longest.
    `pushed_out` counts messages that went for one of both bounds."""

    def __init__(self, history: int, *, bytes_max: int = 64 << 20, subjects_max: int = 10_000) -> None:
        for key, value in (("history", history), ("history_bytes", bytes_max), ("history_subjects", subjects_max)):
            if value < 1:
                raise ConfigurationError(key, value, "at least 1")
        self.pushed_out = 0
        self.bytes = 0
        self._history = history
        self._bytes_max = bytes_max
        self._subjects_max = subjects_max
        self._subjects: OrderedDict[str, KeptSubject] = OrderedDict()
        self._sent: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def __len__(self) -> int:
        """How many messages are kept."""
        return len(self._sent)

    @property
    def subjects(self) -> int:
        """How many subjects are kept."""
        return len(self._subjects)

    def keep(self, subject: str, number: int, data: bytes) -> None:
        """Number `number` is about to be sent as these bytes."""
        kept = self._subjects.get(subject)
        if kept is None:
            kept = self._subjects[subject] = KeptSubject(self._history)
        self._subjects.move_to_end(subject)
        kept.record = CACHE.step(kept.record, Published(KEY, SOURCE, number, number, True), 0).record
        kept.numbers.append(number)
        self._sent[subject, number] = data
        self.bytes += len(data) + OVERHEAD
        (queue,) = kept.record.queues.values()
        self._drop_below(subject, kept, queue.kept[0][0])
        self._bound()

    def answer(self, query: RecoveryQuery) -> list[bytes]:
        """What it asks for, as far as it is here, in the order of the numbers."""
        kept = self._subjects.get(query.subject)
        if kept is None or not query.is_sound:
            return []
        asked = CacheQuery("", query.n, SOURCE, KEY, range_text(query.first, query.last))
        effects = CACHE.step(kept.record, asked, 0).effects
        said = [one.message for one in effects if isinstance(one, Send) and isinstance(one.message, Reply)]
        places = ((query.subject, number) for one in said for number in range(one.first, one.last + 1))
        return [self._sent[place] for place in places if place in self._sent]

    def _drop_below(self, subject: str, kept: KeptSubject, low: int) -> None:
        while kept.numbers[0] < low:
            self._forget(subject, kept.numbers.popleft())

    def _bound(self) -> None:
        while len(self._subjects) > self._subjects_max:
            subject, kept = self._subjects.popitem(last=False)
            self.pushed_out += len(kept.numbers)
            for number in kept.numbers:
                self._forget(subject, number)
        while self.bytes > self._bytes_max:
            subject, number = next(iter(self._sent))
            kept = self._subjects[subject]
            kept.numbers.popleft()
            self._forget(subject, number)
            self.pushed_out += 1
            if not kept.numbers:
                del self._subjects[subject]

    def _forget(self, subject: str, number: int) -> None:
        self.bytes -= len(self._sent.pop((subject, number))) + OVERHEAD
