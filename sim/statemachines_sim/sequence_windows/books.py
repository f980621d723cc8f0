"""Books: what was sent, what arrived where, and what the network lost, as only the simulator knows it.

A message is known by its ordinal among those of its publisher and subject; no number is looked at.
"""

from __future__ import annotations

from statemachines.sequence_windows.properties.heard_messages import HeardMessages, remember_publisher
from statemachines.sequence_windows.properties.published_numbers import PublishedNumbers
from statemachines_sim.sequence_windows.memory import WindowMemory

Place = tuple[str, str]
"""A publisher (its id, which is that of one life) and a subject."""


class ReceivedLine:
    """What a receiver has `heard` of a place.  `lost`: ordinals that the network lost on the way here, and nothing was
    said of yet, and whether its subject was subscribed then; `stream`: the ordinal with which the last stream began,
    `of_stream`: how many of its messages arrived."""

    __slots__ = ("heard", "lost", "of_stream", "stream")

    def __init__(self, ordered: bool) -> None:
        self.heard = HeardMessages(ordered=ordered)
        self.lost: dict[int, bool] = {}
        self.stream = -1
        self.of_stream = 0

    def arrive(self, ordinal: int, begin: int) -> int:
        """It has reached the host; how many of its stream, which began with `begin`, have not."""
        if begin != self.stream:
            self.stream, self.of_stream = begin, 0
        missing = ordinal - begin - self.of_stream
        if ordinal > self.heard.arrived:
            self.of_stream += 1
        return max(0, missing)

    def count_missed(self, ordinal: int) -> int:
        """How many were lost between the last that its application got and this one."""
        return sum(self.heard.delivered < one < ordinal for one in self.lost)

    def settle(self, ordinal: int) -> list[bool]:
        """Something is said of what was lost before this one, or nothing ever will be: whether each was wanted."""
        return [self.lost.pop(one) for one in sorted(self.lost) if one < ordinal]


class ReceiverLife:
    """One life of a receiver.  `born`: when it began; `converged_at`: the latest convergence that it was told of, in
    true time (-1: none); `lost_at`: when the network last lost something on the way here (-1: never); `places` for
    publishers of a subject (0: for all); `ordered`: messages do not overtake each other."""

    def __init__(
        self, memory: WindowMemory, subjects: tuple[str, ...], born: int, places: int = 0, *, ordered: bool = True
    ) -> None:
        self.places = places
        self.ordered = ordered
        self.spoke: dict[str, tuple[str, ...]] = {}
        self.crowded: set[str] = set()
        self.memory = memory
        self.subscribed = set(subjects)
        self.born = born
        self.lines: dict[Place, ReceivedLine] = {}
        self.converged_at = -1
        self.lost_at = -1

    def line(self, place: Place) -> ReceivedLine:
        """What it has heard of a place."""
        line = self.lines.get(place)
        if line is None:
            line = self.lines[place] = ReceivedLine(self.ordered)
        return line

    def speak(self, place: Place) -> None:
        """Something of it is remembered: who spoke longest ago may have to go for it."""
        publisher, subject = place
        self.spoke[subject], gone = remember_publisher(self.spoke.get(subject, ()), publisher, self.places)
        if gone:
            line = self.line((gone, subject))
            line.heard = line.heard.displace()
            self.crowded.add(subject)

    def forget(self, subject: str) -> None:
        """All that it knew of a subject."""
        self.spoke.pop(subject, None)
        self.crowded.discard(subject)
        for place, line in self.lines.items():
            if place[1] == subject:
                line.heard = line.heard.forget()


class SubjectStream:
    """A stream of a place: the ordinal of its first message, and whether the clock that it began by was right."""

    __slots__ = ("begin", "right")

    def __init__(self, begin: int, right: bool) -> None:
        self.begin = begin
        self.right = right


class SentNumbers:
    """What a publisher has sent on a subject.  `streams`: by their frames; `cuts`: the ordinals that were next when it
    forgot the subject, in order."""

    __slots__ = ("cuts", "numbered", "streams")

    def __init__(self) -> None:
        self.numbered = PublishedNumbers()
        self.streams: dict[int, SubjectStream] = {}
        self.cuts: list[int] = []

    def cut_before(self, ordinal: int) -> int:
        """The last of the cuts that is no later than a message (-1: none)."""
        return max((cut for cut in self.cuts if cut <= ordinal), default=-1)


class PublisherLife:
    """One life of a publisher."""

    def __init__(self, memory: WindowMemory) -> None:
        self.memory = memory
        self.sent: dict[str, SentNumbers] = {}

    def of(self, subject: str) -> SentNumbers:
        """What it has sent on a subject."""
        return self.sent.setdefault(subject, SentNumbers())

    def forget(self, subject: str) -> None:
        """What it sends next says nothing of what was before."""
        sent = self.of(subject)
        if sent.numbered.count not in sent.cuts:
            sent.cuts.append(sent.numbered.count)
