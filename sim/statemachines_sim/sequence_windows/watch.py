"""Watch: the properties of sequence windows, judged in every run against what was really sent, lost, and arrived.

It takes part in nothing: processes say what happens at their network and their windows, the network what it loses.
Verdicts, joins, numbers and advisories are what is judged; no record of a machine is asked.

Books: what was sent, what arrived where, and what the network lost, as only the simulator knows it.

A message is known by its ordinal among those of its publisher and subject; no number is looked at.

Memory: which subjects a window must remember, reckoned anew from the words of the protocol's page.

It shares nothing with the machines: two sets of subjects, when the window turned last, and how much is in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statemachines.kernel import BrokenProperty, Event, Message
from statemachines.sequence_windows.late_join import Join, Joining
from statemachines.sequence_windows.loss_notifier import Advisory
from statemachines.sequence_windows.message import Judged, Verdict
from statemachines.sequence_windows.properties.advised_losses import AdvisedLosses
from statemachines.sequence_windows.properties.heard_messages import (
    ArrivedMessage,
    HeardMessages,
    judge_answered,
    judge_join,
    judge_limit,
    remember_publisher,
)
from statemachines.sequence_windows.properties.names import DETECT, NOTIFY
from statemachines.sequence_windows.properties.published_numbers import PublishedNumbers
from statemachines.sequence_windows.publisher_window import Exhausted, Stamped
from statemachines.sequence_windows.sequence import frame_at, frame_of
from statemachines_sim import cluster
from statemachines_sim.cluster import SimCluster
from statemachines_sim.judge import Judge
from statemachines_sim.local_clock import PPM
from statemachines_sim.node_life import NodeLife
from statemachines_sim.sequence_windows.carried_message import Carried
from statemachines_sim.sequence_windows.operator import NAME
from statemachines_sim.sequence_windows.section import LIMITS, WindowSection
from statemachines_sim.units import S


class WindowMemory:
    """`size` bytes, of `overhead` and the subject each; it turns after `time_ns` of the host's own clock."""

    def __init__(self, size: int, time_ns: int, overhead: int, now_ns: int) -> None:
        self._size = size
        self._time_ns = time_ns
        self._overhead = overhead
        self._turned_ns = now_ns
        self._current: set[str] = set()
        self._old: set[str] = set()
        self._frame = self._old_frame = self.floor = 0

    def __contains__(self, subject: str) -> bool:
        return subject in self._current or subject in self._old

    def touch(self, subject: str, frame: int = 0) -> None:
        """Something came of it, or was sent on it."""
        self._frame = max(self._frame, frame)
        self._old.discard(subject)
        self._current.add(subject)

    def drop(self, subject: str) -> None:
        """It is not remembered any more."""
        self._old.discard(subject)
        self._current.discard(subject)

    def tick(self, now_ns: int) -> Iterable[str]:
        """The host looks at its window; the subjects that it forgets by that."""
        kept = sum(self._overhead + len(subject) for subject in (*self._current, *self._old))
        if now_ns - self._turned_ns <= self._time_ns or kept <= self._size:
            return ()
        forgotten, self._old, self._current = self._old, self._current, set()
        self._turned_ns = now_ns
        self.floor = max(self.floor, self._old_frame + 1)
        self._old_frame = self._frame
        return sorted(forgotten)


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
        self.since: dict[str, int] = {}
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


DRIFT_PPM = 200
"""Of the clocks of receivers, at most: a second of theirs may be so much longer."""
WAIT_NS = S * PPM // (PPM - DRIFT_PPM) + 1
OF_PUBLISHER, OF_RECEIVER = 48, 128
"""Bytes of a subject, its name apart."""
CLOSING_NS = S
"""So long after everything has healed each publisher sends once more."""
QUIET_NS = 3 * S
"""And so much later nothing is on its way any more that could be."""
COUNTED = (
    "published", "delivered", "lost", "told", "unknown", *LIMITS, "before_first", "unwanted",
    "repeated", "not_subscribed", "verified", "unverified", "advisories", "exhausted", "displaced",
)  # fmt: skip
"""What a run counts.  Each of the messages that were `lost` (to one receiver) is one of those in the rest of its line,
in the end: told exactly, within an unknown loss, hidden by a limit, before the first that was heard at all, or not
wanted when it was lost."""
NEVER = 1 << 62
"""An ordinal that nobody reaches."""
FORGOTTEN, LAST, CYCLED = LIMITS


class LossWatch(cluster.Watch):
    """The properties of `spec/sequence_windows/properties.md`."""

    always_hears = False

    def __init__(self, own: WindowSection, judge: Judge) -> None:
        super().__init__(judge)
        self.own = own
        self.speaking: dict[str, PublisherLife] = {}
        self.hearing: dict[str, ReceiverLife] = {}
        self.advised: dict[str, AdvisedLosses] = {}
        self._resumed: dict[str, int] = {}
        self._missing_of_stream: dict[str, tuple[int, Carried]] = {}
        self._dropped: dict[tuple[str, Place], dict[int, int]] = {}
        self._ended = False
        self._counts = dict.fromkeys(COUNTED, 0)

    def begin(self, world: SimCluster) -> None:
        self._world = world
        self._operator: Any = world.devices[NAME]

    def _report(self, broken: tuple[BrokenProperty, ...], where: str, *more: object) -> None:
        if self.judging:
            for one in broken:
                self.judge.report_broken(one.name, f"{' '.join(map(str, (where, *more)))}: {one.detail}")

    # -- publishers -----------------------------------------------------------------------------------------------

    def speak(self, process: NodeLife) -> None:
        """A publisher begins."""
        own, now_ns = self.own, process.local_now()
        memory = WindowMemory(own.pub_window_bytes, own.pub_window_s * S, OF_PUBLISHER, now_ns)
        self.speaking[process.life] = PublisherLife(memory)
        if own.bases_left:
            for subject in own.names:
                memory.touch(subject)

    def look_at_own_window(self, process: NodeLife) -> None:
        """A publisher looks whether its window turns."""
        one = self.speaking[process.life]
        for subject in one.memory.tick(process.local_now()):
            one.forget(subject)

    def publish(self, process: NodeLife, subject: str, told: Stamped) -> int:
        """A message is sent under this number; its ordinal."""
        one = self.speaking[process.life]
        one.memory.touch(subject)
        sent = one.of(subject)
        ordinal = sent.numbered.count
        numbered, broken = sent.numbered.observe(told.number, told.number)
        self._report(broken, process.life, subject)
        sent.numbered = numbered
        if told.frame not in sent.streams:
            sent.streams[told.frame] = SubjectStream(ordinal, self._operator.is_right(process))
        self._counts["published"] += 1
        return ordinal

    # -- receivers --------------------------------------------------------------------------------------------------

    def listen(self, process: Any, subjects: tuple[str, ...]) -> None:
        """A receiver begins, with these subjects subscribed."""
        own, now_ns = self.own, process.local_now()
        memory = WindowMemory(own.sub_window_bytes, own.sub_window_s * S, OF_RECEIVER, now_ns)
        ordered = self._world.scenario.network.fifo
        self.hearing[process.life] = ReceiverLife(memory, subjects, self._world.now, own.places, ordered=ordered)
        for subject in subjects:
            self.hearing[process.life].since[subject] = frame_at(process.wall())
        self.advised[process.life] = AdvisedLosses()

    def look_at_window(self, process: NodeLife) -> None:
        """A receiver looks whether its window turns."""
        one = self.hearing[process.life]
        for subject in one.memory.tick(process.local_now()):
            one.forget(subject)

    def subscribe(self, process: Any, subject: str, wanted: bool) -> None:
        """It subscribes a subject, or (not `wanted`) does no more."""
        one = self.hearing[process.life]
        if wanted:
            one.subscribed.add(subject)
            one.since[subject] = frame_at(process.wall())
        else:
            one.subscribed.discard(subject)
            one.memory.drop(subject)
            one.forget(subject)

    def converge(self, process: NodeLife, at_ns: int) -> None:
        """It is told of a convergence at this true time."""
        one = self.hearing.get(process.life)
        if one is not None:
            one.converged_at = max(one.converged_at, at_ns)

    def hit(self, kind: str, node: str, sender: str, to: str, message: Message, now_ns: int) -> None:
        if kind != "drop" or not isinstance(message, Carried):
            return
        place = (message.publisher, message.subject)
        self._dropped.setdefault((node, place), {})[message.ordinal] = now_ns
        process = self._world.living(node)
        one = self.hearing.get(process.life) if process is not None else None
        if one is None:
            return  # who is dead misses nothing
        one.lost_at = now_ns
        line = one.line(place)
        line.lost[message.ordinal] = message.subject in one.subscribed
        self._counts["lost"] += 1

    def _note_dropped_before(self, one: ReceiverLife, node: str, place: Place, first: int) -> None:
        """What was on its way when a receiver died may reach its next life, which then misses what the network had lost
        behind it by that time."""
        line = one.line(place)
        for ordinal, at_ns in self._dropped.get((node, place), {}).items():
            if ordinal > first and ordinal not in line.lost:
                line.lost[ordinal] = place[1] in one.subscribed
                one.lost_at = max(one.lost_at, at_ns)
                self._counts["lost"] += 1

    def judge_message(self, process: NodeLife, carried: Carried, told: Judged) -> None:
        """A message reached a receiver, which says this of it."""
        one = self.hearing[process.life]
        place = (carried.publisher, carried.subject)
        line, wanted = one.line(place), carried.subject in one.subscribed
        sent = self.speaking[carried.publisher].of(carried.subject)
        before, ordinal = line.heard, carried.ordinal
        if before.arrived < 0:
            self._note_dropped_before(one, process.node, place, ordinal)
        missing = line.arrive(ordinal, sent.streams[carried.frame].begin)
        self._missing_of_stream[process.life] = (missing, carried)
        begins = carried.first == 1 and not carried.numbered_event.before
        cut, crowded = sent.cut_before(ordinal), carried.subject in one.crowded
        frame = frame_of(carried.numbered_event.before) or carried.frame
        awaited = frame >= max(one.since.get(carried.subject, 0), one.memory.floor)
        message = ArrivedMessage(ordinal, ordinal, line.count_missed(ordinal), cut, begins, wanted, crowded, awaited)
        heard, broken = before.observe(message, told)
        self._report(broken, process.life, *place)
        line.heard = heard
        self._counts["displaced"] += wanted and before.displaced
        self._count(line, before.arrived >= 0, carried, told)
        if not wanted:
            return
        one.memory.touch(carried.subject, carried.frame)
        one.speak(place)
        if told.lost:
            losses = ((carried.subject, told.known_lost),)
            self.advised[process.life] = self.advised[process.life].lose(losses, self._world.now)

    def end_message(self, process: NodeLife, carried: Carried) -> None:
        """The receiver has handled a message: something was said of it, and of what it showed."""
        said = self._missing_of_stream.get(process.life)
        answered = said is not None and said[1] is carried
        self._report(judge_answered(answered, carried.ordinal), process.life, carried.publisher, carried.subject)
        self.advised[process.life] = self.advised[process.life].settle_newest()

    def _count(self, line: ReceivedLine, heard: bool, carried: Carried, told: Judged) -> None:
        """What is said of losses that happened."""
        counts, verdict = self._counts, told.verdict
        if not told.is_delivered:
            counts["repeated" if verdict is Verdict.REPEAT else "not_subscribed"] += 1
            return
        counts["delivered"] += 1
        match verdict:
            case Verdict.SKIP:
                self._settle("unknown" if told.unknown else "told", line.settle(carried.ordinal))
            case Verdict.CYCLE:
                self._settle(CYCLED, line.settle(carried.ordinal))
            case Verdict.FIRST:
                hidden = FORGOTTEN if heard else "before_first"
                self._settle("unknown" if told.unknown else hidden, line.settle(carried.ordinal))

    def _settle(self, name: str, losses: list[bool]) -> None:
        """These losses are told, or hidden; what nobody wanted when it was lost is no loss that a limit hides."""
        told = name in ("told", "unknown")
        count = len(losses) if told else sum(losses)
        self._counts[name] += count
        self._counts["unwanted"] += len(losses) - count
        if count and name in LIMITS:
            self._report(judge_limit(name, self.own.only, count), "a run")

    # -- what is told -------------------------------------------------------------------------------------------------

    def tell(self, process: NodeLife, party: str, event: Event, now_ns: int) -> None:
        match event:
            case Joining(join):
                self._judge_join(process, join)
            case Advisory():
                self._judge_advisory(process, event)
            case Exhausted():
                self._counts["exhausted"] += 1
        if process.life in self.advised:
            self._judge_wait(process)

    def _judge_join(self, process: NodeLife, join: Join) -> None:
        """JOIN, where the network has kept what it assumes: since the convergence it has lost nothing on the way here,
        we have been there all the time, and the clock that the stream began by was right."""
        if join is not Join.VERIFIED:
            self._counts["unverified"] += 1
            return
        self._counts["verified"] += 1
        missing, carried = self._missing_of_stream[process.life]
        one = self.hearing[process.life]
        stream = self.speaking[carried.publisher].of(carried.subject).streams[carried.frame]
        settled = one.born <= one.converged_at and one.lost_at < one.converged_at and stream.right
        if settled or one.converged_at < 0:
            self._report(judge_join(join, missing), process.life, carried.publisher, carried.subject, carried.ordinal)

    def _judge_advisory(self, process: NodeLife, told: Advisory) -> None:
        self._counts["advisories"] += 1
        self._judge_wait(process)
        advised, broken = self.advised[process.life].observe(told, self._world.now, process.local_now(), S)
        self._report(broken, process.life)
        self.advised[process.life] = advised

    def _judge_wait(self, process: NodeLife) -> None:
        """NOTIFY: who stands still cannot advise, and does so as soon as it goes on."""
        advised = self.advised[process.life]
        if not process.is_paused:
            excused = self._resumed.get(process.node, 0)
            self._report(advised.judge_wait(self._world.now, WAIT_NS, excused), process.life)

    # -- lives ---------------------------------------------------------------------------------------------------------

    def fault(self, kind: str, node: str, now_ns: int) -> None:
        if kind == "resume":
            self._resumed[node] = now_ns

    def observe_death(self, process: NodeLife, now_ns: int) -> None:
        one = self.hearing.pop(process.life, None)
        self.advised.pop(process.life, None)
        if one is not None:
            self._end(one)

    def _end(self, one: ReceiverLife) -> None:
        """Nothing follows any more."""
        for _, line in sorted(one.lines.items()):
            self._settle(LAST, line.settle(NEVER))

    def missing(self, world: SimCluster) -> cluster.Missing | None:
        end = int(world.scenario.phases.safety_s * S) + CLOSING_NS + QUIET_NS
        if world.now < end or world.network.in_flight():
            return DETECT, "messages are still on their way"
        for _, process in sorted(world.processes.items()):
            advised = self.advised.get(process.life)
            if advised is not None and advised.since is not None:
                self._judge_wait(process)
                return NOTIFY, f"{process.life} waits for an advisory since {advised.since} ns"
        if not self._ended:
            self._ended = True
            for _, one in sorted(self.hearing.items()):
                self._end(one)
            only = self.own.only
            self._report(judge_limit(only, only, self._counts[only]) if only else (), "a run")
        return None

    def tally(self) -> dict[str, int]:
        return dict(self._counts)
