"""The Group machine, clause by clause (clauses.md SS-200 to SS-208, SS-263), over the pure store."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines.kernel import Ask, Map, Node, Stop, Tell
from statemachines.shared_subscriptions import group as module
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group import (
    GROUP,
    DeclarationRefused,
    Declare,
    Destroy,
    GroupDeclared,
    GroupDestroyed,
    GroupRecord,
    GroupStatus,
    make_difference_error,
    start_of,
)
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    GroupStore,
    Properties,
    Scan,
    StoredRecord,
    StoreFailed,
)

C = Configuration(claim_ttl_ms=15_000, claim_heartbeat_ms=5_000).check()
LEASE_MS = C.lease_by_other_clock_ns() // MS + 1
PROPERTIES = Properties(0, 1000, 2000, 15000)
STORE = GroupStore()


def marked(properties=PROPERTIES):
    return Properties(properties.start_ns, 1000, 2000, 15000, destroyed=True)


def records(**named):
    """A store with these records of the group, all written at time 0; `progress`: of so many streams."""
    count = named.pop("progress", 0)
    state = {f"/1.1/g/#:{name}": StoredRecord(value, 0) for name, value in named.items()}
    state |= {f"/1.1/g/#:progress:{number:04}": StoredRecord(number, 0) for number in range(count)}
    return Map(state)


class Bench:
    """One operation over the pure store, which answers at once; `fail(request)` says how a request fails."""

    def __init__(self, state=None, configuration=C, now_ms=0):
        self.state = STORE.initial() if state is None else state
        self.now = now_ms
        self.fail = lambda request: ""
        self.clauses, self.told, self.requests, self.stops = [], [], [], 0
        self.before = GroupRecord("c1~1/1", "g", "#", configuration)
        self.node = Node(GROUP, self.before, name="c1~1/1", now_ns=0, check=True, observe=self.saw)

    def saw(self, node, event, before, step, now_ns):
        self.clauses.append(GROUP.lines[step.row].clause)
        reference = GROUP.reference_step(self.before, event, now_ns)
        assert (reference.record, reference.effects, reference.row) == (step.record, step.effects, step.row)
        self.before = step.record

    def feed(self, event):
        self.perform(self.node.feed(event, self.now * MS))
        return self

    def perform(self, effects):
        for effect in effects:
            self.stops += isinstance(effect, Stop)
            if isinstance(effect, Tell):
                self.told.append(effect.event)
            elif isinstance(effect, Ask):
                self.requests.append(effect.request)
                failing = self.fail(effect.request)
                answer = StoreFailed(effect.request.n)
                if failing != "before":
                    self.state, (done,) = STORE.apply(self.state, effect.request, self.now * MS)
                    answer = answer if failing == "after" else done
                self.perform(self.node.feed(answer, self.now * MS))

    def at(self, ms):
        while not self.node.stopped and (due := self.node.deadline()) is not None and due <= ms * MS:
            self.now = due // MS
            self.perform(self.node.fire(due))
        self.now = ms
        return self

    @property
    def status(self):
        return self.node.record.status

    def stored(self, name):
        found = self.state.get(f"/1.1/g/#:{name}")
        return None if found is None else found.value


def test_SS_200_a_group_is_declared_from_a_time_on():
    for start_ns, begins in ((0, 0), (5, 5), (-1, 70 * MS)):
        bench = Bench(now_ms=70).feed(Declare(start_ns))
        assert bench.told == [GroupDeclared("g", "#", begins, False)]
        assert bench.stored("properties") == Properties(begins, 1000, 2000, 15000)
        assert bench.clauses[-1] == "SS-200"
        assert bench.stops == 1, "its host keeps nothing of it"


@pytest.mark.parametrize("claim", [Claim("", 4, clean=True), Claim("leader-1~1/1", 4)])
def test_SS_200_a_claim_that_a_group_of_before_has_left_stands_in_nobody_s_way(claim):
    bench = Bench(records(claim=claim)).feed(Declare(0))
    assert bench.told == [GroupDeclared("g", "#", 0, False)]
    assert bench.stored("claim") == claim


def test_SS_201_a_group_that_is_declared_is_left_as_it_is():
    state = records(properties=Properties(7, 1000, 2000, 15000))
    bench = Bench(state).feed(Declare(0))
    assert bench.told == [GroupDeclared("g", "#", 7, True)]
    assert bench.state == state
    assert bench.stops == 1, "its host keeps nothing of it"
    assert bench.clauses[-1] == "SS-201"


def test_SS_202_a_group_that_lives_by_other_times_is_refused():
    other = Configuration(claim_ttl_ms=20_000).check()
    bench = Bench(records(properties=PROPERTIES), other).feed(Declare(0))
    assert bench.told == [DeclarationRefused("g", "#", PROPERTIES)]
    assert bench.stops == 1, "its host keeps nothing of it"
    assert bench.clauses[-1] == "SS-202"
    assert str(make_difference_error(other, PROPERTIES)) == (
        "claim_ttl_ms = 20000: the group lives by claim_ttl_ms = 15000: use the same"
    )


def test_SS_203_a_group_is_marked_before_anything_is_removed():
    bench = Bench(records(properties=PROPERTIES, progress=3))
    bench.fail = lambda request: "before" if isinstance(request, Scan) else ""
    bench.feed(Destroy())
    assert bench.stored("properties") == marked()
    assert bench.stored("progress:0002") == 2
    assert "SS-203" in bench.clauses


def test_SS_203_of_two_that_change_it_one_begins_again():
    bench = Bench(records(properties=PROPERTIES))
    bench.node.feed(Destroy(), 0)
    read, others = STORE.apply(bench.state, bench_request(bench), 0)[1], Bench(bench.state).feed(Destroy())
    bench.state = others.state
    bench.perform(bench.node.feed(read[0], 0))
    assert "SS-207" in bench.clauses
    bench.at(60_000)
    assert bench.told == [GroupDestroyed("g", "#", True)]


def bench_request(bench):
    """The first read of an operation."""
    return module.Read(bench.node.record.n, ("/1.1/g/#:properties", "/1.1/g/#:claim"))


def test_SS_204_a_declaration_completes_a_destruction_first():
    bench = Bench(records(properties=marked(), progress=3, claim=Claim("", 4, clean=True)), now_ms=9).feed(Declare(0))
    assert bench.told == [GroupDeclared("g", "#", 0, False)]
    assert bench.stored("progress:0001") is None
    assert bench.stored("claim") == Claim("", 4, clean=True)
    assert "SS-204" in bench.clauses


def test_SS_204_a_destruction_that_was_left_half_way_is_completed():
    bench = Bench(records(properties=marked(), progress=3)).feed(Destroy())
    assert list(bench.state) == []
    assert bench.told == [GroupDestroyed("g", "#", False)]


def test_SS_205_progress_goes_in_pages_and_the_mark_last(monkeypatch):
    monkeypatch.setattr(module, "PAGE", 2)
    bench = Bench(records(properties=PROPERTIES, progress=5, root=3, claim=Claim("", 4, clean=True))).feed(Destroy())
    removed = [[key for key, value in one.put if value is None] for one in bench.requests if isinstance(one, Commit)]
    assert [len(keys) for keys in removed] == [0, 2, 2, 1, 1]
    assert removed[-1] == ["/1.1/g/#:properties"]
    assert sorted(bench.state) == ["/1.1/g/#:claim", "/1.1/g/#:root"]
    assert "SS-205" in bench.clauses


def declared_anew(state):
    """The group, destroyed by somebody else to the end and declared once more, with progress of its own."""
    state = Bench(state).feed(Destroy()).state
    return Bench(state, now_ms=9).feed(Declare(3)).state.set("/1.1/g/#:progress:new", StoredRecord(8, 0))


@pytest.mark.parametrize("found", [PROPERTIES, marked()])
@pytest.mark.parametrize("failing", ["", "before", "after"])
@pytest.mark.parametrize("number", range(6))
def test_SS_263_a_group_that_is_declared_meanwhile_is_not_destroyed_with_the_one_before(found, failing, number):
    """Before whichever request, and whether or not the store answers that."""
    bench = Bench(records(properties=found, progress=1))
    undisturbed = Bench(bench.state).feed(Destroy())
    anew = []

    def declared_meanwhile(request):
        if len(bench.requests) != number + 1:
            return ""
        anew.append(declared_anew(bench.state))
        bench.state = anew[0]
        return failing

    bench.fail = declared_meanwhile
    bench.feed(Destroy()).at(60_000)
    assert len(bench.told) == 1
    if number == 0:
        assert list(bench.state) == [], "it was declared before anything was read: that is the group that was found"
    else:
        assert bench.state == anew[0]
        assert bench.told == undisturbed.told
        assert bench.clauses[-1] in ("SS-263", "SS-206")


@pytest.mark.parametrize(
    ("claim", "settled_ms"),
    [
        (None, 0),
        (Claim("", 4, clean=True), 1),
        (Claim("", 4), LEASE_MS),
        (Claim("leader-1~1/1", 4), 15_000 + LEASE_MS),
    ],
)
def test_SS_206_it_is_done_when_every_lease_has_surely_ended(claim, settled_ms):
    bench = Bench(records(properties=PROPERTIES) if claim is None else records(properties=PROPERTIES, claim=claim))
    bench.feed(Destroy())
    if settled_ms > 1:
        bench.at(settled_ms - 1)
        assert bench.status is GroupStatus.SETTLING
    bench.at(settled_ms + 1_000)
    assert bench.told == [GroupDestroyed("g", "#", True)]
    assert bench.clauses[-1] == "SS-206"


def test_SS_206_the_times_of_the_group_count_not_ours():
    theirs = Properties(0, 2000, 4000, 15000)
    bench = Bench(records(properties=theirs, claim=Claim("", 4))).feed(Destroy()).at(6_000)
    assert bench.status is GroupStatus.SETTLING
    assert bench.at(8_000).told == [GroupDestroyed("g", "#", True)]


def test_SS_206_whoever_takes_the_claim_before_the_mark_is_there_is_waited_for():
    """Its epoch is another one than was read with the properties, and it may have granted since."""
    bench = Bench(records(properties=PROPERTIES, claim=Claim("", 4, clean=True)))
    bench.fail = lambda request: "before" if isinstance(request, Scan) else ""
    bench.feed(Destroy())
    bench.fail = lambda request: ""
    bench.state = bench.state.set("/1.1/g/#:claim", StoredRecord(Claim("leader-2~1/1", 5), 3 * MS))
    bench.at(15_000 + LEASE_MS - 1)
    assert bench.told == []
    bench.at(40_000)
    assert bench.told == [GroupDestroyed("g", "#", True)]


def test_SS_205_the_mark_stays_until_nothing_is_delivered_under_it_any_more():
    bench = Bench(records(properties=PROPERTIES, progress=3, claim=Claim("leader-1~1/1", 4))).feed(Destroy())
    bench.at(15_000 + LEASE_MS - 1)
    assert bench.stored("properties") == marked()
    assert sorted(bench.state) == ["/1.1/g/#:claim", "/1.1/g/#:properties"]
    bench.at(40_000)
    assert sorted(bench.state) == ["/1.1/g/#:claim"]


@pytest.mark.parametrize("operation", [Declare(0), Destroy()])
def test_SS_206_a_node_of_shorter_times_waits_for_those_that_stand_in_the_mark(operation):
    """Whether it destroys the group as well, or declares it anew."""
    state = records(properties=marked(), claim=Claim("", 4))
    shorter = Configuration(ping_interval_ms=500, ping_timeout_ms=1000, max_delay_ms=200).check()
    assert shorter.lease_by_other_clock_ns() < C.lease_by_other_clock_ns()
    bench = Bench(state, shorter).feed(operation)
    bench.at(LEASE_MS - 1)
    assert bench.told == []
    assert bench.stored("properties") == marked()
    bench.at(LEASE_MS + 1_000)
    assert len(bench.told) == 1


def test_SS_206_who_finds_nothing_has_nothing_to_wait_for():
    bench = Bench(records(claim=Claim("leader-1~1/1", 4))).feed(Destroy())
    assert bench.told == [GroupDestroyed("g", "#", False)]


@pytest.mark.parametrize("again", [False, True])
def test_SS_206_who_finds_that_another_has_removed_the_mark_is_done(again):
    """Also where the group has been declared again since: that one is left alone."""
    bench = Bench(records(properties=PROPERTIES, claim=Claim("", 4))).feed(Destroy())
    bench.state = bench.state.delete("/1.1/g/#:properties")
    if again:
        bench.state = Bench(bench.state).feed(Declare(3)).state
    bench.at(1_000)
    assert bench.told == [GroupDestroyed("g", "#", True)]
    assert bench.stored("properties") == (Properties(3, 1000, 2000, 15000) if again else None)


@pytest.mark.parametrize("again", [False, True])
def test_SS_206_who_comes_to_remove_the_mark_and_finds_it_gone_is_done(again):
    """Also where the group has been declared again since: that one is left alone."""
    bench = Bench(records(properties=PROPERTIES, claim=Claim("", 4, clean=True)))

    def removed_meanwhile(request):
        if isinstance(request, Commit) and request.put == (("/1.1/g/#:properties", None),):
            bench.state = bench.state.delete("/1.1/g/#:properties")
            if again:
                bench.state = Bench(bench.state).feed(Declare(3)).state
        return ""

    bench.fail = removed_meanwhile
    bench.feed(Destroy())
    assert bench.clauses[-1] == "SS-206"
    assert bench.told == [GroupDestroyed("g", "#", True)]
    assert bench.stored("properties") == (Properties(3, 1000, 2000, 15000) if again else None)


def test_SS_205_the_mark_that_is_expected_is_the_one_that_was_written():
    """Later than what it was put in the place of."""
    bench = Bench(records(properties=PROPERTIES, progress=3, claim=Claim("", 4, clean=True)), now_ms=70).feed(Destroy())
    assert bench.told == [GroupDestroyed("g", "#", True)]
    assert "SS-207" not in bench.clauses, "nothing was begun again"


def test_SS_204_a_declaration_that_waits_goes_on_when_another_has_removed_the_mark():
    bench = Bench(records(properties=marked(), claim=Claim("", 4))).feed(Declare(0))
    bench.state = Bench(bench.state.delete("/1.1/g/#:properties")).feed(Declare(3)).state
    bench.at(1_000)
    assert "SS-204" in bench.clauses
    assert bench.told == [GroupDeclared("g", "#", 3, True)]


def test_SS_206_a_claim_that_changes_is_watched_from_then_on():
    bench = Bench(records(properties=PROPERTIES, claim=Claim("leader-1~1/1", 4))).feed(Destroy())
    bench.at(14_000)
    renewed = StoredRecord(Claim("leader-1~1/1", 4), 14_500 * MS)
    bench.state = bench.state.set("/1.1/g/#:claim", renewed)
    bench.at(19_000)
    assert bench.told == []
    bench.state = bench.state.set("/1.1/g/#:claim", replace(renewed, stamp=19_500 * MS))
    for second_ms in range(20_000, 37_000, 1_000):
        bench.at(second_ms)
        assert bench.told == [], "a claim_ttl and a lease after it was found so"
    bench.at(40_000)
    assert bench.told == [GroupDestroyed("g", "#", True)]


def test_SS_206_a_claim_that_has_changed_at_last_is_not_taken_for_the_one_that_was_watched():
    claim = Claim("leader-1~1/1", 4)
    bench = Bench(records(properties=PROPERTIES, claim=claim)).feed(Destroy())
    bench.at((15_000 + LEASE_MS) // 1_000 * 1_000)
    assert bench.told == []
    bench.state = bench.state.set("/1.1/g/#:claim", StoredRecord(claim, 7))
    bench.at(25_000)
    assert bench.told == []


def test_SS_206_a_group_that_never_was_is_destroyed_at_once():
    bench = Bench().feed(Destroy())
    assert bench.told == [GroupDestroyed("g", "#", False)]
    assert bench.stops == 1, "its host keeps nothing of it"


def test_SS_204_a_mark_is_found_though_nobody_ever_claimed_the_group():
    bench = Bench(records(properties=marked(), progress=3)).feed(Declare(0))
    assert bench.told == [GroupDeclared("g", "#", 0, False)]
    assert bench.clauses.count("SS-204") == 2


@pytest.mark.parametrize("failing", ["before", "after"])
@pytest.mark.parametrize("operation", [Declare(0), Destroy()])
def test_SS_207_whatever_request_fails_it_is_begun_again(failing, operation):
    state = records(properties=PROPERTIES, progress=3) if isinstance(operation, Destroy) else records()
    undisturbed = Bench(state).feed(operation).at(60_000)
    for number in range(len(undisturbed.requests)):
        bench = Bench(state)
        bench.fail = lambda request, b=bench, k=number: failing if len(b.requests) == k + 1 else ""
        bench.feed(operation).at(60_000)
        assert len(bench.told) == 1
        numbers = [one.n for one in bench.requests]
        assert len(set(numbers)) == len(numbers), "no answer is taken for that to another request"
        assert type(bench.told[0]) is type(undisturbed.told[0])
        assert {key: stored.value for key, stored in bench.state.items()} == {
            key: stored.value for key, stored in undisturbed.state.items()
        }


def test_SS_208_repetitions_and_late_answers_change_nothing():
    bench = Bench()
    bench.node.feed(Destroy(), 0)
    before = bench.node.record
    for event in (Declare(0), Destroy(), StoreFailed(99), module.AgainTimer()):
        bench.node.feed(event, 0)
        assert bench.clauses[-1] in ("SS-208", "SS-207")
    assert bench.clauses.count("SS-208") == 3
    assert bench.node.record.status is before.status


def test_a_start_has_a_name_or_a_time():
    assert (start_of("now"), start_of("beginning"), start_of(12)) == (-1, 0, 12)
    for wrong in ("tomorrow", -5):
        with pytest.raises(module.ConfigurationError, match="must be now or beginning"):
            start_of(wrong)
