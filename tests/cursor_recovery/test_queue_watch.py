"""The watch of the queue, on accesses made by hand: each property it judges is broken, and seen to be.

Simulated queues: they hold, they repeat, what is counted adds up, and faults do what they say.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
from broken_runs import WatchHand, runs_of
from msgspec.structs import replace

from statemachines.cursor_recovery import memory, reader
from statemachines.cursor_recovery.memory import LOST, READ_HEAD
from statemachines.cursor_recovery.reader import ReadDone, ReadOutcome
from statemachines.cursor_recovery.writer import Outcome, Reserved, Write, WriteDone
from statemachines.kernel import ConfigurationError
from statemachines.testing.steps import words_of
from statemachines_sim.campaign import campaign
from statemachines_sim.cursor_recovery import SIM
from statemachines_sim.cursor_recovery.section import QueueSection
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import Phases, Scenario, check_scenario, find_scenario, from_plain, list_shipped_with
from statemachines_sim.units import S
from statemachines_sim.world import World

W1, W2, R1, R2 = "writer-1~1", "writer-2~1", "reader-1~1", "reader-2~1"
NOW = 10**10


class Hand(WatchHand):
    """A world without processes: accesses are made, and things told, by hand."""

    def __init__(self, **keys):
        own = QueueSection(**({"writers": 0, "readers": 0, "capacity": 100, "size": (0, 4)} | keys))
        self.world = World(Scenario("by_hand", SIM.name, own, phases=Phases(safety_s=1.0)))
        self.world.env.run(until=NOW)
        self.watch, self.memory = self.world.watch, self.world.devices["memory"]

    def access(self, life, request):
        return self.memory.apply(request, f"{life}/1")

    def take_cursor(self, life, pool, cursor=0, expected=memory.FREE, slot=1):
        self.access(life, memory.CompareAndSwap(memory.state_of(pool, cursor), expected, memory.token(slot, 1, NOW)))

    def free_cursor(self, life, pool, cursor=0):
        word = self.memory.state[memory.state_of(pool, cursor)]
        self.access(life, memory.CompareAndSwap(memory.state_of(pool, cursor), word, memory.FREE))

    def tell(self, life, event):
        process = SimpleNamespace(life=life, node=life.partition("~")[0])
        self.watch.tell(process, f"{life}/1", event, NOW)

    def die(self, life):
        self.watch.observe_death(SimpleNamespace(life=life), NOW)

    def reserve(self, life, start, payload=b"AAAA", messages=1, length=None):
        self.watch.step(SimpleNamespace(name=f"{life}/1"), Write(payload, messages), None, None, NOW)
        end = start + (length or 16 + len(payload))
        self.access(life, memory.CompareAndSwap(memory.WRITE_HEAD, start, end))

    def write(self, life, start, payload=b"AAAA"):
        """A whole write, but for the cursor."""
        self.reserve(life, start, payload)
        self.access(life, memory.CopyIn(start + 16, payload))
        self.tell(life, Reserved(start, start + 15 + len(payload)))
        self.tell(life, WriteDone(Outcome.WRITTEN, start))

    def take_block(self, life, start, end, cursor=0):
        self.access(life, memory.Store(memory.position_of("read", cursor), start))
        self.access(life, memory.CompareAndSwap(memory.READ_HEAD, start, end))

    def deliver(self, life, position, payload=b"AAAA", messages=1):
        self.tell(life, ReadDone(ReadOutcome.DELIVERED, position, messages, payload))

    def skip(self, life, end):
        self.access(life, memory.CompareAndSwap(memory.READ_HEAD, 0, end))

    def fill(self, life, position, size):
        self.access(life, memory.CopyIn(position, bytes(size)))

    def store(self, life, cell):
        self.access(life, memory.Store(f"data/{cell}", 1))

    def look(self, life, pool):
        """An operation begins, and its first access finds no cursor."""
        self.access(life, memory.CompareAndSwap(f"{pool}/1/state", 1, 1))

    def keep(self):
        self.kept = self.watch.blocks

    def put_back(self, field):
        self.watch.blocks = replace(self.watch.blocks, **{field: getattr(self.kept, field)})

    def forget_filling(self, life):
        self.watch.blocks = replace(self.watch.blocks, filling=self.watch.blocks.filling.delete(life))

    def hand_over(self, life, to):
        """As if another had taken its block."""
        taken = self.watch.blocks.taken
        self.watch.blocks = replace(self.watch.blocks, taken=taken.delete(life).set(to, taken[life]))

    def nobody_took(self):
        assert not self.watch.blocks.taken


def hand():
    """A reader has a cursor."""
    one = Hand()
    one.take_cursor(R1, "read", slot=3)
    return one


def aged():
    """Nobody has one, and a cursor ages in a millisecond."""
    return Hand(threshold_ms=1)


WORDS = {**words_of(memory.__name__), **words_of(reader.__name__), **globals(), "HAND": hand}
test_broken = runs_of(Path(__file__).parent / "broken/watch.txt", WORDS)


def test_WRITE_who_has_messages_left_is_missed():
    world = World(Scenario("by_hand", SIM.name, QueueSection(writers=1, messages=1)), 1)
    assert world.watch.missing(world)[0] == "WRITE"


NAMES = sorted(list_shipped_with(SIM.name))
SHORT = Scenario("short", SIM.name, QueueSection(messages=20), phases=Phases(safety_s=6.0, liveness_s=60.0))


def short(**keys):
    return replace(SHORT, own=replace(SHORT.own, **keys))


def memory_of(world):
    return world.devices["memory"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_of_the_queue_holds(name, seed):
    (outcome,) = campaign(find_scenario(f"{SIM.name}/{name}"), [seed], processes=1)
    assert outcome.is_held, f"repeat it with: gapless simulate {SIM.name}/{name} --seed {seed}\n{outcome}"
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
