"""The counterexamples of the source on real shared memory: processes that run it word for word, stepped access by
access in the order that the explorer found, and what comes of it, seen from outside; and the shipped queue under the
same.

The schedules are those that `tests/cursor_recovery/test_queue_explored.py` finds again.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from statemachines.cursor_recovery.memory import NONE, Queue, messages_of, position_of, state_of, token
from statemachines.cursor_recovery.reader import READER, new_reader
from statemachines.cursor_recovery.writer import WRITER, new_writer
from statemachines.drivers.cursor_recovery.memory_access import MemoryAccess
from statemachines.drivers.cursor_recovery.segment import path_of
from statemachines.testing.cursor_recovery.stepped_process import SteppedQueue
from statemachines_spec.cursor_recovery.as_written import OLD_READER, OLD_WRITER, old_reader, old_writer
from statemachines_spec.cursor_recovery.counterexamples import COUNTEREXAMPLES
from statemachines_spec.cursor_recovery.schedule import CLOCK, Schedule, ScheduledTurn
from statemachines_spec.cursor_recovery.systems import THRESHOLD_NS, A, QueueSetting

GOLDEN = Path(__file__).with_name("golden")
ROUNDS = 20
BY_NAME = {one.name: one for one in COUNTEREXAMPLES}


class Unchecked(MemoryAccess):
    """The source's locations come round: they are no positions that the product would take."""

    def check(self, address, value, now_ns):
        """Anything goes."""


class Stage(SteppedQueue):
    """The processes of a setting, by the names of the explorer, and what they do to each other."""

    def __init__(self, name, setting, as_written):
        queue = Queue(**{field: getattr(setting.queue, field) for field in Queue.__struct_fields__})
        super().__init__(path_of(name), queue)
        self.as_written = as_written
        self.shared = set()
        self._set_words(setting)
        for number, blocks in enumerate(setting.messages):
            self.take_part(f"writer-{number}", blocks)
        for number in range(setting.readers):
            self.take_part(f"reader-{number}", ())

    def _set_words(self, setting):
        words = self.words.by_address
        words["read_head"].store(setting.begin)
        words["write_head"].store(setting.begin)
        dead = token(len(setting.messages) + setting.readers, 1, 0)
        for pool, count in (("read", self.queue.read_cursors), ("write", self.queue.write_cursors)):
            for cursor in range(count):
                words[state_of(pool, cursor)].store(dead if setting.left else 0)
                words[position_of(pool, cursor)].store(0 if setting.left or self.as_written else NONE)
                if pool == "read":
                    words[messages_of(cursor)].store(int(bool(setting.left)))

    def take_part(self, name, blocks):
        old, new = ((OLD_WRITER, old_writer), (WRITER, new_writer)) if blocks else (
            (OLD_READER, old_reader), (READER, new_reader))  # fmt: skip
        if self.as_written:
            self.start(name, *old, blocks, Unchecked)
        else:
            self.start(name, *new, blocks)

    # -- what happens ---------------------------------------------------------------------------------------------

    def step(self, name):
        """The next access of a process, if it has anything to do; who takes a cursor that another has is noted."""
        process = self.processes[name]
        if process.has_more:
            process.go_on()
            others = [one for one in self.processes.values() if one is not process and one.alive]
            if process.holds and process.holds in [one.holds for one in others]:
                self.shared.add(process.holds)

    def end(self, turn):
        """Somebody dies; of a copy after some cells."""
        process = self.processes[turn.who]
        if turn.does == "cut" and process.status.startswith("7"):
            process.cut(turn.number)
        process.kill()

    def operation(self, name):
        """A whole operation; how it ended."""
        self.step(name)
        while self.processes[name].status:
            self.step(name)
        told = self.processes[name].tells
        return told[-1].outcome if told else ""

    def settle(self):
        """Everybody goes on in turn, and time with them, until all that is to come has come, or long enough."""
        for _ in range(40):
            for _ in range(30):
                for name in self.processes:
                    self.step(name)
            self.now_ns += 10 * THRESHOLD_NS
            if not self.hurt():
                return

    # -- what came of it ------------------------------------------------------------------------------------------

    def told(self, event, *outcomes):
        """(process, what it was told) of all processes."""
        return [
            (process, told)
            for process in self.processes.values()
            for told in process.tells
            if told.event == event and told.outcome in outcomes
        ]

    @property
    def acknowledged(self):
        """(position, block) that writers were told is written."""
        found = []
        for process in self.processes.values():
            ended = [told for told in process.tells if told.event == "write_done"]
            block = 0
            for told in ended:
                if told.outcome == "written":
                    found.append((told.position, tuple(process.blocks[block])))
                block += told.outcome in ("written", "fenced", "oversize")
        return found

    @property
    def delivered(self):
        """(position, block) that readers got."""
        return [(told.position, (told.payload, told.messages)) for _, told in self.told("read_done", "delivered")]

    def hurt(self):
        """The properties that do not hold, from what the processes were told."""
        written = [tuple(block) for process in self.processes.values() for block in process.blocks]
        blocks = [block for _, block in self.delivered]
        there = dict(self.acknowledged)
        skipped = [(told.position, told.last) for _, told in self.told("skipped", "")]
        found = {
            "INTEG": any(block not in written for block in blocks),
            "ONCE": any(blocks.count(block) > 1 for block in written),
            "KEPT": any(there.get(position, block) != block for position, block in self.delivered),
            "ACK": any(first <= position <= last for position in there for first, last in skipped),
            "READ": any(block not in blocks for block in there.values()),
            "WRITE": any(process.blocks and process.has_more for process in self.processes.values()),
            "EXCL": bool(self.shared),
        }
        return {name for name, is_so in found.items() if is_so}


def schedule(name):
    return msgspec.json.decode((GOLDEN / f"{name}.json").read_bytes(), type=Schedule)


@pytest.fixture
def stage(name):
    """Makes the stage of a setting, of the source or of the shipped queue."""
    stages = []

    def make(setting, as_written):
        stages.append(Stage(name, setting, as_written))
        return stages[-1]

    yield make
    for one in stages:
        one.__exit__(None, None, None)


def repeat(stage, turn):
    """A turn of the explorer; the real process is afterwards in the very state that the explorer's was in."""
    if turn.who == CLOCK:
        stage.now_ns = turn.number
    elif turn.does in ("crash", "cut"):
        stage.end(turn)
    else:
        stage.step(turn.who)
        assert stage.processes[turn.who].reports[-1].status == turn.status


@pytest.mark.parametrize("name_of_run", BY_NAME)
def test_the_source_word_for_word_is_hurt_on_real_memory(stage, name_of_run):
    run = schedule(name_of_run)
    made = stage(BY_NAME[name_of_run].setting, True)
    for turn in run.way:
        repeat(made, turn)
    for _ in range(ROUNDS if run.round else 0):
        for turn in run.round:
            repeat(made, turn)
    assert run.breaks in made.hurt()
    made.segment.check_guards()


def in_turns(stage, run):
    """The shipped queue: each process makes an access whenever it did in the schedule."""
    for turn in (*run.way, *run.round * ROUNDS):
        if turn.who == CLOCK:
            stage.now_ns = turn.number
        elif turn.does in ("crash", "cut"):
            stage.end(turn)
        else:
            stage.step(turn.who)


def step_in(status):
    """The step of the source that an access belongs to; what is done about the stale belongs to the third."""
    return 3 if status[:1] == "r" else int(status[0]) if status[:1].isdigit() else 0


def in_steps(stage, run):
    """The shipped queue: a process that came as far as some step in the schedule comes as far as that step now."""
    was = dict.fromkeys(stage.processes, "")
    for turn in (*run.way, *run.round * ROUNDS):
        if turn.who == CLOCK:
            stage.now_ns = turn.number
            continue
        process, step = stage.processes[turn.who], step_in(was[turn.who])
        if turn.does in ("crash", "cut"):
            for _ in range(100):
                if process.status and step_in(process.status) < step:
                    stage.step(turn.who)
            stage.end(turn)
            continue
        was[turn.who] = turn.status
        if not process.status:
            stage.step(turn.who)
        for _ in range(100):
            if process.status and step_in(process.status) <= step:
                stage.step(turn.who)


@pytest.mark.parametrize("how", [in_turns, in_steps])
@pytest.mark.parametrize("name_of_run", BY_NAME)
def test_the_shipped_queue_is_not_hurt_by_the_same_schedule(stage, name_of_run, how):
    made = stage(BY_NAME[name_of_run].setting, False)
    how(made, schedule(name_of_run))
    assert made.hurt() <= {"READ", "WRITE"}  # what is to come is under way
    made.settle()
    assert made.hurt() == set()
    made.segment.check_guards()


# -- two of the page's, played by hand: where the explorer finds a shorter way to break the same property --------------

LATE = QueueSetting((((b"llllLLLL", 1),), ((b"aaaaAAAA", 1),)), 1, capacity=28)
WIDE, EMPTY = (b"zzzzzzzzzzzz", 1), (b"", 1)
TAIL = QueueSetting(((WIDE, EMPTY, A), ((b"yyyyyyyyyyyy", 1),)), 1, capacity=44, begin=16)
"""Where the third block begins lies the header of the first, a lap earlier: in it the source finds a size."""


def come_to(stage, name, status):
    while stage.processes[name].status != status:
        stage.step(name)


@pytest.mark.parametrize("as_written", [True, False])
def test_a_slow_writer_writes_over_what_was_acknowledged_a_lap_later(stage, as_written):
    made = stage(LATE, as_written)
    come_to(made, "writer-0", "7_copy_data")
    made.now_ns = 2 * THRESHOLD_NS
    took = made.operation("reader-0")  # the source takes the block of the slow one: it is marked
    after = made.operation("writer-1")  # and its place is another's, a lap later
    made.step("writer-0")
    last = [made.operation("reader-0") for _ in range(2)]
    if as_written:
        assert (took, after) == ("delivered", "written")
        assert {"INTEG", "KEPT"} <= made.hurt()
        assert dict(made.acknowledged)[24] == (b"aaaaAAAA", 1)
        assert dict(made.delivered)[24] == (b"aaaallll", 1)
    else:
        assert (took, after, last) == ("empty", "full", ["empty", "empty"])
        made.settle()
        assert made.hurt() == set()
        assert made.delivered == [(0, (b"llllLLLL", 1)), (24, (b"aaaaAAAA", 1))]


@pytest.mark.parametrize("as_written", [True, False])
def test_nobody_passes_a_stale_last_block_where_there_is_no_room_behind_it(stage, as_written):
    made = stage(TAIL, as_written)
    for _ in range(2):
        assert made.operation("writer-0") == "written"
        assert made.operation("reader-0") == "delivered"
    come_to(made, "writer-0", "6_store_size")
    made.end(ScheduledTurn("writer-0", "crash"))
    made.now_ns = 2 * THRESHOLD_NS
    said = [(made.operation("reader-0"), made.operation("writer-1")) for _ in range(ROUNDS)]
    if as_written:
        assert said == [("empty", "full")] * ROUNDS
        assert made.hurt() == {"WRITE"}
    else:
        assert said[0] == ("empty", "written")
        assert said[1][0] == "delivered"
        assert made.hurt() == set()
