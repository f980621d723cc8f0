"""LeaderSteps: what single steps of a leader keep: what its members say counts, and what is over changes nothing.

LeaderStores: stores as a leader may meet them: with small pages, and with answers that come once more, and late.

Leader progress: no leader waits for nothing: for all that it is still to do a timer is set, or an answer is to come.

Each is the half of a liveness property that needs no waiting.  Where a store does not even fail, an answer is to come
for ever; so these say nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Answer, Event, in_order
from statemachines.shared_subscriptions.assignment import GRANTING, REVOKED, REVOKING
from statemachines.shared_subscriptions.claim import Halt, agrees, is_declared
from statemachines.shared_subscriptions.group_store import ReadDone, Refused, Scan, StoredRecord
from statemachines.shared_subscriptions.leader import IdleTimer
from statemachines.shared_subscriptions.leader_record import (
    CANDIDATE,
    CLAIMED,
    FOLLOWER,
    HOLDING,
    LOADING,
    LOOKING,
    RELEASING,
    SERVING,
    LeaderRecord,
)
from statemachines.shared_subscriptions.member import LAPSED, REGISTERED, ExpiryTimer
from statemachines.shared_subscriptions.message import END_OF_STREAM, Disconnect, UpdateProgress
from statemachines.shared_subscriptions.properties.delivery_right import assigns_in_grace
from statemachines.shared_subscriptions.stream_store import Measured
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.explorer.fsm_actor import FsmActor, FsmLocal
from statemachines_spec.explorer.property import Always, Property, Sometimes, Stepwise, View
from statemachines_spec.shared_subscriptions import stray_messages
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost, LeaderHostLocal
from statemachines_spec.shared_subscriptions.step_properties import leader_of
from statemachines_spec.shared_subscriptions.stores import FailingLocal, FailingStore, Store, StoreFailure, StoreLocal
from statemachines_spec.shared_subscriptions.succession import CandidateHost


class PagedStore(Store):
    """A group store that gives `page` records at a time, however many are asked for."""

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        asked = envelope.event
        if self.page and isinstance(asked, Scan):
            envelope = replace(envelope, event=replace(asked, limit=min(asked.limit, self.page)))
        return super().react(local, envelope, watch)


class Meddle(Event, frozen=True, gc=False):
    """Somebody else, another node or an operator, writes this record, or removes it."""

    key: str
    value: Any


class ConcurrentlyModifiedStore(FailingStore):
    """A group store in which somebody else writes these records, in this order, each at any time; it may fail, too."""

    def __init__(
        self, service: Any, *, meddles: tuple[Meddle, ...], hows: tuple[StoreFailure, ...] = (), **options: Any
    ) -> None:
        super().__init__(service, hows=hows, **options)
        self.meddles = meddles

    def inputs(self, local: StoreLocal) -> tuple[Any, ...]:
        return (*super().inputs(local), *self.meddles[local.appended : local.appended + 1])

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if not isinstance(event, Meddle):
            return super().react(local, envelope, watch)
        state, commits = local.state, local.commits + 1
        state = (
            state.delete(event.key) if event.value is None else state.set(event.key, StoredRecord(event.value, commits))
        )
        return Reaction(replace(local, state=state, commits=commits, appended=local.appended + 1))


class Again(Event, frozen=True, gc=False):
    """An answer that was given before arrives once more: who asked had given it up, or has had it."""

    answer: Envelope


class HauntedLocal(FailingLocal, frozen=True, gc=False):
    """As of any store; `said`: the last of its answers to each party, of each kind; `given`: how many."""

    said: tuple[Envelope, ...] = ()
    given: int = 0


class ReplayingStore(FailingStore):
    """A store whose answers may arrive once more at any time, as long as it has given no more than `most`.  `wrapped`:
    as an `Echo`, for hosts that count what is to come; `commits` before it begins."""

    def __init__(
        self,
        service: Any,
        *,
        most: int = 12,
        wrapped: bool = False,
        commits: int = 0,
        hows: tuple[StoreFailure, ...] = (),
        **options: Any,
    ) -> None:
        super().__init__(service, hows=hows, at_once=False, **options)
        self.most = most
        self.wrapped = wrapped
        self.commits = commits

    def initial(self) -> HauntedLocal:
        return HauntedLocal(self.state, self.commits)

    def inputs(self, local: StoreLocal) -> tuple[Any, ...]:
        assert isinstance(local, HauntedLocal)
        return (*super().inputs(local), *(Again(one) for one in local.said))

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Again):
            again = event.answer
            return Reaction(local, (), (replace(again, event=Echo(again.event)) if self.wrapped else again,))
        reaction = super().react(local, envelope, watch)
        if reaction is None:
            return None
        assert isinstance(reaction.local, HauntedLocal)
        answers = [one for one in reaction.sends if isinstance(one.event, Answer)]
        kept = {(one.to, type(one.event).__name__): one for one in (*reaction.local.said, *answers)}
        said = tuple(one for _, one in sorted(kept.items()))
        given = reaction.local.given + len(answers)
        return replace(reaction, local=replace(reaction.local, said=said, given=given))

    def within(self, local: StoreLocal) -> bool:
        assert isinstance(local, HauntedLocal)
        return local.given <= self.most and super().within(local)


class Echo(Event, frozen=True, gc=False):
    """An answer that was given before."""

    answer: Any


class HauntedHost(LeaderHost):
    """A leader host that hears answers once more: numbers of requests are what tells them apart, and stay as they
    are."""

    def react(self, local: LeaderHostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if not isinstance(envelope.event, Echo):
            return super().react(local, envelope, watch)
        heard = replace(envelope, event=envelope.event.answer)
        if local.party is None or heard.to != local.party.record.id:
            return Reaction(local)
        return super().react(replace(local, awaited=local.awaited + 1), heard, watch)

    def canonical(self, local: LeaderHostLocal) -> LeaderHostLocal:
        """Nothing is numbered anew."""
        return local


class HauntedNode(FsmActor):
    """A node that hears answers once more."""

    def react(self, local: FsmLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if isinstance(envelope.event, Echo):
            envelope = replace(envelope, event=envelope.event.answer)
        return super().react(local, envelope, watch)


class HauntedCandidate(HauntedHost, CandidateHost):
    """One that somebody asks as long as it has no leader."""


def _serving(local: Any) -> LeaderRecord | None:
    record = leader_of(local)
    return record if record is not None and record.status in SERVING else None


def is_heard(record: LeaderRecord) -> bool:
    """The leader has answered a ping of a member that it has."""
    return any(one.answered for _, one in in_order(record.members))


def _keeps(record: LeaderRecord, stream: str, progress: int) -> bool:
    """The leader goes by so much of the stream, or knows it no more."""
    known, assignment = record.streams.get(stream), record.assignments.get(stream)
    return known is None or max(known.progress, 0 if assignment is None else assignment.progress) >= progress


def _is_stored(record: LeaderRecord, stream: str, progress: int) -> bool:
    """As far as the leader knows, the stream has so many messages."""
    return stream in record.streams and progress <= record.streams[stream].count


def last_word_counts(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S11: who has said its last word is no member any more, and what it said counts."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None or not isinstance(event, Disconnect) or event.epoch != old.epoch:
        return True
    member = old.members.get(event.borrower)
    counts = member is None or all(
        _keeps(new, one.stream, one.progress)
        for one in event.reports
        if member.grants.get(one.grant) == one.stream and _is_stored(old, one.stream, one.progress)
    )
    return counts and event.borrower not in new.members


def progress_counts(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S10: what the owner of a stream has read, and is known to be stored, its leader goes by."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None or not isinstance(event, UpdateProgress):
        return True
    one, member = old.assignments.get(event.stream), old.members.get(event.borrower)
    owns = one is not None and (one.grant, one.link.borrower) == (event.grant, event.borrower)
    registered = member is not None and member.link.registration == event.registration and event.epoch == old.epoch
    if not (owns and registered and _is_stored(old, event.stream, event.progress)):
        return True
    return _keeps(new, event.stream, event.progress)


def is_stored_believed(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L8: nobody is given up for what the store bears out."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None or not isinstance(event, Measured):
        return True
    counts = {size.stream: size.count for size in event.sizes}
    asked = [(stream, held) for stream, held in in_order(old.held) if held.n == event.n]
    if any(held.progress > counts.get(stream, 0) for stream, held in asked):
        return True
    stay = {held.borrower for _, held in asked if held.borrower in old.members}
    stay = {one for one in stay if old.members[one].status is REGISTERED}
    return all(one in new.members and new.members[one].status is REGISTERED for one in stay) and all(
        _keeps(new, stream, held.progress) for stream, held in asked
    )


def is_needed_staying(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L8: a leader that has a member that it has heard does not end for being idle, nor is it asked again and again
    whether it is."""
    old, new = _serving(before), _serving(after)
    if old is None or not is_heard(old) or not isinstance(event, IdleTimer):
        return True
    return new is not None and ("idle", "") not in after.party.timers


def echo_changes_nothing(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S3: an answer to another request than those that were asked last, each of its kind, changes nothing."""
    if not isinstance(event, Echo) or getattr(before, "party", None) is None:
        return True
    return event.answer.n in _asked_last(before.party.record) or before == after


def own_claim_is_kept(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L6: who reads that the claim is still its own, and the root what it left or wrote, goes on."""
    old, new = leader_of(before), leader_of(after)
    if old is None or old.status not in CLAIMED or old.trial is None or not isinstance(event, ReadDone):
        return True
    if event.n != old.trial.check_n or old.claim is None:
        return True
    claim, root = (None if stored is None else stored.value for stored in event.records)
    left = None if old.root is None else old.root.value
    ours = claim == old.claim.value and root in (left, old.trial.root)
    return not ours or (new is not None and new.status in CLAIMED)


def is_lost_claim_left(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S3: who is refused since the claim is not its own any more does nothing else."""
    old = leader_of(before)
    if old is None or old.status not in HOLDING or old.trial is None or not isinstance(event, Refused):
        return True
    return event.n != old.trial.n or event.key != old.key("claim") or leader_of(after) is None


def is_halted_ending(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L6: a leader that its host stops is gone, or gives its claim up."""
    new = leader_of(after)
    return not isinstance(event, Halt) or new is None or new.status is RELEASING


def candidate_takes(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S1: a follower is a candidate again only to take the claim."""
    old, new = leader_of(before), leader_of(after)
    if old is None or new is None or old.status is not FOLLOWER or new.status is not CANDIDATE:
        return True
    return new.trial is not None


def other_times_are_refused(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S18: who reads that a group is not declared, or lives by other times, does not lead it."""
    old, new = leader_of(before), leader_of(after)
    if old is None or old.status not in LOOKING or not isinstance(event, ReadDone) or event.n != old.load_n:
        return True
    declared = is_declared(event.records[1]) and agrees(old.configuration, event.records[1])
    return declared or new is None


def lease_is_waited_for_if_any(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L9: a member that is given up, and had no ping answered, or no stream, is gone at once."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None:
        return True
    return not any(
        member.status is REGISTERED
        and not (member.answered and member.grants)
        and (new.members[name].status is LAPSED or (isinstance(event, ExpiryTimer) and event.key == name))
        for name, member in in_order(old.members)
        if name in new.members
    )


def is_ended_revoked(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L3: a stream that its owner has read to its end, as the store says too, is taken back."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None or not isinstance(event, UpdateProgress) or event.progress != END_OF_STREAM:
        return True
    one, member = old.assignments.get(event.stream), old.members.get(event.borrower)
    owns = one is not None and (one.grant, one.link.borrower) == (event.grant, event.borrower)
    registered = member is not None and member.link.registration == event.registration and event.epoch == old.epoch
    if not (owns and registered and event.stream in old.streams and old.streams[event.stream].ended):
        return True
    left = new.assignments.get(event.stream)
    return left is None or left.status is REVOKED


def _asked_last(record: Any) -> tuple[int, ...]:
    if not isinstance(record, LeaderRecord):
        return (record.n,)
    trial = () if record.trial is None else (record.trial.n, record.trial.check_n)
    return (record.load_n, record.list_n, record.measure_n, *trial)


STEPWISE: Final = (
    Stepwise("S11 last word", "who has said its last word is no member any more, and that counts", last_word_counts),
    Stepwise("S10 counts", "what the owner of a stream has read its leader goes by", progress_counts),
    Stepwise("L8 believed", "nobody is given up for what the store bears out", is_stored_believed),
    Stepwise("L8 needed", "a leader that hears a member does not end for being idle", is_needed_staying),
    Stepwise("L6 own", "who reads that the claim is still its own goes on", own_claim_is_kept),
    Stepwise("S3 lost", "who is refused since the claim is not its own ends at once", is_lost_claim_left),
    Stepwise("L6 halted", "a leader that its host stops is gone, or gives its claim up", is_halted_ending),
    Stepwise("S1 candidate", "a follower is a candidate again only to take the claim", candidate_takes),
    Stepwise("S18 refuses", "a group that is not declared so is not led by who reads that", other_times_are_refused),
    Stepwise("L9 at once", "who has no lease, or no stream, is gone as soon as it is given up",
             lease_is_waited_for_if_any),
    Stepwise("L3 ended", "a stream that was read to its end is taken back", is_ended_revoked),
)  # fmt: skip
ECHO: Final = Stepwise("S3 again", "an answer to a request that was given up changes nothing", echo_changes_nothing)


Waits = Callable[[LeaderRecord, set[tuple[str, str]], bool], bool]
"""(record, the timers that are set, whether an answer is to come) -> it waits for nothing that will not come."""


def promises(hosts: Iterable[str]) -> tuple[Property, ...]:
    """All of these, of all leaders."""
    hosts = tuple(hosts)
    return (*waits_for_something(hosts), *is_graced(hosts), *STEPWISE, *stray_messages.of_leaders(hosts))


def waits_for_something(hosts: Iterable[str]) -> tuple[Property, ...]:
    """Of all leaders, one property for each kind of thing that is to be done."""
    hosts = tuple(hosts)

    def views(waits: Waits) -> tuple[View, ...]:
        return tuple(View(host, 2, _holds(waits)) for host in hosts)

    return tuple(Always(f"{name} waits", text, views(waits), lambda *each: all(each)) for name, text, waits in PROMISES)


def is_graced(hosts: Iterable[str]) -> tuple[Property, ...]:
    """S5: nothing is assigned as long as the leader counts on leases from before; and sometimes somebody waits."""
    views = tuple(View(host, 3, _graced) for host in hosts)
    text = "while a lease from before may hold, nobody is assigned anything"
    return (Always("S5 grace", text, views, lambda *each: 2 not in each),)


def waits_in_grace(hosts: Iterable[str]) -> Sometimes:
    """Against a model without a grace: somebody is a member, and is given nothing yet."""
    views = tuple(View(host, 3, _graced) for host in hosts)
    return Sometimes("S5 graced", "a member waits for the leases of before", views, lambda *each: 1 in each)


def _graced(local: LeaderHostLocal) -> int:
    """0: no lease from before is waited for, or nobody is there; 1: somebody waits; 2: and has been assigned
    something."""
    record = None if local.party is None else local.party.record
    if record is None or not record.grace or record.status not in SERVING:
        return 0
    return 2 if assigns_in_grace(record) else int(bool(record.members))


def _holds(waits: Waits) -> Callable[[LeaderHostLocal], int]:
    def view(local: LeaderHostLocal) -> int:
        if local.party is None:
            return 1
        return int(waits(local.party.record, set(local.party.timers), local.awaited > 0))

    return view


def _has_end(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    return record.status not in HOLDING or ("claim_end", "") in timers


def _gets_claim(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """Who looks for the claim, or loads what stands under it, looks again or hears of it."""
    return record.status not in (CANDIDATE, FOLLOWER, LOADING) or answered or ("retry", "") in timers


def _keeps_claim(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """Who has it renews it; what became of a batch is found out."""
    if record.status not in CLAIMED:
        return True
    return ("heartbeat", "") in timers and (record.trial is None or answered or ("recheck", "") in timers)


def _ends_grace(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    return record.status not in CLAIMED or not record.grace or ("grace", "") in timers


def _looks(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    return record.status not in SERVING or answered or ("renew", "") in timers


def _commits(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """What is staged, or held, goes on; what was committed before is behind the next batch."""
    if record.status not in SERVING:
        return True
    staged = not record.staged or record.trial is not None or ("commit", "") in timers
    unasked = any(held.borrower and not held.n for _, held in in_order(record.held))
    judged = not record.measure_n or answered
    return staged and judged and (not unasked or answered or ("measure", "") in timers)


def _repeats(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """What somebody is to answer is said again; who is to give back has a time for it."""
    return record.status not in SERVING or all(
        (one.status not in (GRANTING, REVOKING, REVOKED) or ("resend", stream) in timers)
        and (one.status not in (REVOKING, REVOKED) or ("revoke_timeout", stream) in timers)
        for stream, one in in_order(record.assignments)
    )


def _releases(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """Who gives its claim up has asked for it, or asks when the batch under way is answered."""
    if record.status is not RELEASING:
        return True
    return answered or (record.trial is not None and not record.trial.release)


def _ends(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """A follower goes, and a leader that hears no member."""
    unneeded = record.status is FOLLOWER or (record.status in SERVING and not is_heard(record))
    return not unneeded or ("idle", "") in timers


PROMISES: tuple[tuple[str, str, Waits], ...] = (
    ("S3", "who holds a claim has its end by the own clock before it", _has_end),
    ("L6", "who looks for the claim, or loads, asks again or is answered", _gets_claim),
    ("L6 renewal", "who has the claim renews it, and finds out what became of a batch", _keeps_claim),
    ("L2 grace", "leases from before are waited for until a time that is set", _ends_grace),
    ("L2", "a leader looks for new streams again and again", _looks),
    ("L5", "what is staged, and what is held, is not forgotten", _commits),
    ("L3", "what somebody is to answer is said again, and the wait for what is to be given back ends", _repeats),
    ("L6 release", "who gives its claim up has asked for it, or is about to", _releases),
    ("L6 idle", "whom nobody needs does not lead, or follow, for ever", _ends),
)
"""Name, text, and what it comes to.  The names are those of the properties whose safe halves these are."""

assert set(LOOKING) < {CANDIDATE, FOLLOWER, LOADING}
