"""How the clauses of shared subscriptions that are no rows are broken (tools/clauses.py)."""

from unittest.mock import AsyncMock, patch

from msgspec.structs import replace
from mutants import swap, without_choice, wrap
from waiting import turns

from statemachines.drivers import greeting, loop_watchdog, message_head, shared_subscriptions, tcp
from statemachines.drivers.greeting import Greeting
from statemachines.drivers.message_head import EMPTY
from statemachines.drivers.shared_subscriptions import deliveries, sql_stores
from statemachines.drivers.shared_subscriptions import groups as group_filters
from statemachines.drivers.shared_subscriptions import leader_node as leader_nodes
from statemachines.drivers.shared_subscriptions.deliveries import DurableProgress
from statemachines.drivers.shared_subscriptions.leader_node import LeaderStarts
from statemachines.drivers.shared_subscriptions.milestones import Milestones
from statemachines.drivers.shared_subscriptions.node_life import BytesInHand, TakenName
from statemachines.drivers.shared_subscriptions.rebalance_callbacks import RebalanceCallbacks
from statemachines.drivers.shared_subscriptions.record_codec import RecordCodec
from statemachines.drivers.shared_subscriptions.shared_session import SharedSession
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore, stream_append
from statemachines.drivers.shared_subscriptions.sqlite import stream_store as sqlite_streams
from statemachines.drivers.shared_subscriptions.stalled_streams import StalledStreams
from statemachines.drivers.sql import postgres_address, sqlite
from statemachines.drivers.sql.silent_server import ServerConnections
from statemachines.drivers.tcp import Connection
from statemachines.kernel import STAY, Feed, Node, ProcessRunner, SetTimer, in_order, keys_in_order
from statemachines.shared_subscriptions import (
    agent_process,
    borrower,
    claim,
    configuration,
    dead_letter_queue,
    failed_deliveries,
    group_store,
    handler_process,
    listing,
    membership,
    message,
    names,
    plan,
    registry,
    returned_messages,
    session,
    session_record,
    stream_store,
)
from statemachines.shared_subscriptions.agent_process import AGENT_MACHINE
from statemachines.shared_subscriptions.assignment import GRANTING
from statemachines.shared_subscriptions.borrower import Start
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import Commit, GroupStore, Scan
from statemachines.shared_subscriptions.handler import Agent, Handler
from statemachines.shared_subscriptions.handler_process import HANDLER, HANDLER_MACHINE
from statemachines.shared_subscriptions.message import END_OF_STREAM, Undeclared
from statemachines.shared_subscriptions.plan import Draft
from statemachines.shared_subscriptions.private_subscription import AgentRecord
from statemachines.shared_subscriptions.registry import REGISTRY_MACHINE
from statemachines.shared_subscriptions.session import Admit
from statemachines.shared_subscriptions.stream_store import MessageBatch, StreamSize, StreamStore
from statemachines_spec import bug
from statemachines_spec.shared_subscriptions.bugs import append_again

# -- borrowers of others --------------------------------------------------------------------------------------------


def after_the_end_of_nothing(stack):
    """Over the wire a borrower that has ended may repeat nothing."""
    from statemachines.testing.shared_subscriptions import conformance

    role = conformance.ROLES["borrower"]
    mutant = replace(role, wire=replace(role.wire, after_end=()))
    stack.enter_context(patch.dict(conformance.ROLES, {"borrower": mutant}))


def from_anybody(stack):
    """Over the wire any party speaks for any other."""
    from statemachines.testing.conformance.wire_nodes import WirePeer

    swap(WirePeer, "_check_parties", lambda self, packet: None)(stack)


def beginning_anew(stack):
    """Over the wire every borrower may begin as the first."""
    from statemachines.testing.shared_subscriptions import wire_borrower

    begin = wire_borrower.begin_record
    swap(wire_borrower, "begin_record", lambda to, first, times, earlier: begin(to, first, times, ()))(stack)


# -- the leader -----------------------------------------------------------------------------------------------------


def room_unseen(count):
    """What a member answers makes no room."""

    def wrong(self, name, before, after):
        count(self, name, before, after)
        if before is GRANTING:
            member = self.record.members[name]
            self.set_member(replace(member, granting=member.granting + 1))

    return wrong


def all_at_once(take_back):
    """All that is above the share is taken back."""

    def wrong(draft, name):
        member = draft.record.members[name]
        roomy = replace(member.configuration, grant_window=10**6)
        draft.set_member(replace(member, configuration=roomy))
        take_back(draft, name)
        draft.set_member(replace(draft.record.members[name], configuration=member.configuration))

    return wrong


class Everybody:
    """Is of whatever life."""

    __hash__ = None

    def __eq__(self, other):
        return True


def timeouts_first(end_first):
    def wrong(self, now_ns):
        return self.fire(now_ns)

    return wrong


def turns_once(catch_up):
    async def wrong(self):
        await turns()

    return wrong


async def waits_for_nobody_s_database(attempt, **given):
    return await attempt()


def number_of_the_disk(take):
    async def wrong(self, above):
        self.number = above + 1
        return self.number

    return wrong


def looks_at_nothing(hold):
    async def wrong(self):
        return None

    return wrong


def waits_for_nobody(wait):
    async def wrong(self, found):
        return None

    return wrong


def open_all(record):
    """Every generation has its turn at once."""
    for key, rank in in_order(record.ranks):
        if not rank.open:
            record = replace(
                record, ranks=record.ranks.set(key, replace(rank, open=True)), live=record.live + rank.live
            )
            for stream in keys_in_order(rank.streams):
                record = replace(record, free=record.free.push(stream))
    return record


def end_not_staged(stage):
    """The end of a stream is not durable."""
    return lambda record, stream, progress, now_ns: (
        (record, ()) if progress == END_OF_STREAM else stage(record, stream, progress, now_ns)
    )


# -- the processes --------------------------------------------------------------------------------------------------


def in_sessions(action, to=None, **what):
    """The same mistake in both processes that serve subscriptions."""
    return bug.combine(*(bug.change_rows(machine, action, to, **what) for machine in (AGENT_MACHINE, HANDLER_MACHINE)))


def declared_by_nobody(record, event, now_ns):
    """A borrower looks for its leader before the group is declared."""
    record, _ = agent_process.declare(record, event, now_ns)
    party = next(iter(record.parties))
    record, began = agent_process.borrow(record, record.parties[party], record.parties[party])
    return record, (*began, Feed(record.parties[party], Start()))


def asks_nobody_else(begin):
    def wrong(self, life, registries, *rest, **more):
        begin(self, life, registries if isinstance(registries, str) else registries[:1], *rest, **more)

    return wrong


def every_epoch_forgotten(borrow):
    def wrong(record, subscription, party):
        record, began = borrow(record, subscription, party)
        *before, begin = began
        return record, (*before, replace(begin, record=replace(begin.record, epoch=0)))

    return wrong


def nobody_dismissed(record, event, now_ns):
    record, effects = handler_process.follow_borrower(record, event, now_ns)
    return record, effects[1:]


def heard_directly(record, event, now_ns):
    return record, (Feed(event.message.leader, event.message.message),)


def witness_kept(end_subscription):
    return lambda record, party: (record.end(party), ())


def routed(process, *kept):
    """The process has these routes alone."""

    def apply(stack):
        from statemachines.kernel import Process

        mutant = Process(
            process.name, process.fsm, kinds=tuple(process.kinds.values()), routes=kept, begin=process.begin,
            diverts=process.diverts,
        )  # fmt: skip
        bug.swap(stack, process, "routes", mutant.routes)
        bug.swap(stack, process, "table", mutant.table)

    return apply


# -- stores ---------------------------------------------------------------------------------------------------------


def expects_nothing(apply):
    return lambda self, state, request, now_ns: apply(
        self, state, replace(request, expect=()) if isinstance(request, Commit) else request, now_ns
    )


def one_page(apply):
    return lambda self, state, request, now_ns: apply(
        self, state, replace(request, limit=2**31) if isinstance(request, Scan) else request, now_ns
    )


def everything_is_there(state, one):
    """A fetch that gives what was asked for, and not what there is."""
    return MessageBatch(one.stream, one.grant, one.first, one.first + one.limit - 1, False)


def lengths_left_out(key):
    """Keys as they were."""
    return lambda group, topic_filter, name: f"{group}/{topic_filter}:{name}"


def unreadable_ends_it(read_all):
    """A page with a record that cannot be read has failed."""
    return lambda self, found: [(key, self.read(key, value, time_ns)) for key, value, time_ns in found]


def sizeless(stream, count, ended):
    """The store says of every stream that it is empty and goes on."""
    return StreamSize(stream, 0, False)


def undeclared_believed(is_believed):
    return lambda record, sender, message: isinstance(message, Undeclared) or is_believed(record, sender, message)


def silent_where_it_failed(ask):
    async def wrong(self, request):
        return tuple(one for one in await ask(self, request) if not isinstance(one, group_store.StoreFailed))

    return wrong


async def progress_alone(draft, stream, progress, acked=()):
    """What is acknowledged behind it is forgotten."""
    failed_deliveries.stage_progress(draft, stream, progress)


def waits_for_nothing(self, key, stream, offset, is_granted):
    pass


def delayed_for_a_while(reading, event, now_ns):
    return (SetTimer("delay", now_ns, session_record.reading_key(reading.owner, reading.stream)),)


def in_hand_left_out(report):
    def wrong(reading):
        (told,) = report(reading)
        return (replace(told, event=replace(told.event, in_hand=False)),)

    return wrong


def every_loss_counted(draft, stream):
    lost = draft.record.assignments[stream]
    failed_deliveries.note_failed(draft, stream, lost.progress, lost.failed + 1, is_sure=True)


BREAKS = {
    "SS-154": swap(listing, "open_ranks", open_all),
    "SS-155": swap(listing, "vanish", lambda draft, rank: None),
    "SS-156": wrap(plan, "stage", end_not_staged),
    "SS-162": swap(plan, "take_back", lambda draft, borrower: None),
    "SS-170": in_sessions("declare", do=declared_by_nobody),
    "SS-171": in_sessions("leave_all", do=None),
    "SS-172": swap(agent_process, "fresh", lambda life, number: f"{life}/1"),
    "SS-173": wrap(agent_process, "borrow", every_epoch_forgotten),
    "SS-174": in_sessions("refuse_more", when=lambda record, event: False),
    "SS-175": swap(AgentRecord, "remember", lambda self, borrower, reports: self),
    "SS-176": wrap(Handler, "__init__", asks_nobody_else),
    "SS-432": swap(ServerConnections, "is_working", AsyncMock(return_value=False)),
    "SS-433": swap(sqlite, "find_file", lambda path: (0, 0, 0)),
    "SS-434": swap(Connection, "refuse", lambda self, why: self._abort()),
    "SS-440": swap(Draft, "note_repeats", lambda self, stream: None),
    "SS-441": swap(claim, "may_repeat", lambda found, properties: False),
    "SS-442": swap(session, "find_handed", lambda reading, last: reading.handed),
    "SS-443": swap(Agent, "unsubscribe", lambda self, subscription, now_ns: []),
    "SS-435": swap(LeaderStarts, "keep", lambda self, question: False),
    "SS-244": swap(agent_process, "is_believed", lambda record, sender, message: True),
    "SS-250": wrap(agent_process, "is_believed", undeclared_believed),
    "SS-251": swap(Greeting, "_by_role", property(lambda self: False)),
    "SS-252": swap(tcp, "units_in", lambda certificate: frozenset({"leader"})),
    "SS-253": swap(Greeting, "_keys", property(lambda self: self._terms.secrets[:1])),
    "SS-254": swap(tcp.TcpTransport, "_outranked", lambda self, hello, other: ""),
    "SS-245": swap(agent_process, "is_misled", lambda record, borrower: False),
    "SS-246": wrap(agent_process, "end_subscription", witness_kept),
    "SS-177": swap(agent_process, "is_ours", lambda borrower, life: True),
    "SS-230": wrap(TakenName, "take", number_of_the_disk),
    "SS-231": wrap(TakenName, "hold", looks_at_nothing),
    "SS-232": wrap(TakenName, "_wait_for_turn", waits_for_nobody),
    "SS-233": swap(Connection, "_check_parties", lambda self, packet: None),
    "SS-180": routed(HANDLER, *(one for one in HANDLER.routes if one.clause != "SS-180")),
    "SS-181": bug.change_rows(HANDLER_MACHINE, "follow_borrower", do=nobody_dismissed),
    "SS-182": swap(handler_process, "Admit", lambda owner, alone, at_delivery: Admit(owner, False, at_delivery)),
    "SS-183": wrap(SharedSession, "_catch_up", turns_once),
    "SS-289": swap(Handler, "check_ack", lambda self, *what: None),
    "SS-296": swap(StalledStreams, "hand_over", lambda self, key: None),
    "SS-330": swap(DurableProgress, "wait", waits_for_nothing),
    "SS-331": swap(StalledStreams, "acknowledge", lambda self, key, buffer: None),
    "SS-335": swap(session, "back_off", lambda event, now_ns: ()),
    "SS-336": swap(session, "count_failures", lambda reading, offset: 0),
    "SS-337": swap(session, "is_in_use", lambda record: False),
    "SS-338": swap(session, "time_delay", delayed_for_a_while),
    "SS-339": wrap(session, "report", in_hand_left_out),
    "SS-340": swap(membership, "note_loss", lambda draft, stream: None),
    "SS-341": swap(membership, "note_loss", every_loss_counted),
    "SS-342": swap(plan, "is_spent", lambda record, stream: False),
    "SS-405": swap(group_filters, "order_of", lambda order: ""),
    "SS-407": swap(plan, "stage_progress", progress_alone),
    "SS-408": swap(session, "is_full", lambda reading: False),
    "SS-409": swap(listing, "find_reach", lambda progress, acked: progress),
    "SS-410": swap(returned_messages, "back_off_ns", lambda failed: 0),
    "SS-414": swap(sql_stores, "check_read", lambda oldest, groups, streams: oldest),
    "SS-412": swap(deliveries, "find_awaited", lambda reading, offset: None),
    "SS-413": swap(SharedSession, "check_ack", lambda session, messages: None),
    "SS-411": swap(session, "find_reason", lambda reading, offset: ""),
    "SS-344": swap(Configuration, "_check_max_deliver", lambda self, most: None),
    "SS-345": swap(Configuration, "_check_dead_letters", lambda self: None),
    "SS-347": wrap(stream_store.StreamStore, "_store_letter", append_again),
    "SS-349": swap(dead_letter_queue, "has_own_topic", lambda record: False),
    "SS-350": swap(dead_letter_queue, "REASONS", {False: "", True: ""}),
    "SS-354": swap(shared_subscriptions.shared_session, "REVOKED_MAX", 0),
    "SS-355": swap(shared_subscriptions.shared_session, "ACK_WAIT_MAX_S", float("inf")),
    "SS-380": swap(shared_subscriptions.deliveries, "decode_head", lambda encoded: EMPTY),
    "SS-381": swap(stream_append, "ADD", "INSERT INTO @messages VALUES (?, ?, x'90')"),
    "SS-382": swap(message_head, "check_head", lambda head: head),
    "SS-384": swap(RebalanceCallbacks, "is_settled", True),
    "SS-385": swap(RebalanceCallbacks, "_note_end", lambda self, before, owner, stream: None),
    "SS-386": swap(
        shared_subscriptions.rebalance_callbacks, "CUT_OFF", shared_subscriptions.rebalance_callbacks.BLOCKED
    ),
    "SS-387": swap(BytesInHand, "_find_room", lambda self: self._most),
    "SS-184": swap(loop_watchdog, "SAY_AGAIN_NS", 0),
    "SS-210": swap(Configuration, "_less", lambda self, *relation: None),
    "SS-211": swap(configuration, "_stretch", lambda duration_ns, drift: duration_ns),
    "SS-212": swap(stream_store, "check_filter", lambda topic_filter, subscription: None),
    "SS-213": wrap(group_store, "record_key", lengths_left_out),
    "SS-214": swap(names, "check_text", lambda key, value, most: None),
    "SS-227": swap(SqliteGroupStore, "_identify", lambda self, connection: None),
    "SS-236": swap(greeting, "check_store", lambda ours, theirs: None),
    "SS-225": wrap(RecordCodec, "read_all", unreadable_ends_it),
    "SS-163": swap(listing, "is_behind", lambda known: False),
    "SS-305": swap(postgres_address, "is_pooled", lambda connection: False),
    "SS-304": swap(sqlite_streams, "SIZE", "SELECT count, ended FROM @streams WHERE +id = ?"),
    "SS-226": swap(stream_store, "StreamSize", sizeless),
    "SS-215": wrap(GroupStore, "apply", expects_nothing),
    "SS-216": wrap(GroupStore, "apply", one_page),
    "SS-217": swap(StreamStore, "_batch", staticmethod(everything_is_there)),
    "SS-218": wrap(StreamStore, "_list", lambda pages: staticmethod(lambda *asked: replace(pages(*asked), more=False))),
    "SS-220": bug.change_rows(REGISTRY_MACHINE, "pass_to_leader", when=lambda record, event: False),
    "SS-221": bug.change_rows(REGISTRY_MACHINE, "say_gone", do=None),
    "SS-222": swap(registry, "is_fresh", lambda party: False),
    "SS-255": wrap(SqliteGroupStore, "ask", silent_where_it_failed),
    "SS-261": swap(shared_subscriptions.open_stores, "retry_while_unavailable", waits_for_nobody_s_database),
    "SS-256": swap(registry, "is_fresh", lambda party: False),
    "SS-259": wrap(ProcessRunner, "_end_first", timeouts_first),
    "SS-260": swap(Node, "_first_continuation", lambda self: None),
    "SS-264": swap(plan, "wants", lambda member: member.count < member.share),
    "SS-265": wrap(Draft, "_count", room_unseen),
    "SS-266": wrap(plan, "take_back", all_at_once),
    "SS-268": swap(borrower, "REPORTS_PER_PING", 10**9),
    "SS-257": swap(Milestones, "_say", lambda self, record, what, *words: None),
    "SS-258": swap(tcp, "encode_refusal", lambda why: b""),
    "SS-262": swap(leader_nodes, "check_sender", lambda sender, to, message, is_leader_host: None),
    "SS-275": bug.change_rows(REGISTRY_MACHINE, "hear_around", do=heard_directly),
    "SS-276": bug.combine(in_sessions("hear_around", do=agent_process.hear), swap(agent_process, "WAYS", ())),
    "SS-277": swap(message, "check_relay", lambda sender, message, is_leader_host: None),
    "SS-278": swap(configuration, "DETOURS_MAX", 2**31),
    "SS-279": swap(membership, "hear_by", lambda record, now_ns: SetTimer("idle", 2**60)),
    "SS-281": bug.change_rows(REGISTRY_MACHINE, "hold_back", do=registry.forget_leader),
    **{f"SS-{n}": without_choice("shared_subscriptions", f"SS-{n}") for n in range(310, 318)},
    "SS-320": from_anybody,
    "SS-321": beginning_anew,
    "SS-322": after_the_end_of_nothing,
    "SS-224": bug.change_rows(REGISTRY_MACHINE, "halt_all", to=STAY),
    "SS-223": swap(registry, "check_filter", lambda topic_filter, subscription: None),
}
