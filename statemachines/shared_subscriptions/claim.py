"""Claim: how a Leader takes it, renews it with all that it commits, and gives it up (source: "Leader's state").

Renewal and commit are one atomic batch: precondition "the claim is exactly mine" and "the root is exactly the last I
committed"; it writes the claim (its new stamp is the heartbeat), the next root, and the staged progress.

A claim that somebody else holds is watched: by the watcher's own clock, from the receipt of the read that first found
it so to the sending of one that finds it so again.  Stamps tell commits apart; no other clock says how old one is.
"""

from __future__ import annotations

from heapq import nsmallest

from msgspec.structs import replace

from statemachines.kernel import Ask, Call, Effects, Event, Map, SetTimer, TimerFired, in_order, life_of
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import (
    SERVICE,
    Claim,
    Commit,
    Committed,
    FailingMessage,
    Properties,
    Read,
    ReadDone,
    Refused,
    Scan,
    Scanned,
    StoredRecord,
    StoreFailed,
    Value,
)
from statemachines.shared_subscriptions.leader_record import LeaderRecord, Staged, Trial
from statemachines.shared_subscriptions.names import FAILING, OF_STREAMS, PROGRESS

PROGRESS_PER_COMMIT = 1_000
"""A batch carries the progress of at most so many streams; the rest follows with the next."""

PAGE = 1_000
"""Records, and streams, asked for at a time."""


class StartLeader(Call, frozen=True, gc=False):
    """From the registry: try to lead the group."""


class Halt(Call, frozen=True, gc=False):
    """From the host: stop in good order."""


class RetryTimer(TimerFired, frozen=True, gc=False):
    """Try again what a store did not answer, or look again at a claim that somebody holds."""


class RecheckTimer(TimerFired, frozen=True, gc=False):
    """Find out whether a commit happened."""


class HeartbeatTimer(TimerFired, frozen=True, gc=False):
    """Time to renew the claim."""


class CommitTimer(TimerFired, frozen=True, gc=False):
    """Staged progress has waited long enough."""


class ClaimEnd(TimerFired, frozen=True, gc=False):
    """By our own clock the claim may belong to somebody else from now on."""


StoreAnswer = ReadDone | Scanned | Committed | Refused | StoreFailed


# -- guards ---------------------------------------------------------------------------------------------------------


def is_load(record: LeaderRecord, event: ReadDone | Scanned | StoreFailed) -> bool:
    return event.n == record.load_n


def is_last_page(record: LeaderRecord, event: Scanned) -> bool:
    return event.n == record.load_n and not event.more


def is_trial(record: LeaderRecord, event: StoreAnswer) -> bool:
    return record.trial is not None and event.n == record.trial.n


def is_release(record: LeaderRecord, event: Committed) -> bool:
    return is_trial(record, event) and trial_of(record).release


def is_awaited(record: LeaderRecord, event: StoreFailed) -> bool:
    return event.n == record.load_n or is_trial(record, event)


def is_check(record: LeaderRecord, event: ReadDone | StoreFailed) -> bool:
    return record.trial is not None and record.trial.check_n == event.n


def is_in_doubt(record: LeaderRecord, event: RecheckTimer) -> bool:
    return record.trial is not None


def is_undeclared(record: LeaderRecord, event: ReadDone) -> bool:
    """There is no such group (any more)."""
    return event.n == record.load_n and not is_declared(event.records[1])


def is_declared(stored: StoredRecord | None) -> bool:
    return stored is not None and isinstance(stored.value, Properties) and not stored.value.destroyed


def differs(record: LeaderRecord, event: ReadDone) -> bool:
    """The group lives by other times than ours."""
    return event.n == record.load_n and not agrees(record.configuration, event.records[1])


def agrees(ours: Configuration, stored: StoredRecord | None) -> bool:
    """Whether a group that was declared so can be led, or joined, with our times."""
    if stored is None:
        return True
    theirs = stored.value
    return isinstance(theirs, Properties) and (
        (theirs.ping_interval_ms, theirs.ping_timeout_ms, theirs.claim_ttl_ms)
        == (ours.ping_interval_ms, ours.ping_timeout_ms, ours.claim_ttl_ms)
    )


def is_ours_already(record: LeaderRecord, event: ReadDone) -> bool:
    """The commit whose outcome was open did happen."""
    found = event.records[0]
    return (
        event.n == record.load_n
        and record.trial is not None
        and found is not None
        and found.value == record.trial.claim
    )


def is_claimable(record: LeaderRecord, event: ReadDone) -> bool:
    """Nobody holds it: never claimed, released, left by an earlier leader of this process, or watched for a TTL."""
    if event.n != record.load_n or not record.willing:
        return False
    found = event.records[0]
    if found is None or not isinstance(found.value, Claim):
        return found is None
    if found.value.leader == "" or was_led_here(record, found.value):
        return True
    return record.ripe and found == record.found


def was_led_here(record: LeaderRecord, claim: Claim) -> bool:
    """An earlier leader of this same process holds it; that one has resigned, since there is one at a time."""
    return claim.leader != record.id and life_of(claim.leader) == life_of(record.id)


def was_destroyed(record: LeaderRecord, event: Refused) -> bool:
    """What stood in the way was the group's properties: they are not what we lead by."""
    return is_trial(record, event) and event.key == record.key("properties")


def can_commit(record: LeaderRecord, event: Event) -> bool:
    return record.root_known and record.trial is None


def can_commit_staged(record: LeaderRecord, event: CommitTimer) -> bool:
    return record.root_known and record.trial is None and bool(record.staged)


def is_written(record: LeaderRecord, event: ReadDone) -> bool:
    """What we tried to write is there."""
    if not is_check(record, event):
        return False
    claim, root = event.records
    trial = trial_of(record)
    return claim is not None and root is not None and (claim.value, root.value) == (trial.claim, trial.root)


def is_unwritten(record: LeaderRecord, event: ReadDone) -> bool:
    """The old values are there, exactly."""
    return is_check(record, event) and event.records == (record.claim, record.root)


def trial_of(record: LeaderRecord) -> Trial:
    """The commit under way."""
    assert record.trial is not None
    return record.trial


# -- taking it ------------------------------------------------------------------------------------------------------


def look(record: LeaderRecord, event: Event, now_ns: int) -> tuple[LeaderRecord, Effects]:
    n = record.number + 1
    ripe = record.found is not None and now_ns - record.found_at_ns >= record.configuration.claim_ttl_ms * MS
    record = replace(record, number=n, load_n=n, ripe=ripe, willing=now_ns >= record.not_before_ns)
    return record, (Ask(SERVICE, Read(n, (record.key("claim"), record.key("properties")))),)


def watch(record: LeaderRecord, found: StoredRecord | None, now_ns: int) -> LeaderRecord:
    """The claim as it was found; one that is as before has been so since then."""
    if found == record.found:
        return record
    return replace(record, found=found, found_at_ns=now_ns, ripe=False)


def take(record: LeaderRecord, event: ReadDone, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """Put our claim where the one we found stands, if the group is still declared as we read it."""
    found, properties = event.records
    n = record.number + 1
    epoch = 1 + (found.value.epoch if found is not None and isinstance(found.value, Claim) else 0)
    claim = Claim(record.id, epoch)
    expect = ((record.key("claim"), found), (record.key("properties"), properties))
    # Of two tries at the same claim the first may be the one that lands: the claim counts from the first.
    earlier = record.trial is not None and record.trial.claim == claim
    sent_at_ns = trial_of(record).sent_at_ns if earlier else now_ns
    record = replace(
        watch(record, found, now_ns),
        number=n,
        properties=properties,
        epoch=epoch,
        grace=record.configuration.exclusive and not was_left_clean(found),
        repeats=may_repeat(found, properties),
        trial=Trial(n, sent_at_ns, claim),
    )
    return record, (Ask(SERVICE, Commit(n, expect, ((record.key("claim"), claim),))),)


def was_left_clean(found: StoredRecord | None) -> bool:
    """Nobody can hold a lease: the group was never claimed, or its last leader said so."""
    return found is None or (isinstance(found.value, Claim) and found.value.leader == "" and found.value.clean)


def may_repeat(found: StoredRecord | None, properties: StoredRecord | None) -> bool:
    """Messages behind the progress of some stream may have been handed over, since the group was declared."""
    if found is None or properties is None or found.stamp < properties.stamp:
        return False
    return not was_left_clean(found) or (isinstance(found.value, Claim) and found.value.repeats)


def look_later(record: LeaderRecord, event: Event, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """Somebody holds the claim, or the store did not answer."""
    return record, (SetTimer("retry", now_ns + record.configuration.commit_interval_ms * MS),)


def follow(record: LeaderRecord, event: ReadDone, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """Somebody holds the claim: look again later, and remember whom to pass borrowers on to."""
    found = event.records[0]
    holder = found.value.leader if found is not None and isinstance(found.value, Claim) else ""
    return look_later(replace(watch(record, found, now_ns), holder=holder, trial=None), event, now_ns)


def follow_from_now(record: LeaderRecord, event: ReadDone, now_ns: int) -> tuple[LeaderRecord, Effects]:
    record, effects = follow(record, event, now_ns)
    return record, (*effects, idle_later(record, now_ns))


def idle_later(record: LeaderRecord, now_ns: int) -> SetTimer:
    """If nobody needs this leader until then, it ends."""
    return SetTimer("idle", now_ns + record.configuration.idle_stop_ms * MS)


def took(record: LeaderRecord, event: Committed, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return begin(record, event.stamp, now_ns)


def took_before(record: LeaderRecord, event: ReadDone, now_ns: int) -> tuple[LeaderRecord, Effects]:
    found = event.records[0]
    assert found is not None
    return begin(record, found.stamp, now_ns)


def begin(record: LeaderRecord, stamp: int, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """The claim is ours: arm its end, its heartbeat and the grace, and load."""
    trial = trial_of(record)
    configuration = record.configuration
    record = replace(
        record,
        claim=StoredRecord(trial.claim, stamp),
        trial=None,
        holder="",
        askers=Map(),
        found=None,
        found_at_ns=0,
        ripe=False,
    )
    effects: Effects = (
        SetTimer("claim_end", trial.sent_at_ns + configuration.claim_by_own_clock_ns()),
        SetTimer("heartbeat", trial.sent_at_ns + configuration.claim_heartbeat_ms * MS),
    )
    if record.grace:
        effects = (*effects, SetTimer("grace", now_ns + configuration.lease_by_other_clock_ns()))
    record, asked = load(record, None, now_ns)
    return record, (*effects, *asked)


def load(record: LeaderRecord, event: Event | None, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """Durable state is read after the claim is committed, from its root on."""
    n = record.number + 1
    return replace(record, number=n, load_n=n), (Ask(SERVICE, Read(n, (record.key("root"),))),)


def load_progress(record: LeaderRecord, event: ReadDone, now_ns: int) -> tuple[LeaderRecord, Effects]:
    if not record.root_known:  # from then on it is what our own batches made of it, whenever this was read
        record = replace(record, root=event.records[0], root_known=True)
    return scan(record, "")


def load_page(record: LeaderRecord, event: Scanned, now_ns: int) -> tuple[LeaderRecord, Effects]:
    record = keep_page(record, event)
    return scan(record, event.records[-1][0])


def keep_page(record: LeaderRecord, event: Scanned) -> LeaderRecord:
    """What is none of ours is left alone; the store has named it."""
    at_progress, at_failing = len(record.key(PROGRESS)), len(record.key(FAILING))
    failing_key = record.key(FAILING)
    loaded, failing = record.loaded, record.failing
    for key, stored in event.records:
        if isinstance(stored.value, int):
            loaded = loaded.set(key[at_progress:], stored.value)
        elif isinstance(stored.value, FailingMessage) and key.startswith(failing_key):
            failing = failing.set(key[at_failing:], stored.value)
    return replace(record, loaded=loaded, failing=failing)


def scan(record: LeaderRecord, after: str) -> tuple[LeaderRecord, Effects]:
    n = record.number + 1
    record = replace(record, number=n, load_n=n)
    return record, (Ask(SERVICE, Scan(n, record.key(OF_STREAMS), after, PAGE)),)


# -- keeping it -----------------------------------------------------------------------------------------------------


def stage(record: LeaderRecord, stream: str, progress: Staged, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """Progress to be committed; the first since the last commit arms the commit timer."""
    first = not record.staged and record.trial is None
    record = replace(record, staged=record.staged.set(stream, put_over(record.staged.get(stream), progress)))
    return record, (commit_soon(record, now_ns),) if first else ()


def put_over(before: Staged, after: Staged) -> Staged:
    """What is staged in the place of what was: failures that were staged, or their removal, are removed."""
    if not isinstance(before, FailingMessage) or isinstance(after, FailingMessage):
        return after
    return FailingMessage(-1 if after is None else after, 0)


def commit_soon(record: LeaderRecord, now_ns: int) -> SetTimer:
    return SetTimer("commit", now_ns + record.configuration.commit_interval_ms * MS)


def commit(record: LeaderRecord, event: Event, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """One batch: the claim again, the next root, the staged progress."""
    assert record.claim is not None
    assert isinstance(record.claim.value, Claim)
    record, asked = put_batch(record, record.claim.value, now_ns)
    return record, (SetTimer("heartbeat", now_ns + record.configuration.claim_heartbeat_ms * MS), *asked)


def put_batch(
    record: LeaderRecord, claim: Claim, now_ns: int, *, release: bool = False, disowned: bool = False
) -> tuple[LeaderRecord, Effects]:
    """`release`: with all that is staged; `disowned`: the group was destroyed, its properties are not ours."""
    n = record.number + 1
    root = 1 + (record.root.value if record.root is not None and isinstance(record.root.value, int) else 0)
    first = sorted(record.staged) if release else nsmallest(PROGRESS_PER_COMMIT, record.staged)
    staged = tuple((stream, record.staged[stream]) for stream in first)
    left = record.staged if len(staged) < len(record.staged) else Map()
    if left:
        for stream, _ in staged:
            left = left.delete(stream)
    put: tuple[tuple[str, Value | None], ...] = (
        (record.key("claim"), claim),
        (record.key("root"), root),
        *(put for stream, progress in staged for put in list_records(record, stream, progress)),
    )
    expect: tuple[tuple[str, StoredRecord | None], ...] = (
        (record.key("claim"), record.claim),
        (record.key("root"), record.root),
    )
    if not disowned:
        expect += ((record.key("properties"), record.properties),)
    record = replace(record, number=n, staged=left, trial=Trial(n, now_ns, claim, root, staged, release))
    return record, (Ask(SERVICE, Commit(n, expect, put)),)


def list_records(record: LeaderRecord, stream: str, staged: Staged) -> tuple[tuple[str, Value | None], ...]:
    """The records that say it."""
    key = record.key(f"{PROGRESS}{stream}")
    if not isinstance(staged, FailingMessage):
        return ((key, staged),)
    failing = (record.key(f"{FAILING}{stream}"), staged if staged.count or staged.acked else None)
    return (key, staged.progress if staged.progress >= 0 else None), failing


def heartbeat_later(record: LeaderRecord, event: HeartbeatTimer, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """A commit is under way, or the root is not known yet."""
    return record, (SetTimer("heartbeat", now_ns + record.configuration.commit_interval_ms * MS),)


def renew_claim(record: LeaderRecord, event: Committed, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return keep(record, event.stamp, event.stamp, now_ns)


def renew_confirmed_claim(record: LeaderRecord, event: ReadDone, now_ns: int) -> tuple[LeaderRecord, Effects]:
    claim, root = event.records
    assert claim is not None
    assert root is not None
    return keep(record, claim.stamp, root.stamp, now_ns)


def keep(record: LeaderRecord, claim_stamp: int, root_stamp: int, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """What was tried is now what was committed last.  The next batch follows at once where this one took a heartbeat or
    longer, or had no room for all that was staged."""
    trial = trial_of(record)
    record = replace(
        record, claim=StoredRecord(trial.claim, claim_stamp), root=StoredRecord(trial.root, root_stamp), trial=None
    )
    effects: Effects = (SetTimer("claim_end", trial.sent_at_ns + record.configuration.claim_by_own_clock_ns()),)
    if now_ns - trial.sent_at_ns >= record.configuration.claim_heartbeat_ms * MS:
        effects = (*effects, SetTimer("heartbeat", now_ns))
    if record.staged:
        is_full = len(trial.staged) >= PROGRESS_PER_COMMIT
        effects = (*effects, SetTimer("commit", now_ns) if is_full else commit_soon(record, now_ns))
    return record, effects


def recheck_later(record: LeaderRecord, event: StoreFailed, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return record, (SetTimer("recheck", now_ns + record.configuration.commit_interval_ms * MS),)


def check(record: LeaderRecord, event: RecheckTimer, now_ns: int) -> tuple[LeaderRecord, Effects]:
    n = record.number + 1
    record = replace(record, number=n, trial=replace(trial_of(record), check_n=n))
    return record, (Ask(SERVICE, Read(n, (record.key("claim"), record.key("root")))),)


def commit_again(record: LeaderRecord, event: ReadDone, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """It did not happen: everything is staged as it was, except what is newer by now."""
    staged = record.staged
    for stream, progress in trial_of(record).staged:
        staged = staged.set(stream, put_over(progress, staged[stream]) if stream in staged else progress)
    return commit(replace(record, staged=staged, trial=None), event, now_ns)


# -- giving it up ---------------------------------------------------------------------------------------------------


def release(record: LeaderRecord, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """Commit what is staged and give the claim up under the same epoch; `clean` if nobody can hold a lease."""
    clean = not any(member.grants for _, member in in_order(record.members)) and not record.grace
    repeats = clean and any(known.repeats > known.progress for _, known in in_order(record.streams))
    return put_batch(record, Claim("", record.epoch, clean, repeats), now_ns, release=True)


def release_disowned(record: LeaderRecord, event: Refused, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """The group was destroyed: nothing of its progress may be written any more, only the claim is given up."""
    record = replace(record, staged=Map(), trial=None)
    return put_batch(record, Claim("", record.epoch), now_ns, release=True, disowned=True)
