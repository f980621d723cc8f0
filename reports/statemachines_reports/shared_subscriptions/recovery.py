"""Recovery: who was given which stream, and how long it took after a fault until every stream was given again.

A stream is served while its assignment is `granted`, and neither the leader that gave it nor the borrower that has it
is dead, paused, resigned or leaving.  A stream is live from its first grant on.  A fault disturbs if, while it lasts,
some live stream is not served; it is recovered from at the first moment in which every live stream is served again.
Which of two faults at a time disturbed is not asked: both did.

Page: what the page shows of shared subscriptions besides what it shows of any protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np

from statemachines.kernel import node_of
from statemachines_reports.columns import STEPS, Columns, Steps
from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.lookup import Lookup
from statemachines_reports.protocol import Chart, FaultColumns, Section, Segment, Story, Tables
from statemachines_reports.shared_subscriptions.account import ASSIGNMENT, BORROWER, LEADER, MEMBER

ENDS = {
    "restart": ("crash", "leader_crash", "kill"),
    "resume": ("pause", "long_pause", "sleep"),
    "end_twin": ("twin",),
    "end_forge": ("forge",),
    "end_partition": ("partition",),
    "end_loss": ("loss",),
    "end_duplicate": ("duplicate",),
    "end_reorder": ("reorder",),
    "end_hold_back": ("hold_back",),
    "end_store": ("store",),
    "end_slow_store": ("slow_store",),
    "end_store_cut": ("store_cut",),
    "end_slow_consumer": ("slow_consumer",),
}
"""What ends -> the kinds of faults that it ends; `heal` ends all."""

STANDS_STILL = ("pause", "sleep")
"""What a process may come back from before anybody has given it up."""

SILENCE = "silence"
"""A fault that no row tells of: a consumer's process takes no step any more, and its member lapses, or it is started
again."""

FATAL = ("crash", "lost_disk", "leader_crash", "kill", "unsubscribe", SILENCE)
FAULTS = (*(kind for kinds in ENDS.values() for kind in kinds), "unsubscribe", "lost_disk", SILENCE)


class ProcessLife(msgspec.Struct):
    """One life of a process: the rows of its first and last step; `consumes`: it has borrowers; `left`: the last of
    them ended in good order."""

    name: str
    first: int
    last: int
    consumes: bool = False
    left: bool = False


Lives = dict[str, list[ProcessLife]]
"""Node -> its lives, in order."""

OWNER_GONE = ("crash", "lost_disk", "kill", *ENDS["resume"], "unsubscribe", SILENCE)
"""After these the streams of a consumer fail over."""


class Recovery(msgspec.Struct, frozen=True):
    """One fault: whether it disturbed, and nanoseconds until every live stream was served again (None: undisturbed, or
    not until the run ended)."""

    run: int
    fault: str
    disturbed: bool
    value_ns: int | None


class FailOver(msgspec.Struct, frozen=True):
    """One stream that changed hands because its owner was gone: nanoseconds from that fault to the next grant that
    another borrower answered."""

    run: int
    cause: str
    value_ns: int


class PendingFault(msgspec.Struct):
    """A fault that is not over, or not recovered from."""

    fault: str
    node: str
    peer: str
    since_ns: int
    disturbed: bool = False


class LostService(msgspec.Struct, frozen=True):
    """A stream whose owner is gone, and nobody else has it yet."""

    instance: str
    owner: str
    cause: str
    since_ns: int


class Follow:
    """Follows one run: feed it grants, changes of assignments and faults in order; then look at what it found."""

    def __init__(self, run: int, lives: Lives) -> None:
        self.run = run
        self.recoveries: list[Recovery] = []
        self.fail_overs: list[FailOver] = []
        self._lives = lives
        self._owner: dict[str, str] = {}
        self._granted: dict[str, str] = {}
        self._held: dict[str, str] = {}
        self._live: set[str] = set()
        self._unserved: set[str] = set()
        self._dead: set[str] = set()
        self._paused: set[str] = set()
        self._resigned: set[str] = set()
        self._pending: list[PendingFault] = []
        self._lost: dict[str, LostService] = {}

    def grant(self, instance: str, borrower: str) -> None:
        """A leader sends a grant."""
        self._owner[instance] = borrower

    def change(self, t_ns: int, instance: str, event: str, dest: str) -> None:
        """An assignment changes its state."""
        stream = instance.partition(":")[2].rpartition("#")[0]
        if dest == "granted":
            self._take_over(t_ns, stream, instance)
        elif self._granted.get(stream) == instance:
            del self._granted[stream]
            lost = self._lost.get(stream)
            if lost is not None and lost.cause in STANDS_STILL and event != "release":
                del self._lost[stream]  # taken back in good order, by one that has woken up
        if dest in ("none", "revoked") and self._held.get(stream) == instance:
            del self._held[stream]
        self._look_at(stream)
        self._settle(t_ns)

    def fault(self, t_ns: int, row: int, fault: str, node: str, peer: str) -> None:
        """Something is done to a process, to the network or to the stores, or taken back."""
        if fault in FAULTS:
            gone = {life.name for life in self._lives.get(node, ()) if life.first <= row}
            if fault in FATAL:
                self._dead |= gone
            elif fault in STANDS_STILL:
                self._paused.add(node)
            if fault in OWNER_GONE:
                self._lose(t_ns, fault, gone)
            self._pending.append(PendingFault(fault, node, peer, t_ns))
        elif fault in ENDS or fault == "heal":
            self._end(fault, node, peer)
        for stream in self._live:
            self._look_at(stream)
        self._settle(t_ns)

    def resign(self, t_ns: int, leader: str) -> None:
        """A leader leads no more: what it gave is void."""
        self._resigned.add(leader)
        for stream in self._live:
            self._look_at(stream)
        self._settle(t_ns)

    def finish(self) -> None:
        """The run has ended."""
        for pending in self._pending:
            self.recoveries.append(Recovery(self.run, pending.fault, pending.disturbed, None))
        self._pending.clear()

    def _take_over(self, t_ns: int, stream: str, instance: str) -> None:
        self._granted[stream] = self._held[stream] = instance
        self._live.add(stream)
        lost = self._lost.get(stream)
        if lost is not None and lost.owner != self._owner.get(instance, ""):
            self.fail_overs.append(FailOver(self.run, lost.cause, t_ns - lost.since_ns))
            del self._lost[stream]

    def _lose(self, t_ns: int, fault: str, gone: set[str]) -> None:
        for stream, instance in self._held.items():
            owner = self._owner.get(instance, "")
            if life_of(owner) in gone:
                self._lost[stream] = LostService(instance, owner, fault, t_ns)

    def _end(self, end: str, node: str, peer: str) -> None:
        """A fault is over; one that disturbed nothing until now did not disturb."""
        if end == "resume":
            self._paused.discard(node)
            for stream, lost in list(self._lost.items()):
                standing = self._held.get(stream) == lost.instance
                if lost.cause in STANDS_STILL and standing and node_of(lost.owner) == node:
                    del self._lost[stream]  # it is back before anybody gave it up
        over = [
            one
            for one in self._pending
            if end == "heal" or (one.fault in ENDS[end] and (one.node, one.peer) == (node, peer))
        ]
        for pending in over if end == "heal" else over[:1]:
            if not pending.disturbed:
                self._pending.remove(pending)
                self.recoveries.append(Recovery(self.run, pending.fault, False, None))

    def _look_at(self, stream: str) -> None:
        instance = self._granted.get(stream)
        served = (
            instance is not None
            and self._is_there(instance.partition(":")[0])
            and self._is_there(self._owner.get(instance, ""))
        )
        if served or stream not in self._live:
            self._unserved.discard(stream)
        else:
            self._unserved.add(stream)

    def _is_there(self, party: str) -> bool:
        life, node = _names_of(party)
        return party not in self._resigned and life not in self._dead and node not in self._paused

    def _settle(self, t_ns: int) -> None:
        if self._unserved:
            for pending in self._pending:
                pending.disturbed = True
            return
        for pending in [one for one in self._pending if one.disturbed]:
            self._pending.remove(pending)
            self.recoveries.append(Recovery(self.run, pending.fault, True, t_ns - pending.since_ns))


@lru_cache(4_096)
def _names_of(party: str) -> tuple[str, str]:
    """The life and the node of a party."""
    return life_of(party), node_of(party)


def life_of(party: str) -> str:
    """The life of a process that a party is of: "consumer-1~1" of "consumer-1~1/2"."""
    return party.partition("/")[0]


def follow(segment: Segment) -> Iterator[Follow]:
    """Every run of a segment, followed to its end."""
    columns, steps, lookup = segment.columns, segment.steps, segment.lookup
    lives = _lives(steps)
    silent = _silences(columns, steps, lives)
    grants, faults = columns.rows_of("send", event=("grant",)), columns.rows_of("fault")
    events = (grants, _changes(steps, lookup), _resigned(steps), faults, np.array(list(silent), np.int64))
    kinds = np.repeat(np.arange(len(events)), [len(rows) for rows in events])
    rows = np.concatenate(events)
    order = np.lexsort((kinds, rows))
    kinds, rows = kinds[order], rows[order]
    for run, _ in columns.runs():
        here = slice(*np.searchsorted(columns["run"][rows], [run, run + 1]))
        followed = Follow(run, lives.get(run, {}))
        for kind, row in zip(kinds[here].tolist(), rows[here].tolist(), strict=True):
            _feed(followed, columns, kind, row, silent)
        followed.finish()
        yield followed


def _feed(followed: Follow, columns: Columns, kind: int, row: int, silent: dict[int, str]) -> None:
    def text(name: str) -> str:
        return columns.text(name, row)

    t_ns = int(columns["t_ns"][row])
    match kind:
        case 0:
            followed.grant(f"{text('instance')}:{text('key')}#{columns['grant'][row]}", text("peer"))
        case 1:
            followed.change(t_ns, text("instance"), text("event"), text("dest"))
        case 2:
            followed.resign(t_ns, text("instance"))
        case 3:
            followed.fault(t_ns, row, text("event"), text("node"), text("peer"))
        case _:
            followed.fault(t_ns, row, SILENCE, node_of(silent[row]), "")


def _changes(steps: Steps, lookup: Lookup) -> np.ndarray:
    """The rows in which an assignment changes its state."""
    changed = (steps.machine == lookup.machines.get(ASSIGNMENT, -1)) & (steps.source != steps.dest)
    return np.asarray(steps.index[changed])


def _resigned(steps: Steps) -> np.ndarray:
    """The rows in which a leader resigns."""
    index, columns = steps.index, steps.columns
    index = index[columns.is_one_of("machine", (LEADER,), index)]
    return np.asarray(index[columns.is_one_of("dest", ("resigned",), index)])


def _lives(steps: Steps) -> dict[int, Lives]:
    """Run -> the lives of its nodes."""
    texts = [*steps.columns.texts["instance"], ""]
    begins = np.flatnonzero(steps.first)
    ends = np.concatenate((begins[1:] - 1, [len(steps.order) - 1]))[: len(begins)]
    begins, ends = steps.order[begins], steps.order[ends]
    borrowers = steps.columns.is_one_of("machine", (BORROWER,), steps.index[begins])
    destroyed = steps.columns.is_one_of("dest", ("destroyed",), steps.index[ends])
    found: dict[tuple[int, str], ProcessLife] = {}
    for run, code, first, last, borrower, gone in zip(
        *(steps.run[begins].tolist(), steps.instance[begins].tolist()),
        *(steps.index[begins].tolist(), steps.index[ends].tolist(), borrowers.tolist(), destroyed.tolist()),
        strict=True,
    ):
        name = life_of(texts[code].partition(":")[0])
        life = found.setdefault((run, name), ProcessLife(name, first, last))
        life.first, life.last = min(life.first, first), max(life.last, last)
        if borrower:
            # A borrower that lost its leader is destroyed too, but another follows it.
            life.left = gone if not life.consumes else life.left and gone
            life.consumes = True
    lives: dict[int, Lives] = {}
    for (run, _), life in sorted(found.items(), key=lambda one: one[1].first):
        lives.setdefault(run, {}).setdefault(node_of(life.name), []).append(life)
    return lives


def _silences(columns: Columns, steps: Steps, lives: dict[int, Lives]) -> dict[int, str]:
    """Row of the last step of a life -> that life, for consumers that died though no row says so."""
    told = columns.rows_of("fault", event=FATAL)
    lapsed = _lapses(columns)
    found = {}
    for run, nodes in lives.items():
        end = int(np.searchsorted(columns["run"], run + 1))
        for node, some in nodes.items():
            for number, life in enumerate(some):
                until = some[number + 1].first if number + 1 < len(some) else end
                known = told[(told >= life.first) & (told < until)]
                if not life.consumes or life.left or columns.is_one_of("node", (node,), known).any():
                    continue
                if number + 1 < len(some) or lapsed.get((run, life.name), -1) > life.last:
                    found[life.last] = life.name
    return found


def _lapses(columns: Columns) -> dict[tuple[int, str], int]:
    """(run, life) -> the last row in which a member of its expired."""
    rows = columns.rows_of(*STEPS, event=("expiry_timer",), machine=(MEMBER,), dest=("lapsed", "gone"))
    return {
        (int(columns["run"][row]), life_of(columns.text("instance", row).partition(":")[2])): row
        for row in rows.tolist()
    }


NOTHING: Final = "\N{EN DASH}"
"""Stands where nothing was measured."""

CHARTS: Final = (
    Chart("Delivered again, of 1000 deliveries", "duplicates_per_delivered", lambda value: f"{1000 * value:.1f}"),
    Chart("Deliveries amid another's (S5)", "exclusivity", lambda value: f"{value:,.0f}"),
    Chart("Fail-over, p50", "failover_p50_ns", format_ns),
    Chart("Fail-over, p99", "failover_p99_ns", format_ns),
)

STORY: Final = Story(
    quiet=("ping", "ping_response", "update_progress"),
    machines=(BORROWER, LEADER, MEMBER),
    begins=(("the first member that lapsed", MEMBER, "lapsed"),),
    deaths=("leader_crash",),
    told={"deliver": "delivers"},
    title="What was delivered of {key}",
)

_HEADS: Final = (
    "scenario", "runs", "grants", "grant again", "revoke again", "revoked again", "again a grant",
    "messages delivered", "of them again", "delivered / acknowledged",
)  # fmt: skip


def show_resends(tables: Tables) -> Iterator[Section]:
    """What was sent again because nobody had answered, and delivered again because somebody was gone."""
    yield Section("What was sent again", _HEADS, [_resends(line) for line in tables["scenarios"]])


def _resends(line: dict[str, Any]) -> tuple[str, ...]:
    counted = [f"{line[name]:,}" for name in ("grants", "grant_again", "revoke_again", "revoked_again")]
    return (
        line["scenario"],
        str(line["runs"]),
        *counted,
        _ratio(line["again_per_grant"], "{:.3f}"),
        f"{line['delivered']:,}",
        _ratio(line["duplicates_per_delivered"], "{:.2%}"),
        _ratio(line["delivered_per_acknowledged"], "{:.4f}"),
    )


def _ratio(value: float | None, form: str) -> str:
    return NOTHING if value is None else form.format(value)


def show_recovery(tables: Tables) -> FaultColumns:
    """How many faults disturbed, how many were recovered from, and how long that took."""
    return FaultColumns(
        ("disturbed", "recovered", "p50", "p90", "p99", "max"),
        {line["fault"]: _recovery(line) for line in tables["recoveries"]},
        "Disturbed: while the fault lasted some stream had no living owner. Recovered: every stream had one again "
        "before the run ended; the times are from the fault to then, whatever other faults came in between.",
    )


def _recovery(line: dict[str, Any]) -> tuple[str, ...]:
    times = [line[f"{name}_ns"] for name in ("p50", "p90", "p99", "max")]
    counted = [f"{line[name]:,}" for name in ("disturbed", "recovered")]
    return (*counted, *(NOTHING if time is None else format_ns(time) for time in times))
