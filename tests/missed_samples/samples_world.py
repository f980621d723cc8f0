"""A world of one subscriber, its publishers and caches: nothing happens but what a test says, in that order.

A query waits in `open` until a test answers it, which caches that can be reached do in turn; what is told lies in
`told`, with the numbers of the wire.  `broken`: what of ORDER, ONCE and REPORT does not hold.
"""

from __future__ import annotations

from statemachines.kernel import Ask, Node, Send, Tell
from statemachines.missed_samples import message
from statemachines.missed_samples.cache import CACHE, CacheQuery, CacheRecord, Published, Reply, ReplyEnded
from statemachines.missed_samples.properties import SettledNumbers
from statemachines.missed_samples.publisher import PUBLISHER, Declare, Publish, PublisherRecord, Stamped
from statemachines.missed_samples.recovery import MS, Recovery, make_recovery
from statemachines.missed_samples.selector import query_text
from statemachines.missed_samples.serial_number import wrap_number
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_windows import NEWEST
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import Subscribe, SubscriberRecord

KEY = "demo/a"


class World:
    """`recovery` and `history` of the subscriber; caches are added by `cache`, publishers by `publisher`."""

    def __init__(self, *, history=None, width=64, reliable=True, **recovery):
        self.now = 0
        self.width = width
        self.told = []
        self.settled = {}
        self.broken = []
        self.open = []
        self.asked = []
        self.caches = {}
        self.publishers = {}
        self.keys = {}
        self.owners = {}
        self.clauses = []
        record = SubscriberRecord(make_recovery(reliable=reliable, **recovery), history, width)
        self.node = Node(SUBSCRIBER, record, name="s~1/1", now_ns=0, check=True, observe=self.saw)
        self.tell(Subscribe())

    def saw(self, node, event, status, step, now_ns):
        self.clauses.append(SUBSCRIBER.lines[step.row].clause)
        self.clauses += [SOURCE.lines[one.row].clause for one in step.children]

    # -- the subscriber -----------------------------------------------------------------------------------------

    def tell(self, event):
        """An event for the subscriber; what it told."""
        return self.perform(self.node.feed(event, self.now))

    def perform(self, effects):
        told = []
        for effect in effects:
            if isinstance(effect, Ask):
                self.asked.append(effect.request)
                self.open.append(effect.request)
            elif isinstance(effect, Tell):
                self.judge(effect.event)
                told.append(self.on_the_wire(effect.event))
        self.told += told
        return told

    def judge(self, event):
        if isinstance(event, message.Deliver | message.Missed):
            settled = self.settled.get(event.source, SettledNumbers())
            self.settled[event.source], broken = settled.observe(event.first, event.last)
            self.broken += broken

    def on_the_wire(self, event):
        if not isinstance(event, message.Deliver | message.Missed):
            return event
        first = wrap_number(event.first, self.width)
        return type(event)(event.source, first, first + event.last - event.first)

    def tick(self):
        """To the next timer of the subscriber."""
        self.now = max(self.now, self.node.deadline())
        return self.perform(self.node.fire(self.now))

    def wait(self, milliseconds):
        """So long, with every timer of the subscriber."""
        end = self.now + milliseconds * MS
        while (deadline := self.node.deadline()) is not None and deadline <= end:
            self.tick()
        self.now = end

    def numbers(self, kind, source="p"):
        return [wrap_number(n, self.width) for one in self.told if isinstance(one, kind) and one.source == source
                for n in range(one.first, one.last + 1)]  # fmt: skip

    def source(self, name="p"):
        return self.node.record.sources[name]

    @property
    def unnumbered(self):
        return sum(isinstance(one, message.DeliverUnnumbered) for one in self.told)

    # -- publishers and caches ----------------------------------------------------------------------------------

    def publisher(self, name="p", *, key=KEY, **given):
        record = PublisherRecord(name, key, width=self.width, **given)
        self.publishers[name] = Node(PUBLISHER, record, name=name, now_ns=self.now, check=True)
        self.publishers[name].feed(Declare(), self.now)
        self.keys[name] = key
        return self.publishers[name]

    def cache(self, name="cache", *, owner="", **given):
        """`owner`: the publisher beside which it stands."""
        record = CacheRecord(width=self.width, local=bool(owner), prefix=owner or message.EVERY_SOURCE, **given)
        self.caches[name] = Node(CACHE, record, name=name, now_ns=self.now, check=True)
        self.owners[name] = owner
        return self.caches[name]

    def publish(self, name="p", count=1, *, lost=False, missed_by=()):
        """Publish: kept by the publisher's own caches; where it is not lost taken by the subscriber, and by all other
        caches, but for those it is `missed_by`."""
        for effect in self.publishers[name].feed(Publish(count), self.now):
            if isinstance(effect, Tell):
                assert isinstance(effect.event, Stamped)
                self.keep(name, effect.event, [one for one, owner in self.owners.items() if owner], local=True)
            elif isinstance(effect, Send) and not lost:
                others = [one for one, owner in self.owners.items() if not owner and one not in missed_by]
                self.keep(name, effect.message, others, local=False)
                self.tell(effect.message)

    def keep(self, name, numbers, caches, *, local):
        first = wrap_number(numbers.first, self.width)
        last = first + numbers.last - numbers.first
        for cache in caches:
            own = local and self.owners[cache] == name
            self.caches[cache].feed(Published(self.keys[name], name, first, last, own, self.now), self.now)

    def beat(self, name="p", *, lost=False):
        """Let the publisher's heartbeat come due, if one is armed."""
        node = self.publishers[name]
        if node.deadline() is None:
            return
        self.now = max(self.now, node.deadline())
        for effect in node.fire(self.now):
            if isinstance(effect, Send) and not lost:
                assert isinstance(effect.message, message.Heartbeat)
                self.tell(effect.message)

    # -- queries ------------------------------------------------------------------------------------------------

    def answer(self, at=0, *, reached=None, lost=frozenset(), ends=True):
        """The open query at this place is answered by the caches that are `reached` (None: all); replies with a number
        that is `lost` do not come; then it `ends`."""
        query = self.open.pop(at)
        brought = 0
        for name, cache in list(self.caches.items()):
            if reached is not None and name not in reached:
                continue
            brought = max(brought, query.source == message.EVERY_SOURCE)
            for reply in self.replies(cache, query):
                for first, last in self.parts(reply, lost):
                    brought = max(brought, query.reach_of(last, self.width))
                    self.tell(message.Sample(reply.source, first, last))
                    self.tell(message.QueryGoesOn(query.source, query.n))
        if ends:
            self.tell(message.QueryEnded(query.source, query.n, brought))

    def answer_all(self):
        """Every query that is open, and those that follow."""
        while self.open:
            self.answer()

    def parts(self, reply, lost):
        """A reply as it comes: whole, or number by number where some are lost."""
        if not lost:
            return [(reply.first, reply.last)]
        sns = [wrap_number(number, self.width) for number in range(reply.first, reply.last + 1)]
        return [(sn, sn) for sn in sns if sn not in lost]

    def replies(self, cache, query):
        parameters = query_text(query, self.width)
        asked = CacheQuery("s~1/1", query.n, query.source, "demo/**", parameters, self.now)
        *replies, end = [effect.message for effect in cache.feed(asked, self.now)]
        assert isinstance(end, ReplyEnded)
        assert all(isinstance(one, Reply) for one in replies)
        return replies

    def end_empty(self, at=0):
        """The open query ends, and brought nothing."""
        query = self.open.pop(at)
        self.tell(message.QueryEnded(query.source, query.n))


def window(source, n, first, top, **given):
    """The query for the highest hole, as it is by default, where `top` has come."""
    return message.Query(source, n, first, **{"last": top + Recovery().pacing.ahead, **given})


def newest(source, n, first):
    """The query that looks for the newest from a number on."""
    return message.Query(source, n, first, NEWEST, 0, first - 1)
