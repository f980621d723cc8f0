"""How the clauses of shared subscriptions that are no rows are broken (tools/clauses.py)."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from msgspec.structs import replace
from mutants import swap, without_choice, wrap

from statemachines.drivers import greeting, loop_watchdog, tcp
from statemachines.drivers.greeting import Greeting
from statemachines.drivers.shared_subscriptions import leader_node, old_keys, open_stores
from statemachines.drivers.shared_subscriptions.milestones import Milestones
from statemachines.drivers.shared_subscriptions.record_codec import RecordCodec
from statemachines.drivers.shared_subscriptions.shared_session import SharedSession
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore
from statemachines.drivers.shared_subscriptions.sqlite import stream_store as sqlite_streams
from statemachines.drivers.shared_subscriptions.sqlite import tables as sqlite_tables
from statemachines.drivers.shared_subscriptions.stalled_streams import StalledStreams
from statemachines.drivers.shared_subscriptions.taken_name import TakenName
from statemachines.drivers.sql import postgres_address
from statemachines.drivers.tcp import Connection
from statemachines.kernel import Host, Node, SetTimer, in_order, keys_in_order
from statemachines.shared_subscriptions import (
    agent,
    borrower,
    configuration,
    group_store,
    handler,
    listing,
    membership,
    names,
    plan,
    registry,
    relay,
    stream_store,
)
from statemachines.shared_subscriptions.agent import Agent
from statemachines.shared_subscriptions.assignment import GRANTING
from statemachines.shared_subscriptions.borrower import Destroyed
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import Commit, GroupStore, Scan
from statemachines.shared_subscriptions.handler import Handler
from statemachines.shared_subscriptions.message import END_OF_STREAM, LeaderWanted, Undeclared
from statemachines.shared_subscriptions.plan import Draft
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.session import Admit
from statemachines.shared_subscriptions.stream_store import Batch, StreamSize, StreamStore

# -- borrowers of others --------------------------------------------------------------------------------------------


def after_the_end_of_nothing(stack):
    """Over the wire a borrower that has ended may repeat nothing."""
    from statemachines.testing.shared_subscriptions import conformance

    role = conformance.ROLES["borrower"]
    mutant = replace(role, wire=replace(role.wire, after_end=()))
    stack.enter_context(patch.dict(conformance.ROLES, {"borrower": mutant}))


def from_anybody(stack):
    """Over the wire any party speaks for any other."""
    from statemachines.testing.conformance.wire_peer import WirePeer

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


def timeouts_first(feed):
    def wrong(self, party, event, now_ns):
        return self.fire(now_ns) + feed(self, party, event, now_ns)

    return wrong


def turns_once(catch_up):
    async def wrong(self):
        await asyncio.sleep(0)

    return wrong


async def waits_for_nobody_s_database(make, store, **given):
    return make(store)


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


# -- agent, handler, registry ---------------------------------------------------------------------------------------


def first_registry_only(begin):
    def init(self, host, registries, *rest, **more):
        begin(self, host, registries if isinstance(registries, str) else registries[:1], *rest, **more)

    return init


def epoch_forgotten(highest):
    return lambda self, wanted, seen, now_ns: 0 * highest(self, wanted, seen, now_ns)


def nobody_dismissed(told):
    return lambda self, party, event, now_ns: (
        Agent.route_tell(self, party, event, now_ns)
        if isinstance(event, Destroyed)
        else told(self, party, event, now_ns)
    )


def halted_only(close):
    return lambda self, now_ns: self.halt(now_ns)


def always_another(want):
    """Each leader_wanted starts a leader."""

    def wanted(self, message, now_ns):
        self.leaders.pop((message.group, message.filter), None)
        return want(self, message, now_ns)

    return wanted


def says_nothing(receive):
    """Who talks to a leader that is gone is not told."""
    return lambda self, to, message, now_ns: (
        receive(self, to, message, now_ns)
        if to in self.nodes or isinstance(message, LeaderWanted)
        else self.fire(now_ns)
    )


def passed_on_for_ever(receive):
    return lambda self, to, message, now_ns: (
        self._want(message, now_ns) if isinstance(message, LeaderWanted) else receive(self, to, message, now_ns)
    )


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
    return Batch(one.stream, one.grant, one.first, one.first + one.limit - 1, False)


def lengths_left_out(key):
    """Keys as they were."""
    return lambda group, topic_filter, name: f"{group}/{topic_filter}:{name}"


def nothing_moved(translate):
    """Old keys are left where they are."""
    return lambda encoded: old_keys.Translated({}, sorted(encoded))


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


def gone_started_anew(receive):
    def wrong(self, to, message, now_ns):
        is_wanted = isinstance(message, LeaderWanted) and to not in self.nodes
        return receive(self, self.host if is_wanted and to.startswith(f"{self.host}/") else to, message, now_ns)

    return wrong


BREAKS = {
    "SS-154": swap(listing, "open_ranks", open_all),
    "SS-155": swap(listing, "vanish", lambda draft, rank: None),
    "SS-156": wrap(plan, "stage", end_not_staged),
    "SS-162": swap(plan, "take_back", lambda draft, borrower: None),
    "SS-170": swap(Agent, "_begin", lambda self, one, now_ns: self._borrow(one, one, 0, now_ns)),
    "SS-171": swap(Agent, "on_disconnect", lambda self, now_ns: self.fire(now_ns)),
    "SS-172": swap(Agent, "_fresh", lambda self: agent.fresh(self.host, 1)),
    "SS-173": wrap(Agent, "_highest_epoch", epoch_forgotten),
    "SS-174": swap(Agent, "_check_room", lambda self: None),
    "SS-175": swap(Agent, "_remember", lambda self, borrower, reports: None),
    "SS-176": wrap(Agent, "__init__", first_registry_only),
    "SS-244": swap(agent, "is_believed", lambda record, sender, message: True),
    "SS-250": wrap(agent, "is_believed", undeclared_believed),
    "SS-251": swap(Greeting, "_by_role", property(lambda self: False)),
    "SS-252": swap(tcp, "units_in", lambda certificate: frozenset({"leader"})),
    "SS-253": swap(Greeting, "_keys", property(lambda self: self._terms.secrets[:1])),
    "SS-254": swap(tcp.TcpTransport, "_outranked", lambda self, hello, other: ""),
    "SS-245": swap(agent, "is_misled", lambda record, borrower: False),
    "SS-246": swap(Agent, "_dismiss_witness", lambda self, ended: None),
    "SS-177": swap(agent, "life_of", lambda party: Everybody()),
    "SS-230": wrap(TakenName, "take", number_of_the_disk),
    "SS-231": wrap(TakenName, "hold", looks_at_nothing),
    "SS-232": wrap(TakenName, "_wait_for_turn", waits_for_nobody),
    "SS-233": swap(Connection, "_check_parties", lambda self, packet: None),
    "SS-180": swap(handler, "TO_SESSION", ()),
    "SS-181": wrap(Handler, "told", nobody_dismissed),
    "SS-182": swap(handler, "Admit", lambda owner, alone, at_delivery: Admit(owner, False, at_delivery)),
    "SS-183": wrap(SharedSession, "_catch_up", turns_once),
    "SS-289": swap(Handler, "check_ack", lambda self, *what: None),
    "SS-296": swap(StalledStreams, "hand_over", lambda self, key: None),
    "SS-184": swap(loop_watchdog, "SAY_AGAIN_NS", 0),
    "SS-210": swap(Configuration, "_less", lambda self, *relation: None),
    "SS-211": swap(configuration, "_stretch", lambda duration_ns, drift: duration_ns),
    "SS-212": swap(stream_store, "check_filter", lambda topic_filter, subscription: None),
    "SS-213": wrap(group_store, "record_key", lengths_left_out),
    "SS-214": swap(names, "check_text", lambda key, value, most: None),
    "SS-219": wrap(sqlite_tables, "translate", nothing_moved),
    "SS-227": swap(SqliteGroupStore, "_identify", lambda self, connection: None),
    "SS-236": swap(greeting, "check_store", lambda ours, theirs: None),
    "SS-225": wrap(RecordCodec, "read_all", unreadable_ends_it),
    "SS-163": swap(listing, "is_behind", lambda known: False),
    "SS-305": swap(postgres_address, "is_pooled", lambda connection: False),
    "SS-304": swap(sqlite_streams, "SIZE", "SELECT count, ended FROM streams WHERE +id = ?"),
    "SS-226": swap(stream_store, "StreamSize", sizeless),
    "SS-215": wrap(GroupStore, "apply", expects_nothing),
    "SS-216": wrap(GroupStore, "apply", one_page),
    "SS-217": swap(StreamStore, "_batch", staticmethod(everything_is_there)),
    "SS-218": wrap(StreamStore, "_list", lambda pages: staticmethod(lambda *asked: replace(pages(*asked), more=False))),
    "SS-220": wrap(Registry, "_want", always_another),
    "SS-221": wrap(Registry, "receive", says_nothing),
    "SS-222": wrap(Registry, "receive", passed_on_for_ever),
    "SS-255": wrap(SqliteGroupStore, "ask", silent_where_it_failed),
    "SS-261": swap(open_stores, "opened", waits_for_nobody_s_database),
    "SS-256": wrap(Registry, "receive", gone_started_anew),
    "SS-259": wrap(Host, "feed", timeouts_first),
    "SS-260": swap(Node, "_first_continuation", lambda self: None),
    "SS-264": swap(plan, "wants", lambda member: member.count < member.share),
    "SS-265": wrap(Draft, "_count", room_unseen),
    "SS-266": wrap(plan, "take_back", all_at_once),
    "SS-268": swap(borrower, "REPORTS_PER_PING", 10**9),
    "SS-257": swap(Milestones, "_say", lambda self, record, what, *words: None),
    "SS-258": swap(tcp, "encode_refusal", lambda why: b""),
    "SS-262": swap(leader_node, "check_sender", lambda sender, to, message, is_leader_host: None),
    "SS-275": swap(
        Registry, "_hear_around", lambda self, event, now_ns: self.feed(event.leader, event.message, now_ns)
    ),
    "SS-276": swap(Agent, "_note_way", lambda self, message: None),
    "SS-277": swap(relay, "check_relay", lambda sender, message, is_leader_host: None),
    "SS-278": swap(relay, "DETOURS_MAX", 2**31),
    "SS-279": swap(membership, "hear_by", lambda record, now_ns: SetTimer("idle", 2**60)),
    "SS-281": swap(Registry, "_hold_back", lambda self, event, now_ns: None),
    **{f"SS-{n}": without_choice("shared_subscriptions", f"SS-{n}") for n in range(310, 318)},
    "SS-320": from_anybody,
    "SS-321": beginning_anew,
    "SS-322": after_the_end_of_nothing,
    "SS-224": wrap(Registry, "close", halted_only),
    "SS-223": swap(registry, "check_filter", lambda topic_filter, subscription: None),
}
