"""Watch: the properties of sequence windows, judged in every run against what was really sent, lost, and arrived.

It takes part in nothing: processes say what happens at their network and their windows, the network what it loses.
Verdicts, joins, numbers and advisories are what is judged; no record of a machine is asked.
"""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Event, Message
from statemachines.sequence_windows.late_join import Join, Joining
from statemachines.sequence_windows.loss_notifier import Advisory
from statemachines.sequence_windows.message import Judged, Verdict
from statemachines.sequence_windows.publisher_window import Exhausted, Stamped
from statemachines_sim import cluster
from statemachines_sim.cluster import Cluster
from statemachines_sim.judge import Judge
from statemachines_sim.local_clock import PPM
from statemachines_sim.node_life import NodeLife
from statemachines_sim.sequence_windows.books import Hearing, Line, Place, Speaking, Stream
from statemachines_sim.sequence_windows.carried_message import Carried
from statemachines_sim.sequence_windows.memory import Memory
from statemachines_sim.sequence_windows.operator import NAME
from statemachines_sim.sequence_windows.owed_advisories import SECOND_NS, Owed, as_advised
from statemachines_sim.sequence_windows.recovery_watch import PROPERTIES as OF_RECOVERY
from statemachines_sim.sequence_windows.recovery_watch import RecoveryWatch
from statemachines_sim.sequence_windows.section import LIMITS, Section
from statemachines_sim.units import S

PROPERTIES = ("MONO", "ONCE", "EXACT", "NOFALSE", "DETECT", "CROWD", "JOIN", "THROTTLE", "NOTIFY", *OF_RECOVERY)
DRIFT_PPM = 200
"""Of the clocks of receivers, at most: a second of theirs may be so much longer."""
WAIT_NS = SECOND_NS * PPM // (PPM - DRIFT_PPM) + 1
CAP = 32_767
"""More than so many missing messages are told as so many."""
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
DELIVERED = (Verdict.FIRST, Verdict.NEXT, Verdict.SKIP, Verdict.CYCLE)
FORGOTTEN, LAST, CYCLED = LIMITS


class LossWatch(cluster.Watch):
    """The properties of `spec/sequence_windows/properties.md`."""

    always_hears = False

    def __init__(self, own: Section, judge: Judge) -> None:
        super().__init__(judge)
        self.own = own
        self.speaking: dict[str, Speaking] = {}
        self.hearing: dict[str, Hearing] = {}
        self.owed: dict[str, Owed] = {}
        self._resumed: dict[str, int] = {}
        self._missing_of_stream: dict[str, tuple[int, Carried]] = {}
        self._dropped: dict[tuple[str, Place], dict[int, int]] = {}
        self._ended = False
        self._counts = dict.fromkeys(COUNTED, 0)
        self.recovery = RecoveryWatch(own, self._check, lambda: self._world.now)

    def begin(self, world: Cluster) -> None:
        self._world = world
        self._operator: Any = world.devices[NAME]

    def _check(self, name: str, holds: bool, detail: str) -> None:
        if self.judging and not holds:
            self.judge.report_broken(name, detail)

    # -- publishers -----------------------------------------------------------------------------------------------

    def speak(self, process: NodeLife) -> None:
        """A publisher begins."""
        own, now_ns = self.own, process.local_now()
        memory = Memory(own.pub_window_bytes, own.pub_window_s * S, OF_PUBLISHER, now_ns)
        self.speaking[process.life] = Speaking(memory)
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
        number = (told.frame, told.first)
        self._check("MONO", number > sent.highest, f"{process.life} sends {number} of {subject} after {sent.highest}")
        ordinal, sent.count, sent.highest = sent.count, sent.count + 1, number
        if told.frame not in sent.streams:
            sent.streams[told.frame] = Stream(ordinal, self._operator.is_right(process))
        self.recovery.publish((process.life, subject), told.frame, told.first, ordinal)
        self._counts["published"] += 1
        return ordinal

    # -- receivers --------------------------------------------------------------------------------------------------

    def listen(self, process: NodeLife, subjects: tuple[str, ...]) -> None:
        """A receiver begins, with these subjects subscribed."""
        own, now_ns = self.own, process.local_now()
        memory = Memory(own.sub_window_bytes, own.sub_window_s * S, OF_RECEIVER, now_ns)
        self.hearing[process.life] = Hearing(memory, subjects, self._world.now, own.places)
        self.owed[process.life] = Owed()

    def look_at_window(self, process: NodeLife) -> None:
        """A receiver looks whether its window turns."""
        one = self.hearing[process.life]
        for subject in one.memory.tick(process.local_now()):
            one.forget(subject)

    def subscribe(self, process: NodeLife, subject: str, wanted: bool) -> None:
        """It subscribes a subject, or (not `wanted`) does no more."""
        one = self.hearing[process.life]
        if wanted:
            one.subscribed.add(subject)
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
        self.recovery.drop(process.life, message)  # type: ignore[union-attr]
        line = one.line(place)
        line.lost[message.ordinal] = message.subject in one.subscribed
        self._counts["lost"] += 1

    def _note_dropped_before(self, one: Hearing, node: str, place: Place, first: int) -> None:
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
        where = f"{process.life}: message {carried.ordinal} of {place}, last {line.delivered}: {told}"
        heard = line.arrived >= 0
        if not heard:
            self._note_dropped_before(one, process.node, place, carried.ordinal)
        missing = line.arrive(carried.ordinal, sent.streams[carried.frame].begin)
        self._missing_of_stream[process.life] = (missing, carried)
        self._judge_verdict(line, carried, told, wanted, sent.cut_before(carried.ordinal), where)
        if wanted and not line.known:
            self._judge_crowd(line, carried, told, carried.subject in one.crowded, where)
        self._count(line, heard, carried, told)
        if not wanted:
            return
        one.memory.touch(carried.subject)
        one.speak(place)
        line.known = True
        if told.verdict in DELIVERED:
            line.delivered = max(line.delivered, carried.ordinal)
            line.handed.add(carried.ordinal)
        if told.lost and not self.recovery.judges(process):
            self.owed[process.life].lose(carried.subject, told.lost, self._world.now)

    def end_message(self, process: NodeLife, carried: Carried) -> None:
        """The receiver has handled a message: something was said of it, and of what it showed."""
        said = self._missing_of_stream.get(process.life)
        where = f"{process.life} says nothing of message {carried.ordinal} of {carried.publisher} on {carried.subject}"
        self._check("DETECT", said is not None and said[1] is carried, where)
        self.owed[process.life].newest = None

    def end_turn(self, process: NodeLife) -> None:
        """A receiver that recovers has handled what was no message by itself."""
        self.owed[process.life].newest = None
        self.recovery.look(process)

    def _judge_verdict(self, line: Line, carried: Carried, told: Judged, wanted: bool, cut: int, where: str) -> None:
        verdict = told.verdict
        new = carried.ordinal > line.delivered
        missed = line.count_missed(carried.ordinal)
        if not wanted or verdict is Verdict.NOT_SUBSCRIBED:
            self._check("ONCE", (verdict is Verdict.NOT_SUBSCRIBED) is not wanted, where)
        elif not line.known:
            self._check("ONCE", verdict is Verdict.FIRST, where)
        elif not new or verdict is Verdict.REPEAT:
            late = not self._world.scenario.network.fifo and verdict in DELIVERED  # it was overtaken by a jump (SW-81)
            self._check("ONCE", not new and (late or verdict is Verdict.REPEAT), where)
        elif verdict is Verdict.SKIP:
            self._check("NOFALSE", missed > 0, where)
            self._check("EXACT", told.unknown or told.lost == min(missed, CAP), f"{where}, {missed} missed")
        elif verdict is Verdict.CYCLE:
            self._check("DETECT", not missed or line.delivered < cut, f"{where}, {missed} missed")
        else:
            self._check("DETECT", verdict is Verdict.NEXT and not missed, f"{where}, {missed} missed")
        self._check("ONCE", verdict not in DELIVERED or carried.ordinal not in line.handed, f"{where}, again")

    def _judge_crowd(self, line: Line, carried: Carried, told: Judged, crowded: bool, where: str) -> None:
        """Who was forgotten for others is told of; where nobody was, nobody is."""
        begins = carried.first == 1 and not carried.numbered_event.before
        self._check("CROWD", told.unknown or begins or not line.displaced, f"{where}, forgotten for others")
        self._check("NOFALSE", not told.unknown or crowded, f"{where}, and nobody was forgotten")
        self._counts["displaced"] += line.displaced

    def _count(self, line: Line, heard: bool, carried: Carried, told: Judged) -> None:
        """What is said of losses that happened."""
        counts, verdict = self._counts, told.verdict
        if verdict not in DELIVERED:
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
        if self.own.only and count and name in LIMITS:
            self._check("DETECT", name == self.own.only, f"{count} losses are hidden by {name}, not {self.own.only}")

    # -- what is told -------------------------------------------------------------------------------------------------

    def tell(self, process: NodeLife, party: str, event: Event, now_ns: int) -> None:
        match event:
            case Joining(join):
                self._judge_join(process, join)
            case Advisory():
                self._judge_advisory(process, event)
            case Exhausted():
                self._counts["exhausted"] += 1
        if process.life in self.owed:
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
            where = f"{process.life}: message {carried.ordinal} of {carried.publisher} {carried.subject}"
            self._check("JOIN", not missing, f"{where} is {join.value}, and {missing} of its stream are missing")

    def _judge_advisory(self, process: NodeLife, told: Advisory) -> None:
        owed, local_ns = self.owed[process.life], process.local_now()
        self._counts["advisories"] += 1
        early = owed.advised_ns >= 0 and local_ns - owed.advised_ns < SECOND_NS
        since = local_ns - owed.advised_ns
        self._check("THROTTLE", not early, f"{process.life} is advised again after {since} ns")
        found = (told.lost, told.subjects, told.listed)
        all_of_it, before = as_advised(owed.losses), as_advised(owed.without_newest())
        where = f"{process.life} is advised of {found}, and lost {all_of_it}"
        self._check("THROTTLE", found == all_of_it or (found == before and told.lost > 0), where)
        self._judge_wait(process)
        owed.settle(local_ns, self._world.now, found == all_of_it)

    def _judge_wait(self, process: NodeLife) -> None:
        """NOTIFY: who stands still cannot advise, and does so as soon as it goes on."""
        owed, now_ns = self.owed[process.life], self._world.now
        if owed.since < 0 or process.is_paused:
            return
        until = max(owed.since + WAIT_NS, self._resumed.get(process.node, 0))
        self._check("NOTIFY", now_ns <= until, f"{process.life} waits for an advisory since {owed.since} ns")

    # -- lives ---------------------------------------------------------------------------------------------------------

    def fault(self, kind: str, node: str, now_ns: int) -> None:
        if kind == "resume":
            self._resumed[node] = now_ns
            self.recovery.resume(node)

    def observe_death(self, process: NodeLife, now_ns: int) -> None:
        one = self.hearing.pop(process.life, None)
        self.recovery.observe_death(process)
        self.owed.pop(process.life, None)
        if one is not None:
            self._end(one)

    def _end(self, one: Hearing) -> None:
        """Nothing follows any more."""
        for _, line in sorted(one.lines.items()):
            self._settle(LAST, line.settle(NEVER))

    def missing(self, world: Cluster) -> cluster.Missing | None:
        end = int(world.scenario.phases.safety_s * S) + CLOSING_NS + QUIET_NS
        if world.now < end or world.network.in_flight():
            return "DETECT", "messages are still on their way"
        waits = self.recovery.end(process for _, process in sorted(world.processes.items()))
        if waits:
            return "SETTLED", waits
        for _, process in sorted(world.processes.items()):
            owed = self.owed.get(process.life)
            if owed is not None and owed.since >= 0:
                self._judge_wait(process)
                return "NOTIFY", f"{process.life} waits for an advisory since {owed.since} ns"
        if not self._ended:
            self._ended = True
            for _, one in sorted(self.hearing.items()):
                self._end(one)
            self._judge_sums(world)
            only = self.own.only
            self._check("DETECT", not only or self._counts[only] > 0, f"{only} hides nothing, and is to be shown")
        return None

    def _judge_sums(self, world: Cluster) -> None:
        for _, process in sorted(world.processes.items()):
            if self.recovery.judges(process) and process.alive:
                subscriber = process.subscriber  # type: ignore[attr-defined]
                self.recovery.judge_sum(process, subscriber.losses().lost_messages)

    def tally(self) -> dict[str, int]:
        return self._counts | (self.recovery.counts if self.own.recovery else {})
