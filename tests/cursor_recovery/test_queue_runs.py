"""Simulated queues: they hold, they repeat, what is counted adds up, and faults do what they say."""

from __future__ import annotations

from itertools import pairwise

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.cursor_recovery.memory import CELL, LOST, READ_HEAD, WRITE_HEAD, CopyIn, lock_of
from statemachines.kernel import ConfigurationError
from statemachines_sim.campaign import campaign
from statemachines_sim.cursor_recovery import SIM
from statemachines_sim.cursor_recovery.section import QueueSection
from statemachines_sim.cursor_recovery.sim import PIECE, split_size
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import Phases, Scenario, check_scenario, find_scenario, from_plain, list_shipped_with
from statemachines_sim.units import MS, S
from statemachines_sim.world import World

NAMES = sorted(list_shipped_with(SIM.name))
SHORT = Scenario("short", SIM.name, QueueSection(messages=20), phases=Phases(safety_s=6.0, liveness_s=60.0))


def short(**keys):
    return replace(SHORT, own=replace(SHORT.own, **keys))


def memory_of(world):
    return world.devices["memory"]


@pytest.mark.parametrize("seed", mark_long(range(2), "1"))
@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_of_the_queue_holds(name, seed):
    (outcome,) = campaign(find_scenario(f"{SIM.name}/{name}"), [seed], processes=1)
    assert outcome.is_held, outcome
    tally = outcome.tally
    assert tally["delivered"] > 0
    assert outcome.noted.keys() <= {"ACK", "EXCL", "SPACE", "KEPT", "INTEG"}
    assert name == "by_age" or not outcome.noted
    assert name == "by_age" or not (tally["fenced"] or tally["discarded"])


@pytest.mark.long
def test_by_age_alone_breaks_what_it_is_said_to_break():
    noted = {}
    for outcome in campaign(find_scenario(f"{SIM.name}/by_age"), range(4), processes=1):
        assert outcome.is_held
        noted |= outcome.noted
    assert "ACK" in noted


def test_undisturbed_everything_comes_once_and_nothing_is_skipped():
    world = World(short(batch=3), 3)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert outcome.tally["written"] == outcome.tally["delivered"] > 0
    assert outcome.tally["skipped_bytes"] == outcome.tally["lost"] == outcome.tally["fenced"] == 0
    memory = memory_of(world)
    assert memory.state[READ_HEAD] == memory.state[WRITE_HEAD]
    assert memory.files == {"writer-1": 20, "writer-2": 20, "writer-3": 20}
    told = [row for row in world.rows if row[4] == "tell" and row[5] == "reserved"]
    assert [first for *_, first, last, _ in told] == sorted(first for *_, first, last, _ in told)
    assert all(one[-2] + 1 == other[-3] for one, other in pairwise(told)), "without a gap"


def test_the_same_seed_is_the_same_run():
    runs = [World(find_scenario(f"{SIM.name}/deaths_and_stops"), 4) for _ in range(2)]
    assert runs[0].run() == runs[1].run()
    assert runs[0].rows == runs[1].rows


@pytest.mark.long
def test_positions_are_conserved_under_deaths():
    """Every byte between the beginning and the read head was delivered, skipped, or lost with a reader that died."""
    for seed in range(2):
        world = World(find_scenario(f"{SIM.name}/deaths"), seed)
        assert world.run().is_held
        told, head = world.watch.blocks.deliveries, memory_of(world).state[READ_HEAD]
        blocks = [block for at, block in world.watch.blocks.blocks.items() if at < head]
        assert sum(block.end - block.start for block in blocks) == head
        assert {block.start for block in blocks} <= {*told.delivered, *told.skipped, *told.gone_blocks}
        assert not told.gone_blocks or memory_of(world).state.get(LOST, 0) >= told.taken_along > 0


# -- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accesses", [1, 20])
def test_who_is_cut_short_dies_before_that_access(accesses):
    cut = Fault("cut", 2 * S, 3 * S, "writer-1", amount=accesses)
    world = World(short(messages=150), 1, schedule=(cut,))
    world.run(until_ns=2 * S)
    rows = len(world.rows)
    world.run(until_ns=4 * S)
    died = next(index for index, row in enumerate(world.rows) if row[4] == "fault" and row[5] == "cut")
    before = [row for row in world.rows[rows:died] if row[1] == "writer-1" and row[4] == "ask"]
    assert len(before) == accesses
    assert not [row for row in world.rows[died + 1 :] if row[1] == "writer-1"]
    slot = world.processes["writer-1"].slot
    assert memory_of(world).state[lock_of(slot)] == 0
    assert world.run().is_held
    assert world.processes["writer-1"].life == "writer-1~2"


def keep_copies(memory):
    """The copies that are asked for from now on."""
    asked, ask = [], memory.ask

    def keep(process, party, request, reply):
        if isinstance(request, CopyIn):
            asked.append(request)
        ask(process, party, request, reply)

    memory.ask = keep
    return asked


def test_whoever_dies_in_a_copy_leaves_some_of_its_cells():
    """Of copies that a death has cut, memory holds the first pieces, and no more."""
    left = set()
    for at_ms in range(30, 90, 6):
        crash = Fault("crash", at_ms * MS, S, "writer-1")
        world = World(short(writers=1, readers=0, messages=1, size=(60, 60)), 1, schedule=(crash,))
        asked = keep_copies(memory_of(world))
        world.run(until_ns=S)
        for request in asked:
            data = memory_of(world)._service.read(memory_of(world).state, request.position, len(request.data))
            whole = len(request.data) - len(request.data) % CELL
            cells = [data[at : at + CELL] == request.data[at : at + CELL] for at in range(0, whole, CELL)]
            assert cells == sorted(cells, reverse=True)
            left.add((sum(cells), len(cells)))
    assert any(0 < written < of for written, of in left), left


def test_pieces_cover_everything_once_and_are_whole_cells():
    world = World(SHORT, 1)
    chance = memory_of(world)._chance
    for size in range(0, 70):
        cuts = split_size(size, chance)
        assert [first for first, _ in cuts] == [0, *(end for _, end in cuts[:-1])]
        assert cuts[-1][1] == size
        assert all(first % CELL == 0 and end - first <= CELL * PIECE for first, end in cuts)


def test_the_common_clock_stands_still_and_goes_on_where_it_stood():
    stop = Fault("stopped_clock", 2 * S, S, "memory", amount=-1_000_000)
    world = World(SHORT, 1, schedule=(stop,))
    seen = {}
    for at in (2, 3, 4):
        world.run(until_ns=at * S)
        seen[at] = world.devices["memory"].clock.local(world.now) if world.devices["memory"].clock else world.now
    assert (seen[2], seen[3], seen[4]) == (2 * S, 2 * S, 3 * S)


def test_a_clock_that_is_ahead_is_its_process_s_alone():
    ahead = Fault("apart_clock", 0, 6 * S, "writer-1", amount=5 * S)
    world = World(SHORT, 1, schedule=(ahead,))
    world.run(until_ns=S)
    assert world.processes["writer-1"].local_now() == 6 * S
    assert world.processes["writer-2"].local_now() == S


# -- what a scenario may say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "named_key"),
    [
        ("capacity", 30, "capacity"),
        ("capacity", 64, "capacity"),
        ("writers", 1_000, "writers"),
        ("write_cursors", 0, "write_cursors"),
        ("access_us", [0, 10], "access_us"),
        ("poll_ms", [0, 10], "poll_ms"),
        ("size", [9, 3], "size"),
        ("threshold_ms", 0, "threshold_ms"),
        ("batch", 0, "batch"),
    ],
)
def test_a_value_that_cannot_be_is_named(key, value, named_key):
    with pytest.raises(ConfigurationError, match=named_key):
        check_scenario(from_plain({"name": "mine", "protocol": SIM.name, SIM.name: {key: value}}))
