"""The watch of missed samples: every property is broken by hand, and told by its name.

Simulated missed samples: runs hold, they repeat, limits bind, and faults do what they say.
"""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from broken_runs import WatchHand, runs_of
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Map, Node
from statemachines.missed_samples import cache, message, source_record, subscriber_record
from statemachines.missed_samples.cache import CACHE, CacheRecord, NotKept, Published
from statemachines.missed_samples.publisher import PUBLISHER, Publish, PublisherRecord
from statemachines.missed_samples.recovery import make_recovery
from statemachines.missed_samples.sample_queue import SampleQueue
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import SubscriberRecord
from statemachines.testing.steps import words_of
from statemachines_sim.campaign import campaign
from statemachines_sim.judge import Judge
from statemachines_sim.missed_samples import SIM
from statemachines_sim.missed_samples.section import SampleSection
from statemachines_sim.missed_samples.watch import SampleWatch
from statemachines_sim.scenario import (
    Net,
    Phases,
    Scenario,
    check_scenario,
    find_scenario,
    from_plain,
    list_shipped_with,
)
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

MS, S = 1_000_000, 1_000_000_000
LIFE = "subscriber-1~1"
FIRST, ALL = message.Query("p", 1, 1), message.Query("*", 1, 0)
TIMES = Map({number: number * S for number in range(2, 7)})


PROCESS = SimpleNamespace(life=LIFE, node="subscriber-1", is_paused=False)
"""A subscriber that does what a test says."""


class Bench(WatchHand):
    """A watch beside a subscriber whose every word a test makes up; `kept`: the sources that it says it keeps."""

    def __init__(self, *, history=None, whole=False, width=64, **recovery):
        self.own = SampleSection(recovery=make_recovery(**recovery), history=history, whole=whole, width=width)
        self.watch = SampleWatch(self.own, Judge())
        self.now = 0
        self.kept = set()
        self.dropped = 0
        self.turned_away = 0
        self.node = Node(SUBSCRIBER, SubscriberRecord(self.own.recovery), name=LIFE, now_ns=0)

    def set(self, **fields):
        vars(self).update(fields)

    def step(self, event):
        one = source_record.SourceRecord("x", self.own.recovery, dropped=self.dropped)
        sources = Map(dict.fromkeys(self.kept, one))
        record = SubscriberRecord(self.own.recovery, sources=sources, turned_away=self.turned_away)
        self.watch.step(self.node, event, None, SimpleNamespace(record=record), self.now)

    def publish(self, number):
        record = PublisherRecord("p", "demo/0", next=3)
        node = Node(PUBLISHER, replace(record, next=0), name="p", now_ns=0)
        self.watch.step(node, Publish(number), None, SimpleNamespace(record=record), 0)

    def come(self, *numbers, source="p"):
        """Samples come, of a source that is kept from then on."""
        self.kept.add(source)
        for number in numbers:
            self.step(message.Sample(source, number, number))

    def keep(self, *sources):
        self.kept = {*sources}

    def forget(self, why):
        self.keep()
        self.step(why)

    def turn_away(self, source):
        self.turned_away += 1
        self.step(message.Sample(source, 0, 0))
        self.tell(message.TurnedAway(source, 0, 0))

    def deliver(self, first, last=None, source="p"):
        self.tell(message.Deliver(source, first, first if last is None else last))

    def miss(self, first, last=None, source="p"):
        self.tell(message.Missed(source, first, first if last is None else last))

    def tell(self, event):
        self.watch.tell(PROCESS, LIFE, event, self.now)

    def ask(self, first, n=1, source="p"):
        last = first + self.own.recovery.pacing.ahead
        self.watch.observe_query(LIFE, message.Query(source, n, first, last=last), self.now)

    def ask_all(self):
        self.watch.observe_query(LIFE, ALL, 0)

    def look(self, first, n=1, source="p"):
        """It asks for the newest from a number on."""
        self.watch.observe_query(LIFE, message.Query(source, n, first, 2, 0, first - 1), self.now)

    def end(self, n=1, brought=2, source="p"):
        self.step(message.QueryEnded(source, n, brought))

    def gap(self):
        """0 is delivered, 2 has come, and 1 was asked for."""
        self.come(0)
        self.deliver(0)
        self.come(2)
        self.ask(1)

    def reach(self, *kept, node="subscriber-1", source="p", key="demo/1", query=FIRST, times=TIMES):
        """The query comes to a cache that keeps these ranges."""
        others = {("other", key): SampleQueue(((0, 0),), 1)} if query is FIRST else {}
        queues = Map({(source, key): SampleQueue(kept, 9, times), **others})
        self.watch.owed.reach(LIFE, node, query, CacheRecord(queues=queues), self.now)

    def lose(self, source, first, last):
        self.watch.owed.lose(LIFE, FIRST, source, first, last)

    def forgive(self):
        self.watch.owed.forgive(LIFE, FIRST)

    def sends(self, source, number):
        self.watch.sent[source] = number

    def comes_next(self, source, number):
        assert self.watch.readers[LIFE].sources[source].seen.next == number


class Shelf(Bench):
    """A cache whose queues a test makes up."""

    def __init__(self, **given):
        super().__init__()
        self.record = CacheRecord(**given)
        self.node = Node(CACHE, self.record, name="c~1/cache", now_ns=0)
        self.queues = {}
        self.not_kept = 0

    def hold(self, queues):
        self.queues = queues

    def step(self, event):
        record = replace(self.record, queues=Map(self.queues), not_kept=self.not_kept)
        self.watch.step(self.node, event, None, SimpleNamespace(record=record), 0)

    def come(self, first, last, *kept, source="p"):
        """Samples come, and these ranges are kept then."""
        self.queues[source, "k"] = SampleQueue(kept, sum(end - begin + 1 for begin, end in kept))
        self.step(Published("k", source, first, last))

    def refuse(self, first, last, source):
        """Samples come, and find no place."""
        self.not_kept += last - first + 1
        self.step(Published("k", source, first, last))
        self.tell(NotKept("k", source, first, last))

    def crowd(self):
        """One queue, of two, is silent, and somebody has found no place."""
        self.come(0, 0, (0, 0))
        self.come(0, 0, (0, 0), source="q")
        self.refuse(2, 3, source="r")
        self.come(1, 1, (1, 1), source="q")

    def let_go(self, *sources):
        for source in sources:
            del self.queues[source, "k"]

    def tell(self, event):
        self.watch.tell(PROCESS, "c~1/cache", event, 0)


def quick(**given):
    """A bench whose deadline and pauses are short."""
    return Bench(retries=0, deadline_ms=1_500, backoff_ms=100, backoff_max_ms=500, **given)


WORDS = {"HAND": Bench, **globals()}
for module in (message, source_record, subscriber_record, cache):
    WORDS.update(words_of(module.__name__))
test_broken = runs_of(Path(__file__).parent / "broken/watch.txt", WORDS)


NAMES = sorted(list_shipped_with(SIM.name))
CALM = Scenario(
    "calm", SIM.name, SampleSection(beats="periodic"), network=Net((1, 5), tail=0.0), phases=Phases(6.0, 60.0)
)
SHOWS = {
    "cache_of_one": "missed",
    "come_and_go": "forgotten",
    "crowded_caches": "let_go",
    "first_lost": "forgotten",
    "in_order": "unnumbered",
    "little_held": "missed",
    "made_up": "turned_away",
    "new_id": "forgotten",
    "nobody_kept_it": "missed",
    "one_stuck": "missed",
    "only_tokens": "forgotten",
}
"""What a scenario is there for happens."""
SHOWN_LATE = {"crowded_caches"}
"""It happens only after more than six seconds."""


def calm(*faults, seed=0, **keys):
    """A run with these faults and no others."""
    own = replace(CALM.own, **keys)
    world = World(replace(CALM, own=own), seed, schedule=faults)
    outcome = world.run()
    assert outcome.is_held, outcome
    return world, outcome.tally


@pytest.mark.parametrize("safety_s", mark_long((6.0, math.inf), "inf"))
@pytest.mark.parametrize("name", mark_long(NAMES, "many_parties"))
def test_every_scenario_of_missed_samples_holds(name, safety_s):
    """NOGAP, ORDER, ONCE, REPORT, INVENTED, HASTY, QUIET, ASKED, LIVE, ISOLATION, TAIL, BOUND, PLACES, FORGOTTEN,
    WHOLE, REPLIES, QUEUES, COUNT and TIMING are judged in each."""
    scenario = find_scenario(f"{SIM.name}/{name}")
    if name not in SHOWN_LATE:
        scenario = replace(scenario, phases=replace(scenario.phases, safety_s=min(safety_s, scenario.phases.safety_s)))
    for outcome in campaign(scenario, range(1), processes=1):
        assert outcome.is_held, outcome
        assert outcome.tally["delivered"] > 0
        assert outcome.tally[SHOWS.get(name, "queries")] > 0
        assert outcome.lasted_ns > 0


@pytest.mark.long
def test_monitors_and_silence_change_nothing_of_a_run():
    scenario = find_scenario(f"{SIM.name}/new_id")
    judged, bare, silent = (World(scenario, 2, **keys) for keys in ({}, {"monitors": False}, {"trace": False}))
    assert judged.run().is_held
    assert bare.run().is_held
    assert len(bare.rows) > 10_000
    assert [row[:4] for row in judged.rows[: len(bare.rows)]] == [row[:4] for row in bare.rows], (
        "nobody waits for goals that nobody judges"
    )
    assert silent.run().tally == judged.watch.tally()


HEAD = {"name": "x", "protocol": SIM.name}


@pytest.mark.parametrize(
    ("own", "faults", "said"),
    [
        ({"cache_retention_ms": 0}, {}, "cache_retention_ms"),
        ({"publish_ms": [0, 5]}, {}, "publish_ms"),
        ({"strangers_ms": [0, 5]}, {}, "strangers_ms"),
        ({"width": 1}, {}, "width"),
        ({"stuck": 9}, {}, "stuck"),
        ({"begin": 5, "recovery": {"past": True}}, {}, "begin"),
        ({"join_subscribers_s": [99.0]}, {}, "join_subscribers_s"),
        ({"recovery": {"sources": 0}}, {}, "sources"),
        ({}, {"lost_reply": [1, 2]}, "faults.lost_reply"),
        ({}, {"early_end": [0, 1]}, "faults.early_end"),
        ({"subscribers": 0}, {"slow_reader": [1, 1]}, "faults.slow_reader"),
    ],
)
def test_a_section_that_cannot_be_is_refused_by_the_name_of_the_key(own, faults, said):
    with pytest.raises((ConfigurationError, ValueError), match=said):
        check_scenario(from_plain({**HEAD, SIM.name: own, "faults": faults}))


@pytest.mark.parametrize(
    ("bug", "name", "broken"),
    [
        ("empty-end-convicts", "nothing_yet", "HASTY"),
        ("asks-no-more", "no_end", "HASTY"),
        ("silence-convicts", "no_end", "InvariantViolated"),
        ("transport-is-believed", "lost_replies", "HASTY"),
        ("period-once", "tail_by_period", "TAIL"),
        ("reply-convicts-nothing", "cache_of_one", "ASKED"),
        ("turned-away-in-silence", "made_up", "PLACES"),
    ],
)
def test_a_planted_bug_is_found_in_the_scenario_that_is_about_it(bug, name, broken):
    with plant_bug(f"{SIM.name}/{bug}"):
        assert World(find_scenario(f"{SIM.name}/{name}"), 0, trace=False).run().monitor == broken
