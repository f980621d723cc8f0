"""A link that carries so many bytes a second: what is before a message delays it, and a full queue drops it."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.missed_samples.message import Heartbeat, Sample
from statemachines_sim.fault import Fault
from statemachines_sim.missed_samples import SIM
from statemachines_sim.missed_samples.section import SampleSection
from statemachines_sim.scenario import Net, Phases, Scenario
from statemachines_sim.slow_link import HEADER_BYTES, PAYLOAD_BYTES, QUEUE_BYTES, SlowLink, size_of
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

ONE = HEADER_BYTES + PAYLOAD_BYTES


def test_a_message_waits_for_what_is_before_it_and_for_itself():
    link = SlowLink(ONE)  # one message a second
    assert [link.pass_through(0, 5, Sample("p", n, n)) for n in range(3)] == [S + 5, 2 * S + 5, 3 * S + 5]
    assert link.pass_through(2 * S, 0, Sample("p", 3, 3)) == 2 * S
    assert link.pass_through(60 * S, 0, Sample("p", 4, 4)) == S, "the queue is empty"
    assert size_of(Sample("p", 3, 12)) == HEADER_BYTES + 10 * PAYLOAD_BYTES, "a range is so many payloads"
    assert size_of(Heartbeat("p", 9)) == ONE


def test_what_finds_no_room_is_dropped_and_what_waits_is_not():
    link = SlowLink(ONE)
    room = QUEUE_BYTES // ONE
    found = [link.pass_through(0, 0, Sample("p", n, n)) for n in range(room + 3)]
    assert found[room:] == [None] * 3
    assert None not in found[:room]
    assert link.pass_through(0, 0, Sample("p", 9, 9), waits=True) == (room + 1) * S
    large = SlowLink(ONE)
    assert large.pass_through(0, 0, Sample("p", 0, 9_999)) is not None, "an empty link takes whatever comes"
    assert large.pass_through(0, 0, Sample("p", 0, 0)) is None


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
    recovery = replace(CALM.own.recovery, retries=1, timeout_ms=400, timeout_max_ms=400)
    assert run(cut, slow, recovery=recovery, **keys)[1].is_held
    with plant_bug("missed_samples/silence-from-the-beginning"), plant_bug("missed_samples/progress-is-a-failed-try"):
        assert run(cut, slow, recovery=recovery, **keys)[1].monitor == "HASTY"
