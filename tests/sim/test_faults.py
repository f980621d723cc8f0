"""Faults: each kind takes effect, the trace says so, and stores come back with what is durable, whole or not at all.

Clocks: exact local time, and hand-over that holds as long as no clock is wrong by more than clock_drift.

Scenario and run files: what is wrong in them is named.
"""

import json
import pickle
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Map
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import (
    Commit,
    GroupStore,
    Read,
    ReadDone,
    Refused,
    StoredRecord,
    StoreFailed,
)
from statemachines_sim import runfile
from statemachines_sim.campaign import campaign
from statemachines_sim.clock import SimulatedClock
from statemachines_sim.devices.remote_store import RemoteStore
from statemachines_sim.fault import Fault
from statemachines_sim.local_clock import PPM, LocalClock
from statemachines_sim.scenario import Net, Phases, check_scenario, find_scenario, list_shipped, list_shipped_with, read
from statemachines_sim.schedule import draw
from statemachines_sim.shared_subscriptions import SIM, GroupLoad, Members, scenario
from statemachines_sim.shared_subscriptions.sim import Batch, make_failed_answer
from statemachines_sim.units import S
from statemachines_sim.world import World

KINDS = SIM.kinds

SHORT = scenario(
    "short",
    load=GroupLoad(topics=4, messages=800, batch=10),
    members=Members(consumers=3),
    network=Net(tail=0.0),
    phases=Phases(safety_s=15.0),
    unreachable=("consumer-1 -> leader",),
)


def rows_of(world, event, kind="fault"):
    return [row for row in world.rows if row[4] == kind and row[5] == event]


def data_of(row):
    return json.loads(row[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_fault_takes_effect_and_is_in_the_trace(kind):
    beyond = ("S3", "S5", "S7", "S13") if kind in ("far_jump", "power_loss") else ()
    chosen = replace(SHORT, faults={kind: (2, 2)}, out_of_scope=beyond)
    world = World(chosen, 3)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert outcome.tally["acknowledged"] == 800
    rows = rows_of(world, kind)
    assert 1 <= outcome.faults[kind] == len(rows) <= 2
    if KINDS[kind].unit:
        unit = {"slow_consumer": "times", "drift": "ppm", "slow_link": "bytes_per_s"}.get(kind, "_ns")
        assert all(any(unit in name for name in data_of(row)) for row in rows)


@pytest.mark.long
def test_every_kind_is_documented_and_some_shipped_scenario_draws_it():
    ours = [f"{SIM.name}/{name}" for name in list_shipped_with(SIM.name)]
    drawn = {one.kind for name in ours for seed in range(12) for one in draw(find_scenario(name), seed)}
    assert drawn == set(KINDS)


# -- processes ------------------------------------------------------------------------------------------------------


def test_who_loses_the_disk_never_comes_back_under_its_name():
    world = World(SHORT, 1, schedule=(Fault("lost_disk", 5 * S, 2 * S, "consumer-1"),))
    assert world.run().is_held
    assert sorted(world.processes) == ["consumer-1-new", "consumer-2", "consumer-3", "leader-1"]
    (row,) = rows_of(world, "lost_disk")
    assert data_of(row) == {"lost": ["memory", "number of lives"]}
    assert not [row for row in world.rows if row[0] > 5 * S and row[1] == "consumer-1" and row[4] != "drop"]
    assert [row for row in world.rows if row[1] == "consumer-1-new" and row[5] == "deliver"]


def test_who_only_crashes_comes_back_as_its_next_life():
    world = World(SHORT, 1, schedule=(Fault("crash", 5 * S, 2 * S, "consumer-1"),))
    assert world.run().is_held
    (row,) = rows_of(world, "crash")
    assert data_of(row) == {"lost": ["memory"]}
    assert world.processes["consumer-1"].life == "consumer-1~2"


def test_a_long_pause_is_longer_than_every_timeout_and_ends_before_the_healing():
    freezes = find_scenario("freezes")
    times = [getattr(Configuration(), name) for name in Configuration.__struct_fields__ if name.endswith("_ms")]
    longest = max(time for time in times if time != Configuration().idle_stop_ms) * MS
    for pause in (one for seed in range(20) for one in draw(freezes, seed)):
        assert pause.kind == "long_pause"
        assert pause.for_ns > longest
        assert pause.at_ns + pause.for_ns <= freezes.phases.safety_s * S


def test_a_machine_that_slept_looks_at_its_clock_within_a_second_and_not_at_once():
    """Nobody says anything to the last consumer of a group that nobody leads: only its loop can tell it the time."""
    sleeping = (Fault("leader_crash", S, 13 * S, "leader-1"), Fault("sleep", 4 * S, 6 * S, "consumer-1"))
    stopped = (sleeping[0], replace(sleeping[1], kind="pause"))

    def first_timer(schedule):
        world = World(SHORT, 1, schedule=schedule)
        assert world.run().is_held
        return min(row[0] for row in world.rows if row[1] == "consumer-1" and row[4] == "timer" and row[0] > 5 * S)

    assert first_timer(stopped) == 10 * S
    assert first_timer(sleeping) == 11 * S


def test_a_machine_that_slept_for_a_moment_has_lost_no_timer():
    """At its look nothing is due; what is set for later comes all the same."""
    patient = scenario(
        "patient",
        load=GroupLoad(topics=2, messages=100),
        members=Members(consumers=1),
        phases=Phases(safety_s=30.0),
        configuration=Configuration(find_leader_ms=4_000).check(),
    )
    schedule = (Fault("leader_crash", S // 100, 20 * S, "leader-1"), Fault("sleep", 5 * S, MS, "consumer-1"))
    world = World(patient, 1, schedule=schedule)
    assert world.run().is_held
    asked = [row[0] // S for row in world.rows if row[1] == "consumer-1" and row[4] == "timer" and row[0] < 20 * S]
    assert asked == [4, 8, 12, 16]


# -- clocks ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_leaps_break_what_the_scenario_says_they_may_break():
    noted = {name for seed in (3, 6, 10, 11) for name in World(find_scenario("leaps"), seed).run().noted}
    assert noted >= {"S5"}


@pytest.mark.long
def test_L11_a_leader_whose_clock_leaps_while_it_waits_gives_up_early():
    """Seed 5: its clock leaps by seconds while a grant has no answer.  A validity by that clock is over at once."""
    assert World(find_scenario("leaps"), 5).run().is_held


# -- stores ---------------------------------------------------------------------------------------------------------

ASKER = SimpleNamespace(node="leader-1")
BATCH = Commit(1, (("a", None),), (("a", 1), ("b", 2), ("c", 3)))


def group_store(seed=1):
    clock = SimulatedClock()
    watched = []
    store = RemoteStore(clock, GroupStore(), seed, make_failed_answer, lambda *seen: watched.append(seen), Batch())
    return clock, store, watched


def ask(clock, store, request, for_ns=10 * S):
    answers = []
    store.ask(ASKER, "leader-1~1/1", request, answers.append)
    clock.run(until=clock.now + for_ns)
    return answers


@given(st.integers(0, 10_000))
def test_a_torn_batch_is_there_whole_or_not_at_all(seed):
    clock, store, watched = group_store(seed)
    store.tear_next()
    assert ask(clock, store, BATCH) == [StoreFailed(1)]
    assert store.down
    store.restart()
    written = dict(store.state)
    assert set(written) in (set(), {"a", "b", "c"})
    assert len(watched) == (1 if written else 0)  # what was undone has never happened
    (answer,) = ask(clock, store, Read(2, ("a", "b")))
    assert isinstance(answer, ReadDone)


def test_a_batch_is_torn_at_every_place():
    torn = set()
    for seed in range(60):
        clock, store, _ = group_store(seed)
        store.tear_next()
        ask(clock, store, BATCH)
        torn.add(len(store.state))
    assert torn == {0, 1, 2, 3}


def test_what_is_not_torn_in_time_is_not_torn():
    schedule = (Fault("torn_write", 2_200 * MS, 5 * MS, "group_store"),)
    world = World(replace(SHORT, own=replace(SHORT.own, load=GroupLoad(messages=0))), 1, schedule=schedule)
    assert world.run().is_held
    assert rows_of(world, "torn_write")
    assert not rows_of(world, "restart")


def test_a_refused_batch_tears_nothing():
    clock, store, _ = group_store()
    ask(clock, store, BATCH)
    store.tear_next()
    assert ask(clock, store, replace(BATCH, n=2)) == [Refused(2, "a")]
    assert not store.down


def test_a_store_that_dies_keeps_what_was_committed_and_answers_nothing_that_was_open():
    clock, store, _ = group_store()
    answers = []
    store.ask(ASKER, "leader-1~1/1", BATCH, answers.append)
    while not store.state:
        clock.step()
    store.crash()
    clock.run(until=S)
    assert answers == [StoreFailed(1)]  # the outcome is open for who asked
    assert ask(clock, store, Read(2, ("a",))) == [StoreFailed(2)]
    store.restart()
    (answer,) = ask(clock, store, Read(3, ("a",)))
    assert answer.records[0].value == 1


def test_a_failing_store_fails_before_or_after_it_took_effect():
    outcomes = set()
    for seed in range(30):
        clock, store, _ = group_store(seed)
        store.faults.append(Fault("store", 0, S, rate=1.0))
        assert ask(clock, store, BATCH) == [StoreFailed(1)]
        outcomes.add(bool(store.state))
    assert outcomes == {True, False}


def test_a_store_has_a_clock_of_its_own():
    clock, store, _ = group_store()
    store.clock = LocalClock()
    store.clock.jump(0, 1_000 * S)
    (answer,) = ask(clock, store, BATCH)
    assert answer.stamp > 1_000 * S
    assert store.state == Map({name: StoredRecord(value, answer.stamp) for name, value in BATCH.put})


D_PPM = round(Configuration().clock_drift * PPM)

CHANGES = st.lists(
    st.tuples(st.sampled_from(("jump", "drift")), st.integers(0, 10**12), st.integers(-900_000, 3_000_000)), max_size=6
)


def changed(changes):
    """A clock after some changes, and the true time of the last."""
    clock, now = LocalClock(), 0
    for kind, later, amount in changes:
        now += later
        if kind == "jump":
            clock.jump(now, abs(amount))
        else:
            clock.drift(now, amount)
    return clock, now


@given(CHANGES, st.integers(1, 10**12))
def test_a_deadline_is_met_at_the_first_moment_at_which_the_clock_shows_it(changes, ahead):
    clock, now = changed(changes)
    deadline = clock.local(now) + ahead
    when = clock.true(deadline)
    assert when >= now
    assert clock.local(when) >= deadline > clock.local(when - 1)


@given(CHANGES, st.lists(st.integers(0, 10**10), max_size=8))
def test_no_clock_ever_goes_back(changes, steps):
    clock, now = changed(changes)
    shown = [clock.local(now)]
    for step in steps:
        now += step
        shown.append(clock.local(now))
    assert shown == sorted(shown)


def test_a_clock_of_its_own_counts_in_millionths():
    clock = LocalClock()
    clock.jump(5 * S, 2 * S)
    clock.drift(5 * S, 10_000)
    assert clock.local(15 * S) == 7 * S + 10_100_000_000
    clock.drift(15 * S, 0)
    assert clock.local(16 * S) == 18_100_000_000


@pytest.mark.long
def test_a_shift_of_all_clocks_of_a_node_changes_nothing_but_times_it_tells_nobody():
    plain = World(find_scenario("quiet"), 1, schedule=())
    shifted = World(find_scenario("quiet"), 1, schedule=(Fault("skew", 0, S, "consumer-1", amount=77 * S),))
    assert replace(plain.run(), faults={}, rows=0) == replace(shifted.run(), faults={}, rows=0)
    assert [row for row in shifted.rows if row[4] != "fault"] == [row for row in plain.rows if row[4] != "fault"]


# -- exclusive hand-over --------------------------------------------------------------------------------------------

KICKED = scenario(
    "kicked",
    load=GroupLoad(topics=3, messages=1_200, batch=10),
    members=Members(consumers=1, join_s=(5.0,)),
    network=Net(tail=0.0),
    phases=Phases(safety_s=20.0),
)
"""consumer-1 has everything, consumer-2 joins at 5 s; consumer-1 is too slow to finish what is revoked, and is kicked
about 10 s later, when nothing reaches it any more: from then on only its lease stops it."""


def kick(leader_ppm, consumer_ppm):
    kicked = 5 * S + 10 * S * PPM // (PPM + leader_ppm)
    return (
        Fault("drift", S, 60 * S, "leader-1", amount=leader_ppm),
        Fault("drift", S, 60 * S, "consumer-1", amount=consumer_ppm),
        Fault("slow_consumer", 4 * S, 30 * S, "consumer-1", amount=1_000),
        Fault("partition", kicked - 150 * MS, 8 * S, "leader-1", "consumer-1"),
    )


def broken(leader_ppm, consumer_ppm):
    """What broke in the runs in which consumer-1 was kicked: what it has in hand is not always what is revoked."""
    runs = [World(KICKED, seed, schedule=kick(leader_ppm, consumer_ppm)) for seed in (1, 8, 9)]
    outcomes = [world.run() for world in runs]
    kicked = [any(row[5] == "revoke_timeout" and row[4] == "timer" for row in world.rows) for world in runs]
    assert any(kicked)
    return {outcome.monitor for outcome, kick in zip(outcomes, kicked, strict=True) if kick}


@pytest.mark.long
@pytest.mark.parametrize(
    ("leader_ppm", "consumer_ppm"), [(D_PPM, -D_PPM), pytest.param(-D_PPM, D_PPM, marks=pytest.mark.long)]
)
def test_one_consumer_at_a_time_while_clocks_are_wrong_by_no_more_than_the_drift(leader_ppm, consumer_ppm):
    assert broken(leader_ppm, consumer_ppm) == {""}


@pytest.mark.long
def test_two_at_a_time_when_the_leader_does_not_reckon_with_the_drift(monkeypatch):
    monkeypatch.setattr(Configuration, "lease_by_other_clock_ns", lambda self: self.lease_ms * MS)
    assert "S5" in broken(D_PPM, -D_PPM)
    assert broken(0, 0) == {""}


@pytest.mark.long
@pytest.mark.parametrize(
    ("leader_ppm", "consumer_ppm"), [(10 * D_PPM, -10 * D_PPM), pytest.param(0, -30 * D_PPM, marks=pytest.mark.long)]
)
def test_two_at_a_time_when_clocks_are_wrong_by_far_more_than_the_drift(leader_ppm, consumer_ppm):
    assert broken(leader_ppm, consumer_ppm) == {"S5"}


def test_the_rule_of_the_source_lets_two_deliver_at_a_time_though_no_clock_is_wrong():
    """Hand-over at once: the kicked consumer may go on until its lease ends."""
    source = replace(KICKED, own=replace(KICKED.own, configuration=Configuration(exclusive=False)))
    found = set()
    for seed in (1, 4, 5):
        world = World(source, seed, schedule=kick(0, 0))
        world.watch.deliveries._exclusive = True  # judged by the rule that it does not follow
        found.add(world.run().monitor)
    assert "S5" in found


@pytest.mark.long
def test_the_shipped_scenarios_are_named_like_their_files():
    assert {name.partition("/")[2] for name in list_shipped()} >= {"quiet", "storm", "kills", "network", "source"}
    for name in list_shipped():
        scenario = find_scenario(name)
        assert name == f"{scenario.sim.name}/{scenario.name}"
        assert scenario.about


OWN = "shared_subscriptions"
HEAD = f'name = "x"\nprotocol = "{OWN}"\n'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "name"),
        ('name = "x"', "protocol"),
        ('name = "x"\nprotocol = "shared_subscription"', "did you mean 'shared_subscriptions'"),
        (f"{HEAD}speed = 3", "'speed'"),
        (f"{HEAD}[load]\nmessages = 3", "stand in [shared_subscriptions]"),
        (f"{HEAD}[missed_samples]\nload = 3", "section of another protocol"),
        (f"{HEAD}[shared_subscriptions]\nspeed = 3", "speed"),
        (f'{HEAD}[{OWN}.load]\nmessages = "many"', "messages"),
        (f"{HEAD}[{OWN}.load]\nmessages = -1", "load.messages"),
        (f"{HEAD}[faults]\ncrash = [3, 1]", "faults.crash"),
        (f"{HEAD}[faults]\npause = [1, 2]\ncrash = 3", "faults.crash = 3: expected [int, int]"),
        (f'{HEAD}[faults]\ncrash = [1, "2"]', "faults.crash[1] = '2': expected `int`, got `str`"),
        (f'{HEAD}[phases]\nsafety_s = "x"', "phases.safety_s = 'x': expected `float`, got `str`"),
        (f"{HEAD}[faults]\ncrashes = [1, 3]", "did you mean 'crash'"),
        (f"{HEAD}[network]\ntail = 2.0", "network.tail"),
        (f"{HEAD}[{OWN}.members]\njoin_s = [99.0]", "members.join_s"),
        (f'{HEAD}[{OWN}]\nsubscription = "a/b"', "subscription"),
        (f"{HEAD}[{OWN}.load]\nstray = 5", "subscription"),
        (f'{HEAD}out_of_scope = ["S99"]', "out_of_scope"),
        (f"{HEAD}rates = [0.0]", "rates"),
        (f"{HEAD}[swarm]\nshare = 1.5", "swarm.share"),
        (f'{HEAD}[swarm.draw]\n"load.take" = [0, 3]', "swarm.draw.load.take = [0.0, 3.0]: at 0: load.take must lie"),
        (f'{HEAD}[swarm.draw]\n"load.takes" = [1, 3]', "did you mean 'load.take'"),
        (f"{HEAD}[swarm.draw]\nsubscription = [1, 3]", "is of a key that is no number"),
        (f'{HEAD}[swarm.draw]\n"network.tail" = [0.5, 0.1]', "swarm.draw.network.tail"),
        (f'{HEAD}[swarm.draw]\n"members.consumers" = [0, 3]\n[faults]\ncrash = [1, 1]', "faults.crash hits nobody"),
        (f"{HEAD}[{OWN}.configuration]\nping_timeout_ms = 4900", "ping_interval"),
        ("name = ", "is not a scenario"),
    ],
)
def test_what_is_wrong_in_a_scenario_is_named(tmp_path, text, names):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(names)):
        read(path)


def test_an_error_of_a_process_of_a_campaign_comes_back_whole():
    wrong = scenario("wrong", members=Members(leaders=0), phases=Phases(safety_s=2.0))
    error = ConfigurationError("members.leaders", 0, "must lie between 1 and 9")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.key, again.value, again.rule) == (str(error), error.key, error.value, error.rule)
    with pytest.raises(ConfigurationError, match=r"members\.leaders"):
        check_scenario(wrong)


def test_an_unknown_or_missing_scenario_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"did you mean .storm.\? there are \d+, such as storm"):
        find_scenario("strom")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        find_scenario(str(tmp_path / "none.toml"))


@pytest.mark.long
def test_a_run_file_repeats_its_run(tmp_path):
    scenario = find_scenario("storm")
    world = World(scenario, 4)
    outcome = world.run()
    path = tmp_path / "deep" / "run.json"
    runfile.write(
        path,
        runfile.RunFile(
            scenario, 4, draw(scenario, 4), outcome.monitor, outcome.detail, runfile.tables("shared_subscriptions")
        ),
    )
    kept = runfile.read(path)
    again = World(kept.scenario, kept.seed, schedule=kept.schedule)
    assert again.run() == outcome
    assert again.rows == world.rows
    assert kept.fingerprints == runfile.tables("shared_subscriptions")


@pytest.mark.parametrize("text", ["", "{}", '{"scenario": {"name": "x"}, "seed": 1, "schedule": 7}'])
def test_what_is_no_run_file_is_refused(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="is not a run file"):
        runfile.read(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        runfile.read(tmp_path / "none.json")


@pytest.mark.long
def test_a_campaign_over_processes_gives_the_same_outcomes_and_whole_runs_in_its_files(tmp_path):
    short = scenario("quiet", load=GroupLoad(messages=50), members=Members(consumers=1), phases=Phases(safety_s=5.0))
    there = campaign(short, range(22), out=tmp_path, processes=2)
    assert there == campaign(short, range(22), processes=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "runs-quiet-000000.parquet",
        "runs-quiet-000020.parquet",
        "trace-quiet-000000.parquet",
        "trace-quiet-000020.parquet",
    ]
