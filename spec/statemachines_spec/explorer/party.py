"""Party: a node as the explorer knows it: the record of a shipped machine, and which of its timers are set.

A timer that was taken back never fires, unless the party is a `LateParty`: over a real event loop its firing may
already stand in a queue.  Then it may fire once more, at any time until it is set again or the node ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from statemachines.kernel import CancelTimer, Effect, Effects, Event, Fsm, SetTimer, TimerFired, name_of
from statemachines.kernel.pmap import enc_hook
from statemachines_spec.explorer.actor import Reaction, SeenStep, Timing, Watch
from statemachines_spec.explorer.symmetry import Names, rename_value

Timer = tuple[str, str]
"""(name, key of the child instance)"""

AT_ONCE = -(2**40)
"""What is left of a timed timer that was set for a moment that was there: it goes on before the next event, and no tick
happens before that."""


class Party(msgspec.Struct, frozen=True, gc=False):
    """One node; `timers` is sorted."""

    record: Any
    timers: tuple[Timer, ...] = ()

    def rename(self, names: Names) -> Party:
        """As `symmetry.rename_value` needs it: the timers are sorted again."""
        return Party(rename_value(self.record, names), tuple(sorted(rename_value(self.timers, names))))


class LateParty(Party, frozen=True, gc=False):
    """One node whose timers of before may still fire: those in `late`, sorted, were taken back."""

    late: tuple[Timer, ...] = ()

    def rename(self, names: Names) -> LateParty:
        """As that of `Party`."""
        timers = (tuple(sorted(rename_value(some, names))) for some in (self.timers, self.late))
        return LateParty(rename_value(self.record, names), *timers)


class TimedParty(Party, frozen=True, gc=False):
    """One node of a system with a tick.  `left`: for each of `timers` the ticks until its deadline (0 and below: it is
    due; None: it is not timed, and may fire at any moment)."""

    left: tuple[int | None, ...] = ()

    def rename(self, names: Names) -> TimedParty:
        """As that of `Party`; a timer keeps what is left of it."""
        pairs = sorted(zip(rename_value(self.timers, names), self.left, strict=True), key=lambda pair: pair[0])
        return _timed(rename_value(self.record, names), pairs)


class InternedParty:
    """A node that is one of many in its component, with its bytes, so that it is encoded once.  Two of equal bytes are
    equal."""

    __slots__ = ("_data", "_raw", "party", "record", "timers")

    def __init__(self, party: Party) -> None:
        self.party = party
        self.record = party.record
        self.timers = party.timers
        self._data = b""
        self._raw: msgspec.Raw | None = None

    @property
    def data(self) -> bytes:
        """Its bytes."""
        if not self._data:
            self._data = msgspec.msgpack.encode(self.party, enc_hook=enc_hook)
        return self._data

    @property
    def raw(self) -> msgspec.Raw:
        """Its bytes, as part of others."""
        if self._raw is None:
            self._raw = msgspec.Raw(self.data)
        return self._raw

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, InternedParty) and self.data == other.data)

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return repr(self.party)

    def rename(self, names: Names) -> InternedParty:
        """As `symmetry.rename_value` needs it."""
        return InternedParty(rename_value(self.party, names))

    def __reduce__(self) -> tuple[type[InternedParty], tuple[Party]]:
        return InternedParty, (self.party,)


class PartyInput(Event, frozen=True, gc=False):
    """Something happens by itself to a party of a process, such as the firing of a timer."""

    party: str
    event: Any


class LateFiring(Event, frozen=True, gc=False):
    """A timer that was taken back fires all the same."""

    timer: str
    key: str


def begin(
    fsm: Fsm[Any], record: Any, late: bool = False, now_ns: int = 0, timing: Timing | None = None
) -> Party:  # fmt: skip
    """A node that has just been made: the timers of its first state are set."""
    if timing is not None:
        return _apply_effects(timing, timing.move_stamps(record, 0), {}, fsm.start(record, timing.now_ns))
    timers = _timers((), fsm.start(record, now_ns))
    return LateParty(record, timers) if late else Party(record, timers)


def list_firings(
    fsm: Fsm[Any], party: Party | InternedParty, silent: frozenset[str], timing: Timing | None = None
) -> Iterator[Event]:  # fmt: skip
    """The firing of each timer that is set, or was taken back and is not quite gone; of timed ones that which is due
    first, and those that may be late; while one of them must not wait, nothing else."""
    party = party.party if isinstance(party, InternedParty) else party
    registry = fsm.timer_registry()
    if timing is not None and (first := first_due(timing, party)) is not None:
        yield registry[first[0]](first[1])
        return
    for name, key in party.timers if timing is None else _may_fire(timing, party):
        if name not in silent:
            yield registry[name](key)
    if isinstance(party, LateParty):
        for name, key in party.late:
            yield LateFiring(name, key)


def _may_fire(timing: Timing, party: Party) -> Iterator[Timer]:
    assert isinstance(party, TimedParty)
    due = list_due(party, timing.authority)
    first = next((timer for timer in due if timer[0] not in timing.late), None)
    for timer, left in zip(party.timers, party.left, strict=True):
        if left is None or timer == first or (timer in due and timer[0] in timing.late):
            yield timer


def fire_late(fsm: Fsm[Any], party: Party, event: LateFiring) -> tuple[Party, Event]:
    """The node without that firing in its queue, and what the machine takes."""
    assert isinstance(party, LateParty)
    rest = tuple(timer for timer in party.late if timer != (event.timer, event.key))
    return replace(party, late=rest), fsm.timer_registry()[event.timer](event.key)


def advance(
    fsm: Fsm[Any], party: Party, event: Event, name: str, watch: Watch | None = None, timing: Timing | None = None
) -> tuple[Party, list[Effect]]:
    """One step of the shipped machine: the node afterwards, and its effects without those on timers."""
    party, effects = step_party(fsm, party, event, name, watch, timing=timing)
    return party, [effect for effect in effects if not isinstance(effect, SetTimer | CancelTimer)]


def step_party(
    fsm: Fsm[Any],
    party: Party,
    event: Event,
    name: str,
    watch: Watch | None = None,
    now_ns: int = 0,
    timing: Timing | None = None,
) -> tuple[Party, Effects]:
    """One step of the shipped machine: the node afterwards, and all its effects."""
    now_ns = now_ns if timing is None else timing.now_ns
    armed = party.timers
    if isinstance(event, TimerFired):
        fired = (timer_of(fsm, event), event.key)
        armed = tuple(timer for timer in armed if timer != fired)
    record = party.record
    step = fsm.step(record, event, now_ns) if watch is None else _watched(fsm, name, record, event, now_ns, watch)
    if timing is not None:
        assert isinstance(party, TimedParty)
        left = {} if step.record.status in fsm.final else dict(zip(party.timers, party.left, strict=True))
        left = {timer: ticks for timer, ticks in left.items() if timer in armed}
        effects = () if step.record.status in fsm.final else step.effects
        return _apply_effects(timing, timing.move_stamps(step.record, 0), left, effects), step.effects
    timers = () if step.record.status in fsm.final else _timers(armed, step.effects)
    if isinstance(party, LateParty):
        return LateParty(step.record, timers, _late(party.late, armed, timers, step.effects)), step.effects
    return Party(step.record, timers), step.effects


# -- time -----------------------------------------------------------------------------------------------------------


def is_due(party: Party | InternedParty, timer: str) -> bool:
    """Whether the deadline of a timed timer of authority has been reached: it fires before anything else."""
    party = party.party if isinstance(party, InternedParty) else party
    if not isinstance(party, TimedParty):
        return False
    return any(
        name == timer and left is not None and left <= 0
        for (name, _), left in zip(party.timers, party.left, strict=True)
    )


def list_due(party: Party, authority: frozenset[str] = frozenset()) -> list[Timer]:
    """The timed timers whose deadlines have been reached: those of authority, what goes on at once, those that have
    patience, each class by deadline."""
    return [timer for _, timer in rank_due(party, authority)]


DueRank = tuple[bool, bool, int]
"""Which due timer fires first: by its class, whether it goes on at once, and how long it has been due."""


def rank_due(party: Party, authority: frozenset[str] = frozenset()) -> list[tuple[DueRank, Timer]]:
    """As `all_due`, each with its rank."""
    if not isinstance(party, TimedParty):
        return []
    pairs = zip(party.timers, party.left, strict=True)
    due = [
        ((timer[0] not in authority, left != AT_ONCE, left), timer)
        for timer, left in pairs
        if left is not None and left <= 0
    ]
    return sorted(due)


def first_due(timing: Timing, party: Party) -> Timer | None:
    """The timer that fires before anything else may happen here: one of authority, or what goes on at once."""
    ranked = rank_first(timing, party)
    return None if ranked is None else ranked[1]


def rank_first(timing: Timing, party: Party) -> tuple[DueRank, Timer] | None:
    """As `first_due`, with its rank."""
    for rank, timer in rank_due(party, timing.authority):
        comes_first = timer[0] in timing.authority or not rank[1]
        if comes_first and timer[0] not in timing.late:
            return rank, timer
    return None


def age_party(timing: Timing, party: Party, ticks: int, *, standing: bool = False) -> Party | None:
    """The node so many ticks later; None: time cannot pass, since a timer has to fire first.  For a process that stands
    still it can.  How long ago deadlines were does not matter, only which was first, unless a timer may be late."""
    aged = age_parties(((timing, party),), ticks, standing=standing)
    return None if aged is None else aged[0]


def age_parties(members: Sequence[tuple[Timing, Party]], ticks: int, *, standing: bool) -> list[Party] | None:
    """As `age_party`, for all nodes of one process: which deadline was first is known across them."""
    lefts: list[dict[Timer, int | None]] = []
    for timing, party in members:
        assert isinstance(party, TimedParty)
        left = dict(zip(party.timers, party.left, strict=True))
        if not standing and any(
            timed is not None and timed <= -timing.late.get(name, 0) for (name, _), timed in left.items()
        ):
            return None
        lefts.append({timer: None if timed is None else timed - ticks for timer, timed in left.items()})
    passed = (timed for left in lefts for timed in left.values())
    over = sorted({timed for timed in passed if timed is not None and timed <= 0}, reverse=True)
    aged: list[Party] = []
    for (timing, party), left in zip(members, lefts, strict=True):
        for timer, timed in left.items():
            if timed is not None and timed <= 0:
                late = 0 if standing else timing.late.get(timer[0], 0)
                left[timer] = max(timed, -late) if late else -over.index(timed)
        aged.append(_timed(timing.move_stamps(party.record, ticks), sorted(left.items())))
    return aged


def pass_time(timing: Timing | None, local: Any, ticks: int, *, standing: bool) -> Reaction | None:
    """What comes of `Passed` for a local state with a `party`; None: not yet."""
    if timing is None or local.party is None:
        return Reaction(local)
    party = age_party(timing, local.party, ticks, standing=standing)
    return None if party is None else Reaction(replace(local, party=party))


def waits(timing: Timing | None, fsm: Fsm[Any], party: Party, event: Event) -> bool:
    """Whether a due timer fires before this event is taken."""
    first = None if timing is None else first_due(timing, party)
    if first is None:
        return False
    return not isinstance(event, TimerFired) or (timer_of(fsm, event), event.key) != first


def fire_next(timing: Timing | None, fsm: Fsm[Any], party: Party | None) -> list[Event]:
    """The firing that comes before anything else (none: an empty list)."""
    first = None if timing is None or party is None else first_due(timing, party)
    return [] if first is None else [fsm.timer_registry()[first[0]](first[1])]


def clear_timers(party: Party) -> Party:
    """The node without its timers."""
    return replace(party, timers=(), left=()) if isinstance(party, TimedParty) else replace(party, timers=())


def timer_words(party: Party) -> Iterator[str]:
    """Its timers, for people."""
    lefts = party.left if isinstance(party, TimedParty) else (None,) * len(party.timers)
    for (name, key), left in zip(party.timers, lefts, strict=True):
        due = "" if left is None else f" in {left}" if left > 0 else " due"
        yield f"{name} {key}".strip() + due


def _apply_effects(timing: Timing, record: Any, left: dict[Timer, int | None], effects: Effects) -> TimedParty:
    """The node with what the effects set and take back."""
    for effect in effects:
        if isinstance(effect, SetTimer):
            left[effect.timer, effect.key] = _ticks(timing, effect)
        elif isinstance(effect, CancelTimer):
            left.pop((effect.timer, effect.key), None)
    return _timed(record, sorted(left.items()))


def _ticks(timing: Timing, effect: SetTimer) -> int | None:
    """What is left of a timer that is set now."""
    if effect.timer not in timing.timers:
        return None
    ticks = timing.ticks_until(effect.deadline_ns)
    return AT_ONCE if ticks <= 0 and effect.timer not in timing.late else ticks


def _timed(record: Any, pairs: list[tuple[Timer, int | None]]) -> TimedParty:
    return TimedParty(record, tuple(timer for timer, _ in pairs), tuple(left for _, left in pairs))


def _late(
    late: tuple[Timer, ...], armed: tuple[Timer, ...], timers: tuple[Timer, ...], effects: Effects
) -> tuple[Timer, ...]:
    """Those that were armed before and taken back now, beside those of before; not one that is set again."""
    taken = {(one.timer, one.key) for one in effects if isinstance(one, CancelTimer)} & set(armed)
    return tuple(sorted((taken | set(late)) - set(timers)))


def _timers(timers: tuple[Timer, ...], effects: Effects) -> tuple[Timer, ...]:
    kept = set(timers)
    for effect in effects:
        if isinstance(effect, SetTimer):
            kept.add((effect.timer, effect.key))
        elif isinstance(effect, CancelTimer):
            kept.discard((effect.timer, effect.key))
    return tuple(sorted(kept))


def timer_of(fsm: Fsm[Any], event: TimerFired) -> str:
    """The name of the timer that fires so; raises `KeyError` where there is none."""
    for name, kind in fsm.timer_registry().items():
        if kind is type(event):
            return name
    raise KeyError(f"{fsm.name} has no timer that fires {name_of(type(event))}")


def _watched(fsm: Fsm[Any], name: str, before: Any, event: Event, now_ns: int, watch: Watch) -> Any:
    """The step, written down; one that raises leaves a line without a record after it."""
    took = name_of(type(event))
    status, full = str(before.status.value), fsm.full_name
    seen = SeenStep(name, fsm.name, "", took, status, "", -1, "", fsm, event, before, None, full, now_ns)
    try:
        step = fsm.step(before, event, now_ns)
    except Exception:
        watch.append(seen)
        raise
    dest = str(step.record.status.value)
    clause = fsm.lines[step.row].clause if step.row >= 0 else ""
    watch.append(replace(seen, dest=dest, row=step.row, clause=clause, after=step.record))
    for child in step.children:
        clause = cast(Fsm[Any], child.fsm).lines[child.row].clause if child.row >= 0 else ""
        came, went, fed = str(child.source.value), str(child.dest.value), name_of(type(child.event))
        full = child.full_machine
        watch.append(
            SeenStep(name, child.machine, child.instance, fed, came, went, child.row, clause, full_machine=full)
        )
    return step
