"""Faults are counted once: the tables of a trace say what the campaign says, and nothing else that is done to a node is
a fault.

Trace files: what is read back is what was written, and some runs are found without reading the others.

Settings on the command line: what they set, and what is said about those that are none.

What was made at run time, or in a notebook, is refused where another process would have to have it.

A run without its trace is the same run.

Swarm: every seed its own mixture, always the same one, on record.

Turns of a simulated process: what an application does about a tell comes after the effects before it.

A link that carries so many bytes a second: what is before a message delays it, and a full queue drops it.

The tables of faults are those of the code.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from statemachines import cli, registry
from statemachines.kernel import (
    STAY,
    Call,
    ConfigurationError,
    Fsm,
    Message,
    Protocol,
    Row,
    Send,
    SetTimer,
    Status,
    Tell,
    Timer,
    TimerFired,
)
from statemachines.missed_samples.message import Heartbeat, Sample
from statemachines.trace.parquet import TraceWriter
from statemachines_reports.pipeline import analyze
from statemachines_sim import machine_role
from statemachines_sim.campaign import campaign, run_row
from statemachines_sim.fault import Fault
from statemachines_sim.faults import NEUTRAL, table
from statemachines_sim.missed_samples import SIM
from statemachines_sim.missed_samples.section import SampleSection
from statemachines_sim.override import override
from statemachines_sim.protocol import SimProtocol, values
from statemachines_sim.scenario import Net, Phases, Scenario, find_scenario, list_shipped, list_shipped_with, sim_of
from statemachines_sim.schedule import draw
from statemachines_sim.shared_subscriptions.section import count_affordable
from statemachines_sim.slow_link import HEADER_BYTES, PAYLOAD_BYTES, SlowLink, size_of
from statemachines_sim.swarm import draw_values, settle
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

RUNS = {
    "missed_samples/history_comes_round": "join",
    "sequence_windows/wrong_walls": "subscribe",
    "shared_subscriptions/generations": "rotate",
    "cursor_recovery/deaths": "cut",
}
"""Scenario -> what its rows note more often, or less, than it takes effect as a fault."""


@pytest.mark.parametrize("name", RUNS)
def test_the_tables_and_the_campaign_count_the_same_faults(tmp_path, name):
    few = ("load.messages=50",) if name.startswith("shared") else ()
    scenario = override(find_scenario(name), few)
    world = World(scenario, 1)
    outcome = world.run()
    with TraceWriter(tmp_path / "trace", "one") as writer:
        writer.add(run_row(scenario, outcome, 0), world.rows)
    noted = sum(row[5] == RUNS[name] for row in world.rows if row[4] == "fault")
    assert noted != outcome.faults.get(RUNS[name], 0), "it would be counted wrong by its rows"
    found = analyze(tmp_path / "trace", tmp_path / "out", spark=False)
    assert {line["fault"]: line["injected"] for line in found.tables["faults"]} == outcome.faults
    assert found.tables["scenarios"][0]["faults"] == sum(outcome.faults.values())


@pytest.mark.long
@pytest.mark.parametrize("name", ["cursor_recovery/deaths", "persistent_sessions/calm_sessions"])
def test_without_monitors_a_run_comes_to_its_end_and_nothing_breaks(name):
    outcome = World(override(find_scenario(name), ["phases.safety_s=8.0"]), 1, monitors=False).run()
    assert (outcome.monitor, outcome.detail) == ("", "")
    assert sum(outcome.tally.values()) > 0, "its watch has heard of what happened"


def write_crash(folder, schedule=None, change=lambda run: run):
    """The trace of a run of sequence windows with one crash; in its table of runs stands `schedule`."""
    scenario = find_scenario("sequence_windows/drizzle")
    crash = Fault("crash", 2_000_000_000, 500_000_000, "receiver-1")
    world = World(scenario, 1, schedule=(crash,))
    outcome = world.run()
    with TraceWriter(folder, "one") as writer:
        writer.add(change(run_row(scenario, outcome, 0, (), schedule or (crash,))), world.rows)
    return folder


def test_D_1010_a_run_with_a_schedule_of_its_own_is_judged_by_that(tmp_path):
    assert analyze(write_crash(tmp_path / "trace"), tmp_path / "out", spark=False).is_held


@pytest.mark.long
@pytest.mark.parametrize(
    "planned",
    [
        Fault("crash", 2_000_000_000, 500_000_000, "receiver-2"),
        Fault("crash", 2_000_000_001, 500_000_000, "receiver-1"),
        Fault("pause", 2_000_000_000, 500_000_000, "receiver-1"),
    ],
)
def test_D_1010_a_fault_that_the_schedule_has_otherwise_is_seen(tmp_path, planned):
    found = analyze(write_crash(tmp_path / "trace", (planned,)), tmp_path / "out", spark=False)
    details = [one["detail"] for one in found.tables["findings"] if one["check"] == "faults"]
    assert details == ["crash at 2000000000 ns of receiver-1 is not in the schedule of the run"]


def test_D_1011_a_row_later_than_the_end_of_its_run_is_seen(tmp_path):
    def end_sooner(run):
        facts = msgspec.json.decode(run.parameters)
        return msgspec.structs.replace(
            run, parameters=msgspec.json.encode(facts | {"lasted_ns": 3_000_000_000}).decode()
        )

    found = analyze(write_crash(tmp_path / "trace", change=end_sooner), tmp_path / "out", spark=False)
    (detail,) = [one["detail"] for one in found.tables["findings"] if one["check"] == "faults"]
    assert detail.startswith("the run ended at 3000000000 ns, and its last row is at ")


def test_D_1012_empty_parameters_of_a_simulated_run_are_refused(tmp_path):
    folder = write_crash(tmp_path / "trace", change=lambda run: msgspec.structs.replace(run, parameters="{}"))
    with pytest.raises(ConfigurationError, match="of run 0, which was simulated, count no faults: restore them"):
        analyze(folder, tmp_path / "out", spark=False)


SEEDS = (3, 4)


@pytest.fixture(scope="module")
def worlds():
    scenario = override(find_scenario("storm"), ["shared_subscriptions.load.messages=500"])
    made = [World(scenario, seed, trace=True, data=True) for seed in SEEDS]
    return scenario, made, [world.run() for world in made]


@pytest.mark.long
def test_a_run_without_rows_is_a_run(tmp_path, worlds):
    scenario, _, results = worlds
    with TraceWriter(tmp_path, "kept") as writer:
        writer.add(run_row(scenario, results[0], 0), [])
    assert pq.read_table(tmp_path / "trace-kept.parquet").num_rows == 0
    assert pq.read_table(tmp_path / "runs-kept.parquet").num_rows == 1


def test_settings_are_values_of_toml():
    scenario = override(
        find_scenario("storm"),
        [
            "configuration.exclusive=false",
            "faults.crash = [0, 1]",
            "load.topics=3",
            "network.tail=0.5",
            "subscription=$shared/others/t00",
            'subscription="$shared/others/#"',
        ],
    )
    assert scenario.own.configuration.exclusive is False
    assert scenario.faults["crash"] == (0, 1)
    assert (scenario.own.load.topics, scenario.network.tail) == (3, 0.5)
    assert scenario.own.subscription == "$shared/others/#"
    assert scenario.faults["pause"] == find_scenario("storm").faults["pause"]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("configuration.exclusive", "must be KEY=VALUE"),
        ("configuration.exclusive=", "must be KEY=VALUE"),
        ("exclusive=false", "did you mean configuration.exclusive"),
        ("faults.crashes=[1, 2]", "did you mean faults.crash?"),
        ("wholly.unknown=1", "there are: subscription, order, load.topics"),
        ("shared_subscriptions.load.topics=0", "must lie between 1 and"),
        ("name=storm", "is no key of a scenario"),
        ("configuration={}", "is no key of a scenario"),
        ("configuration.exclusive=7", "expected `bool`, got `int`"),
        ("load.topics=many", "expected `int`, got `str`"),
        ("faults.crash=[3, 1]", "must be a range"),
        ("load.topics=0", "must lie between 1 and"),
        ("configuration.validity_ms=100", "must be less than validity"),
    ],
)
def test_what_cannot_be_set_is_named(setting, says, capsys):
    with pytest.raises(ConfigurationError) as raised:
        override(find_scenario("storm"), [setting])
    assert says in str(raised.value)
    assert cli.run(["simulate", "storm", "--set", setting]) == cli.Exit.USAGE
    assert says in capsys.readouterr().err


def test_every_key_can_be_set_to_the_value_that_it_has():
    import msgspec

    scenario = find_scenario("storm")
    known = values(scenario)
    assert len(known) > 50
    for key, value in known.items():
        if value == [0, 0]:
            continue  # a kind of fault that is left out stays so
        assert override(scenario, [f"{key}={msgspec.json.encode(value).decode()}"]) == scenario


def test_a_campaign_of_a_protocol_made_at_run_time():
    class Mine(SimProtocol):
        name = "mine"

    scenario = Scenario("one", Mine())
    with pytest.raises(ConfigurationError, match="put it into a module"):
        campaign(scenario, range(40), processes=2)
    assert len(campaign(scenario, range(2), processes=1)) == 2


def test_a_protocol_of_a_notebook():
    noted = Protocol(name="noted", prefix="NB", machines={"cell": "__main__:CELL"})
    with pytest.raises(ConfigurationError, match=r"cell stands in __main__, .* or analyze without Spark"):
        registry.check_importable(noted, "analyze without Spark")


@pytest.mark.long
def test_without_rows_a_run_comes_to_the_same():
    storm = override(find_scenario("storm"), ["shared_subscriptions.load.messages=500"])
    traced, silent = World(storm, 5), World(storm, 5, trace=False)
    outcome = traced.run()
    assert outcome.rows == len(traced.rows) > 0
    assert silent.run() == msgspec.structs.replace(outcome, rows=0)
    assert silent.rows == []


SWARM_SEEDS = range(60)


def test_a_seed_always_draws_the_same_and_seeds_differ():
    swarm = find_scenario("swarm")
    assert [settle(swarm, seed) for seed in SWARM_SEEDS] == [settle(swarm, seed) for seed in SWARM_SEEDS]
    assert len({repr(settle(swarm, seed)) for seed in SWARM_SEEDS}) == len(SWARM_SEEDS)


def test_what_is_settled_draws_nothing_more():
    settled = settle(find_scenario("swarm"), 7)
    assert settled.swarm is None
    assert settle(settled, 8) is settled
    assert draw_values(settled, 8) == {}


def test_each_kind_takes_part_in_some_runs_and_in_none_of_others():
    swarm = find_scenario("swarm")
    kinds = {kind for kind, (_, most) in swarm.faults.items() if most}
    assert len(kinds) == 20
    seen = [set(draw_values(swarm, seed)["kinds"]) for seed in SWARM_SEEDS]
    assert set.union(*seen) == kinds
    assert set.intersection(*seen) == set()
    assert len({frozenset(one) for one in seen}) > 50


@pytest.mark.long
def test_what_is_drawn_stays_in_its_bounds_and_moves():
    settled = [settle(find_scenario("swarm"), seed) for seed in SWARM_SEEDS]
    assert {one.own.members.consumers for one in settled} == set(range(1, 7))
    messages = [one.own.load.messages for one in settled]
    assert 100 < min(messages) < 1_500 < 3_000 < max(messages) <= 4_000
    assert all(one.own.load.messages <= count_affordable(one.own, one) for one in settled)
    assert all(0 <= one.network.tail <= 0.1 for one in settled)
    assert all(one.own.load.work_ms[0] == 10 and 20 <= one.own.load.work_ms[1] <= 200 for one in settled)
    assert len({one.rates for one in settled}) > 5


def test_only_the_kinds_and_rates_that_were_drawn_hit():
    swarm = find_scenario("swarm")
    for seed in SWARM_SEEDS:
        settled = settle(swarm, seed)
        schedule = draw(swarm, seed)
        assert {fault.kind for fault in schedule} == set(draw_values(swarm, seed)["kinds"])
        assert {fault.rate for fault in schedule} - {0.0} <= set(settled.rates)


@pytest.mark.long
def test_the_run_has_on_record_what_was_drawn():
    swarm = find_scenario("swarm")
    parameters = json.loads(run_row(swarm, World(swarm, 5).run(), 0).parameters)
    assert parameters["swarm"] == json.loads(json.dumps(draw_values(swarm, 5)))
    assert parameters["swarm"]["members.consumers"] == settle(swarm, 5).own.members.consumers


def test_simulate_prints_what_was_drawn(capsys):
    assert cli.run(["simulate", "swarm", "--seed", "5"]) == cli.Exit.HELD
    said = capsys.readouterr().out
    found = draw_values(find_scenario("swarm"), 5)
    assert f"  kinds: {', '.join(found['kinds'])}\n" in said
    assert f"  members.consumers: {found['members.consumers']}\n" in said


class Idle(Status):
    IDLE = "idle"


class Look(Call, frozen=True):
    pass


class Note(Message, frozen=True):
    n: int


class Seen(Call, frozen=True):
    n: int


class Looker(msgspec.Struct, frozen=True):
    id: str
    status: Idle = Idle.IDLE
    n: int = 0


def look(record, event, now_ns):
    n = record.n + 1
    return replace(record, n=n), (Send("other-1", Note(n)), Tell(Seen(n)), Send("other-1", Note(-n)))


class GiveUp(TimerFired, frozen=True):
    pass


class End(TimerFired, frozen=True):
    pass


def answered(record, event, now_ns):
    return replace(record, n=event.n), (SetTimer("give_up", now_ns + 10 * S),)


WAITER = Fsm(
    "waiter",
    record=Looker,
    states=Idle,
    initial=Idle.IDLE,
    rows=(
        Row(Note, Idle.IDLE, STAY, answered, None, "T-3"),
        Row(GiveUp, Idle.IDLE, STAY, None, None, "T-4"),
        Row(End, Idle.IDLE, STAY, None, None, "T-5"),
        Row(Look, Idle.IDLE, STAY, look, None, "T-6"),
    ),
    timers=(
        Timer("give_up", GiveUp, (Idle.IDLE,), lambda record: S, once=True),
        Timer("end", End, (Idle.IDLE,), lambda record: S // 2, authority=True),
    ),
)


def woken(*events, pause_ns=1):
    """What a process takes that stands still from `pause_ns` on for two seconds, while these events come."""
    world = World(seed=1)
    waiter = world.add("waiter-1", machine_role("waiter", WAITER, Looker))
    world.run(until_ns=pause_ns)
    waiter.pause()
    world.run(until_ns=3 * S // 2)
    for event in events:
        waiter.feed(event)
    world.run(until_ns=2 * S)
    waiter.resume()
    world.run(until_ns=5 * S // 2)
    return [row[5] for row in world.rows if row[4] in ("step", "timer")]


def test_who_wakes_late_ends_what_is_over_hears_what_waited_and_then_gives_up():
    assert woken(Look()) == ["end", "look", "give_up"]
    assert woken() == ["end", "give_up"]


def test_who_wakes_late_gives_nobody_up_whose_answer_waited():
    assert woken(Note(1)) == ["end", "note"]


def test_what_passed_before_the_pause_fires_once():
    assert woken(Look(), pause_ns=3 * S // 4) == ["end", "look", "give_up"]


ONE = HEADER_BYTES + PAYLOAD_BYTES


def test_a_message_waits_for_what_is_before_it_and_for_itself():
    link = SlowLink(ONE)  # one message a second
    assert [link.pass_through(0, 5, Sample("p", n, n)) for n in range(3)] == [S + 5, 2 * S + 5, 3 * S + 5]
    assert link.pass_through(2 * S, 0, Sample("p", 3, 3)) == 2 * S
    assert link.pass_through(60 * S, 0, Sample("p", 4, 4)) == S, "the queue is empty"
    assert size_of(Sample("p", 3, 12)) == HEADER_BYTES + 10 * PAYLOAD_BYTES, "a range is so many payloads"
    assert size_of(Heartbeat("p", 9)) == ONE


CALM = Scenario(
    "calm",
    SIM.name,
    SampleSection(publishers=1, caches=0, subscribers=1, routers=1, keys=1, beats="periodic"),
    network=Net((1, 5), tail=0.0),
    phases=Phases(8.0, 60.0),
)
SLOW = Fault("slow_link", S, 5 * S, "subscriber-1", amount=50_000)


def run(*faults, **keys):
    world = World(replace(CALM, own=replace(CALM.own, **keys)), 0, schedule=faults)
    return world, world.run()


def test_a_slow_link_delays_drops_and_ends_and_its_run_repeats():
    busy = {"publish_ms": (5, 10), "own_history": 100_000, "whole": True}
    world, outcome = run(SLOW, **busy)
    assert outcome.is_held, outcome
    assert outcome.tally["queries"] > 0
    assert world.network.dropped > 0
    assert world.network.slow == {}
    assert [row[5] for row in world.rows if row[4] == "fault"][:2] == ["slow_link", "end_slow_link"]
    again, _ = run(SLOW, **busy)
    assert list(world.rows) == list(again.rows)
    free, _ = run(**busy)
    begun = next(at for at, row in enumerate(world.rows) if row[4] == "fault")
    assert world.rows[:begun] == free.rows[:begun], "until it begins nothing is different"


def test_a_slow_link_shows_who_takes_a_slow_answer_for_none():
    """Links that are cut and come back slow, as in scenario `slow_link`."""
    cut = Fault("partition", S, 3 * S, "publisher-1", "subscriber-1")
    slow = Fault("slow_link", 2 * S, 6 * S, "subscriber-1", amount=80_000)
    keys = {"publish_ms": (20, 30), "own_history": 100_000, "whole": True}
    recovery = replace(CALM.own.recovery, retries=1)
    assert run(cut, slow, recovery=recovery, **keys)[1].is_held
    with plant_bug("missed_samples/silence-convicts"):
        assert run(cut, slow, recovery=recovery, **keys)[1].monitor == "InvariantViolated"


HOME = Path(__file__).parents[2]

SIMULATED = [sim_of(one.name) for one in registry.protocols() if "sim" in one.areas]


def test_the_page_has_the_kinds_of_faults_as_they_are():
    assert table(NEUTRAL) in (HOME / "sim" / "README.md").read_text()


@pytest.mark.parametrize("sim", SIMULATED, ids=lambda sim: sim.name)
def test_the_page_of_a_protocol_has_its_kinds_of_faults_as_they_are(sim):
    assert table(sim.faults) in (HOME / "sim" / "scenarios" / sim.name / "README.md").read_text()


@pytest.mark.parametrize("sim", SIMULATED, ids=lambda sim: sim.name)
def test_every_kind_is_named_once_and_its_own_are_drawn_by_some_shipped_scenario(sim):
    names = [kind.name for kind in (*NEUTRAL, *sim.faults)]
    assert len(names) == len(set(names)) == len(sim.kinds)
    drawn = {kind for name in list_shipped_with(sim.name) for kind in find_scenario(f"{sim.name}/{name}").faults}
    assert {kind.name for kind in sim.faults} <= drawn <= set(names)


def test_every_kind_of_all_protocols_is_drawn_by_some_shipped_scenario():
    drawn = {kind for name in list_shipped() for kind in find_scenario(name).faults}
    assert {kind.name for kind in NEUTRAL} <= drawn


def test_no_two_shipped_scenarios_have_the_same_short_name():
    names = [name.partition("/")[2] for name in list_shipped()]
    assert sorted(names) == sorted(set(names))
