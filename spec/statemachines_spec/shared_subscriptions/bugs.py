"""Bugs: mistakes of existing systems, and some of our own, each a patch of the shipped machines (`bug`).

Failure bugs: mistakes in what becomes of messages that fail, each a patch of the shipped machines (`bug`).

Stale copies: a bug that a leader had: it judged what was held by what it had read before it kicked anybody.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import STAY, CancelTimer, Delegate, Effects, Event, Map, Row, SetTimer, identity, in_order
from statemachines.kernel.row import AnyRow
from statemachines.shared_subscriptions import (
    agent_process,
    assignment,
    borrower,
    claim,
    dead_letter_queue,
    failed_deliveries,
    handler,
    leader,
    listing,
    member,
    membership,
    plan,
    progress_cover,
    session,
    stream,
    stream_store,
)
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.handler_process import HANDLER, HANDLER_MACHINE
from statemachines.shared_subscriptions.leader_record import LEADING, LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.membership import Outcome
from statemachines.shared_subscriptions.message import END_OF_STREAM, LeaderConnectResponse, LeaderWanted, PingResponse
from statemachines.shared_subscriptions.plan import Draft, hand_out, reassign
from statemachines.shared_subscriptions.progress_cover import is_covered, measure
from statemachines.shared_subscriptions.session_record import StreamReading
from statemachines.shared_subscriptions.stream_measure import believe, learn_sizes, refuse
from statemachines.shared_subscriptions.stream_store import Measured, rank_of
from statemachines_spec.bug import (
    Bug,
    action_of,
    change_rows,
    combine,
    drop_route,
    redeclare,
    refuse_event,
    replace_call,
    wrap_call,
)


def go_on_at_once(set_aside: Any) -> Any:
    """The group goes on behind the message as if its dead letter were there."""

    def wrong(draft: plan.Draft, stream: str) -> None:
        set_aside(draft, stream)
        topic = draft.record.configuration.dead_letter_topic
        if topic:
            failed_deliveries.drop_message(draft, stream, asked=False, topic=topic)

    return wrong


def append_again(store_letter: Any) -> Any:
    """The stream store knows of no letter that it has stored before."""

    def wrong(store: Any, state: stream_store.StoredStreams, request: Any, now_ns: int) -> Any:
        return store_letter(store, replace(state, letters=Map()), request, now_ns)

    return wrong


def due_at_once(record: Any, stream: str) -> bool:
    """Whether or not the count is committed."""
    return failed_deliveries.is_set_aside(record, stream) and not record.failing[stream].skip


FAILURE_BUGS: Final = (
    Bug(
        "repeats-forgotten",
        "what a member that was lost had in hand is handed over as if nobody had been handed any",
        "SS-440",
        "plan.Draft.note_repeats",
        replace_call(plan.Draft, "note_repeats", lambda draft, stream: None),
    ),
    Bug(
        "suspect-not-alone",
        "a message that failed before is handed over together with others",
        "SS-337",
        "session_record.Reading.is_lone",
        replace_call(StreamReading, "is_lone", property(lambda reading: False)),
    ),
    Bug(
        "letter-after-progress",
        "the group goes on behind a message before its dead letter is stored",
        "SS-346",
        "failed_deliveries.set_aside",
        wrap_call(plan, "set_aside", go_on_at_once),
    ),
    Bug(
        "letter-before-count",
        "a dead letter is asked for before it is durable that its message is handed over no more",
        "SS-346",
        "dead_letter_queue.is_due",
        replace_call(dead_letter_queue, "is_due", due_at_once),
    ),
    Bug(
        "letters-repeated",
        "a dead letter that is asked for again is stored again",
        "SS-347",
        "stream_store.StreamStore._store_letter",
        wrap_call(stream_store.StreamStore, "_store_letter", append_again),
    ),
)


def judge_copies(record: LeaderRecord, event: Measured, now_ns: int) -> Outcome:
    """As `measuring.judge_held`, but that a kick for one stream is not seen by what follows of another."""
    draft = Draft(replace(record, measure_n=0), now_ns)
    live = record.live
    learn_sizes(draft, event)
    for name, copy in in_order(record.held):
        if copy.n != event.n or name not in draft.record.held:
            continue
        draft.record = replace(draft.record, held=draft.record.held.delete(name))
        if rank_of(name)[1] < event.oldest:
            continue
        judge = believe if is_covered(draft.record, name, copy.progress) else refuse
        judge(draft, name, copy)
    if draft.record.live != live:
        reassign(draft)
    elif draft.record.status is LEADING:
        hand_out(draft)
    measure(draft)
    return draft.finish()


FOR_EVER_NS: Final = 2**50

# -- the mistakes ---------------------------------------------------------------------------------------------------


def name_new_owner_first(take_back: Any) -> Any:
    """The assignment has its next owner's name already when the revoke is sent."""

    def wrong(draft: plan.Draft, loser: str) -> None:
        below = [one for one in draft.record.members.values() if one.status is REGISTERED and one.count < one.share]
        heir = min(below, key=lambda one: one.link.borrower, default=None)
        if heir is not None:
            for name, one in sorted(draft.record.assignments.items()):
                if one.link.borrower == loser and one.status is assignment.GRANTED:
                    moved = draft.record.assignments.set(name, replace(one, link=heir.link))
                    draft.record = replace(draft.record, assignments=moved)
                    break
        take_back(draft, loser)

    return wrong


def answer_only(record: stream.StreamRecord, event: Event, now_ns: int) -> tuple[stream.StreamRecord, Effects]:
    return record, (stream.answer(record),)


def keep_old_claim(keep: Any) -> Any:
    """What was renewed is thrown away: the next renewal expects the claim as it was taken."""

    def wrong(record: Any, claim_ns: int, root_ns: int, now_ns: int) -> Any:
        renewed, effects = keep(record, claim_ns, root_ns, now_ns)
        return replace(renewed, claim=record.claim), effects

    return wrong


def watch_holder(record: Any, found: Any, now_ns: int) -> Any:
    """A renewal changes nothing: the claim has been watched since its leader was first found."""
    if found is not None and record.found is not None and found.value == record.found.value:
        return replace(record, found=found)
    return replace(record, found=found, found_at_ns=now_ns, ripe=False)


def free_again(draft: plan.Draft, name: str) -> None:
    known = draft.record.streams.get(name)
    live = known is not None and known.progress == END_OF_STREAM
    draft.record = replace(draft.record, free=draft.record.free.push(name), live=draft.record.live + live)


def expect_nothing(release: Any) -> Any:
    """The claim is given up whoever holds it by now."""

    def wrong(record: Any, now_ns: int) -> Any:
        record, (ask,) = release(record, now_ns)
        return record, (replace(ask, request=replace(ask.request, expect=())),)

    return wrong


def one_resend_timer(step: Any) -> Any:
    """Arming the timer of one stream takes that of every other back."""

    def wrong(draft: plan.Draft, name: str, event: Event) -> None:
        at = len(draft.effects)
        step(draft, name, event)
        armed = any(isinstance(one, SetTimer) and one.timer == "resend" for one in draft.effects[at:])
        if armed:
            others = [other for other in sorted(draft.record.assignments) if other != name]
            draft.effects[at:at] = [CancelTimer("resend", other) for other in others]

    return wrong


def one_expiry_timer(step: Any) -> Any:
    """Whoever is heard, everybody's expiry is put off."""

    def wrong(draft: plan.Draft, name: str, event: Event) -> Any:
        after = step(draft, name, event)
        if any(isinstance(one, SetTimer) and one.timer == "expiry" for one in draft.effects):
            for _, other in sorted(draft.record.members.items()):
                if other.status is REGISTERED:
                    draft.effects.append(member.set_silence_timer(other, draft.now_ns))
        return after

    return wrong


def keep_whatever(record: Any, event: Any, now_ns: int) -> Any:
    return replace(record, progress=event.progress), ()


def keep_whatever_and_send_revoked(record: Any, event: Any, now_ns: int) -> Any:
    record = replace(record, progress=event.progress)
    return record, (assignment.make_revoked(record),)


def rearm_only(record: Any, event: Any, now_ns: int) -> Any:
    return record, (assignment.make_again_timer(record, now_ns),)


def expire_early(record: Any, now_ns: int) -> SetTimer:
    configuration = record.configuration
    early = configuration.ping_interval_ms * MS * 3 // 2
    return SetTimer("expiry", now_ns + early, record.link.borrower)


def is_registered(record: Any, event: LeaderWanted) -> bool:
    known = record.members.get(event.borrower)
    return known is not None and known.status is REGISTERED


def is_below_share(member: Any) -> bool:
    """Whatever it has not answered yet."""
    return bool(member.count < member.share and member.status is REGISTERED)


def wait_from_first(assign: Any) -> Any:
    """Every grant of a member has the deadline of the first one."""
    first: dict[tuple[str, str], int] = {}

    def wrong(draft: Any, stream: str, member: Any) -> Any:
        if not draft.record.grant:
            first.clear()  # another run
        told = len(draft.effects)
        after = assign(draft, stream, member)
        for place, effect in enumerate(draft.effects[told:], told):
            if isinstance(effect, SetTimer) and effect.timer == "grant_timeout":
                key = (draft.record.id, member.link.borrower)
                first[key] = min(first.get(key, effect.deadline_ns), effect.deadline_ns)
                draft.effects[place] = SetTimer("grant_timeout", first[key], effect.key)
        return after

    return wrong


def report_nothing(record: Any) -> Any:
    return replace(record, carried=Map(), changed=Map())


def is_of_node(borrower: str, host: str) -> bool:
    return identity.node_of(borrower) == identity.node_of(host)


def keep_told(told: Any) -> Any:
    """The end of a lease does not reach the session."""

    def wrong(self: Any, party: str, event: Event, now_ns: int) -> Any:
        return () if isinstance(event, borrower.LeaseEnded) else told(self, party, event, now_ns)

    return wrong


def skip_one(reading: Any, first: int, last: int) -> Any:
    return replace(reading, progress=last + 2)


def clean_in_grace(release: Any) -> Any:
    """Leases from before this leader's own claim are forgotten."""
    return lambda record, now_ns: release(replace(record, grace=False), now_ns)


def end_where_cut(batch: Any) -> Any:
    """Every batch of a stream that has ended says so, also one that its limit has cut short."""

    def wrong(state: stream_store.StoredStreams, one: stream_store.Slice) -> stream_store.MessageBatch:
        stored = state.by_id.get(one.stream)
        cut: stream_store.MessageBatch = batch(state, one)
        return replace(cut, ended=stored is not None and stored.ended)

    return staticmethod(wrong)


def keep_and_not_stage(take: Any) -> Any:
    """What a lapsed borrower said last is gone by, and no batch has it."""

    def wrong(draft: plan.Draft, report: Any) -> None:
        staged, is_assigned = draft.record.staged, report.stream in draft.record.assignments
        take(draft, report)
        if not is_assigned:
            draft.record = replace(draft.record, staged=staged)

    return wrong


def answers_any_ping(record: borrower.BorrowerRecord, event: PingResponse) -> bool:
    """While a ping waits for its answer, that to any ping before it will do."""
    return record.outstanding and event.n <= record.ping_n and borrower.is_mine(record, event)


def load_nothing(keep_page: Any) -> Any:
    return lambda record, event: replace(keep_page(record, event), loaded=Map())


BUGS: Final = (
    Bug(
        "duplicate-connect-response",
        "a second connect response of the same registration is an error",
        "SS-24",
        "the ignore of leader_connect_response in connected",
        refuse_event(borrower.BORROWER, LeaderConnectResponse, borrower.CONNECTED),
    ),
    Bug(
        "late-timer",
        "a find-leader timer that fires after the connection was made is an error",
        "SS-23",
        "the ignore of find_leader_timer in connected",
        refuse_event(borrower.BORROWER, borrower.FindLeaderTimer, borrower.CONNECTED),
    ),
    Bug(
        "revoke-to-new-owner",
        "a stream that is taken back is revoked from its next owner, not from the one that has it",
        "SS-83",
        "plan.take_back",
        wrap_call(plan, "take_back", name_new_owner_first),
    ),
    Bug(
        "revoked-not-finishing",
        "the session is not told to finish a revoked stream, so its final progress never comes",
        "SS-33",
        "the action of revoke in granted",
        change_rows(stream.STREAM, "finish_and_answer", do=answer_only),
    ),
    Bug(
        "renewed-claim-lost",
        "the renewed claim is thrown away, so the next renewal expects the old one",
        "SS-129",
        "claim.keep",
        wrap_call(claim, "keep", keep_old_claim),
    ),
    Bug(
        "ended-stream-granted",
        "a stream that has ended is free again when its owner lets go",
        "SS-144",
        "plan.Draft.release",
        replace_call(plan.Draft, "release", free_again),
    ),
    Bug(
        "unconditional-release",
        "the claim is given up without a look at who holds it",
        "SS-133",
        "the precondition of the releasing commit",
        wrap_call(claim, "release", expect_nothing),
    ),
    Bug(
        "one-resend-timer",
        "all streams share one resend timer: arming it for one takes it from the others",
        "SS-81",
        "the resend timers of plan.Draft.step_assignment",
        wrap_call(plan.Draft, "step_assignment", one_resend_timer),
    ),
    Bug(
        "one-expiry-timer",
        "whatever arrives from anybody puts off everybody's expiry",
        "SS-62",
        "the expiry timers of plan.Draft.step_member",
        wrap_call(plan.Draft, "step_member", one_expiry_timer),
    ),
    Bug(
        "revoking-to-granted",
        "an ordinary progress makes a stream that is being revoked granted again",
        "SS-85",
        "the destination of update_progress in revoking",
        lambda stack: redeclare(stack, assignment.ASSIGNMENT, _revoking_to_granted),
    ),
    Bug(
        "recreated-while-unsubscribing",
        "a borrower that is invalidated while unsubscribing asks for a new one",
        "SS-22",
        "the action of invalidate in unsubscribing",
        change_rows(borrower.BORROWER, "end_unsubscribed", do=Delegate(borrower.invalidate_itself)),
    ),
    Bug(
        "progress-not-compared",
        "a progress that arrives late takes the place of a higher one",
        "SS-82",
        "the actions of update_progress in an assignment",
        combine(
            change_rows(assignment.ASSIGNMENT, "keep", do=keep_whatever),
            change_rows(assignment.ASSIGNMENT, "keep_and_send_revoked", do=keep_whatever_and_send_revoked),
        ),
    ),
    Bug(
        "grant-never-repeated",
        "a grant that is not answered is not sent again",
        "SS-81",
        "the action of resend_timer in granting",
        change_rows(assignment.ASSIGNMENT, "resend_grant", do=rearm_only),
    ),
    Bug(
        "short-validity",
        "a silent borrower is given up before its lease ends, and nobody waits for that end",
        "SS-64",
        "member.heard_until and Configuration.lease_by_other_clock_ns",
        combine(
            replace_call(Configuration, "lease_by_other_clock_ns", lambda self: 0),
            replace_call(member, "set_silence_timer", expire_early),
        ),
    ),
    Bug(
        "late-grant-installs",
        "a late copy of an old grant installs a stream that was taken back",
        "SS-41",
        "the guard of grant in absent",
        change_rows(stream.STREAM, "install", when=None),
    ),
    Bug(
        "lapsed-registered-again",
        "a late leader_wanted registers a borrower again that was just thrown out",
        "SS-68",
        "the guard of leader_wanted from a known borrower",
        change_rows(leader.LEADER, "answer_again", when=is_registered),
    ),
    Bug(
        "unlisted-assignments-kept",
        "a disconnect ends only the assignments that it lists",
        "SS-147",
        "membership.end_assignment",
        replace_call(membership, "end_assignment", lambda draft, stream, grant, has_left: None),
    ),
    Bug(
        "last-report-lost",
        "a progress report is sent once, and pings do not repeat it",
        "SS-07",
        "borrower.choose_reports",
        replace_call(borrower, "choose_reports", report_nothing),
    ),
    Bug(
        "lease-end-not-passed-on",
        "the session is not told that the lease has ended",
        "SS-101",
        "Subscription.told",
        combine(
            wrap_call(handler.Subscription, "route_tell", keep_told),
            drop_route(HANDLER, borrower.LeaseEnded),
        ),
    ),
    Bug(
        "gap-acknowledged",
        "an acknowledgement covers one message more than it should",
        "SS-107",
        "session.join",
        replace_call(session, "join", skip_one),
    ),
    Bug(
        "nothing-taken-back",
        "who has too many streams keeps them when others join",
        "SS-162",
        "plan.take_back",
        replace_call(plan, "take_back", lambda draft, name: None),
    ),
    Bug(
        "progress-not-loaded",
        "a new leader begins without the progress that earlier ones committed",
        "SS-124",
        "listing.keep_page",
        wrap_call(listing, "keep_page", load_nothing),
    ),
    Bug(
        "unanswered-grant-kept",
        "a grant that is not answered is waited for without an end",
        "SS-91",
        "the row of grant_timeout in granting",
        lambda stack: redeclare(stack, assignment.ASSIGNMENT, _grant_kept),
    ),
    Bug(
        "window-ignored",
        "all grants leave at once, however many are unanswered",
        "SS-264",
        "plan.wants",
        replace_call(plan, "wants", is_below_share),
    ),
    Bug(
        "grants-wait-together",
        "the validity in which a grant is to be answered counts from the first grant of its member",
        "SS-91",
        "plan.Draft.assign",
        wrap_call(plan.Draft, "assign", wait_from_first),
    ),
    Bug(
        "progress-believed",
        "progress counts whatever the store holds",
        "SS-157",
        "holding.covers",
        replace_call(progress_cover, "covers", lambda known, progress: True),
    ),
    Bug(
        "renewal-unseen",
        "who watches a claim looks at who holds it, and not at its stamp",
        "SS-135",
        "claim.watch",
        replace_call(claim, "watch", watch_holder),
    ),
    Bug(
        "clean-in-grace",
        "a leader that stops while its grace still runs says that nobody can hold a lease",
        "SS-133",
        "claim.release",
        wrap_call(claim, "release", clean_in_grace),
    ),
    Bug(
        "ended-where-cut",
        "a batch that its limit has cut short says that the stream has ended",
        "SS-217",
        "stream_store.StreamStore._batch",
        wrap_call(stream_store.StreamStore, "_batch", end_where_cut),
    ),
    Bug(
        "last-word-not-durable",
        "what a lapsed borrower says last is gone by, and never committed",
        "SS-147",
        "membership.take_last_word",
        wrap_call(membership, "take_last_word", keep_and_not_stage),
    ),
    Bug(
        "follows-on",
        "a borrower goes on following whom the claim does not name any more",
        "SS-245",
        "agent_process.is_misled",
        replace_call(agent_process, "is_misled", lambda record, one: False),
    ),
    Bug(
        "claim-end-in-turn",
        "the end of a claim fires in its turn, after what was due before it",
        "SS-132",
        "the class of the timer claim_end",
        replace_call(leader.LEADER, "authority", frozenset()),
    ),
    Bug(
        "second-lie-copied",
        "the other stream that a kicked liar lied about is granted to nobody any more",
        "SS-158",
        "measuring.judge_held",
        change_rows(leader.LEADER, "judge_held", do=Delegate(judge_copies)),
    ),
    Bug(
        "old-answer-taken",
        "the answer to an earlier ping is taken for that of the last one",
        "SS-24",
        "the guard of ping_response in connected and unsubscribing",
        combine(
            change_rows(borrower.BORROWER, "accept_ping_response", when=answers_any_ping),
            change_rows(borrower.BORROWER, "accept_late_ping_response", when=answers_any_ping),
        ),
    ),
    Bug(
        "speaks-for-other-life",
        "an Agent says of the borrowers of another life of its name, too, that they are gone",
        "SS-177",
        "agent_process.is_ours",
        replace_call(agent_process, "is_ours", is_of_node),
    ),
    Bug(
        "lives-not-told-apart",
        "ids hold the number of a life alone, so a life that comes twice has the ids of the first",
        "SS-230",
        "identity.told_apart",
        replace_call(identity, "make_life_id", lambda number, bits: str(number)),
    ),
    Bug(
        "unreadable-streams-kept",
        "a member that cannot read keeps its streams",
        "SS-290",
        "the actions of unreadable_timer",
        combine(
            change_rows(session.SESSION, "give_up_reads", do=None),
            change_rows(session.SESSION, "give_up_open_read", do=None),
        ),
    ),
    Bug(
        "relay-not-used",
        "a borrower that is answered through a follower goes on speaking to its leader directly alone",
        "SS-276",
        "the action of what arrives through a follower",
        combine(
            replace_call(agent_process, "WAYS", ()),
            change_rows(agent_process.AGENT_MACHINE, "hear_around", do=agent_process.hear),
            change_rows(HANDLER_MACHINE, "hear_around", do=agent_process.hear),
        ),
    ),
    Bug(
        "askers-keep-claim",
        "a leader waits for members that it has never heard until it is idle without them",
        "SS-279",
        "membership.hear_by",
        replace_call(membership, "hear_by", lambda record, now_ns: SetTimer("idle", now_ns + FOR_EVER_NS)),
    ),
    Bug(
        "blind-leader",
        "a leader whose listings all fail keeps its claim",
        "SS-280",
        "listing.FAILURES_MAX",
        replace_call(listing, "FAILURES_MAX", 2**31),
    ),
    *FAILURE_BUGS,
)
"""The first eighteen are those of the protocol's page, in its order; the others were made up for the simulator."""

OF_THE_PAGE: Final = BUGS[:18]


def _grant_kept(row: AnyRow) -> list[AnyRow]:
    if isinstance(row, Row) and row.on is assignment.GrantTimeout:
        return [Row(row.on, row.source, STAY, row.do, row.when, row.clause)]
    return [row]


def _revoking_to_granted(row: AnyRow) -> list[AnyRow]:
    if isinstance(row, Row) and row.source is assignment.REVOKING and action_of(row) == "keep":
        return [Row(row.on, row.source, assignment.GRANTED, row.do, row.when, row.clause)]
    return [row]
