"""Strategies by type: valid by construction, aimed, hostile; known to Hypothesis, which loads no protocol.

Every catalogued machine under any events: see `statemachines.testing.machine` for what is compared and checked.

The process harness: processes of any program start, are waited for, killed, stopped, and none outlives it.

Fuzzed frames: nothing but FrameErrors comes of them, whichever protocol's roles read them.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib import import_module
from itertools import count
from pkgutil import iter_modules
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from statemachines import catalogue, kernel, registry
from statemachines.catalogue import machine, names
from statemachines.kernel import ConfigurationError, Fifo, Map, Message, Node, TimerFired
from statemachines.kernel.pmap import dec_hook, enc_hook
from statemachines.testing import frames, process_harness
from statemachines.testing.frames import KINDS, EscapedError, fuzz, make_inputs, sides_of
from statemachines.testing.machine import MachineTest
from statemachines.testing.process_harness import HarnessError, ProcessHarness, free_port
from statemachines.testing.protocol import Reader, Values, environment_of, part_of
from statemachines.testing.strategies import BASES, events, of, register, starting
from statemachines.testing.struct_values import Pool
from statemachines.wire import PacketCodec

FEW = settings(max_examples=4)


def declared(protocol):
    """The Struct types that the modules beside a protocol's machines declare."""
    packages = {place.partition(":")[0].rpartition(".")[0] for place in protocol.machines.values()}
    for package in sorted(packages):
        for found in iter_modules(import_module(package).__path__, f"{package}."):
            for value in vars(import_module(found.name)).values():
                if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == found.name:
                    yield value


@pytest.mark.parametrize(
    "kind",
    [kind for protocol in registry.protocols() for kind in declared(protocol)],
    ids=lambda kind: f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}",
)
def test_every_type_of_a_protocol_has_a_strategy_whose_values_survive_being_written_down(kind):
    @FEW
    @given(st.from_type(kind))
    def check(value):
        assert type(value) is kind
        written = msgspec.json.encode(value, enc_hook=enc_hook)
        assert msgspec.json.decode(written, type=kind, dec_hook=dec_hook) == value

    check()


# -- what Hypothesis loads ------------------------------------------------------------------------------------------

LOADED = """
import sys
{first}
import hypothesis
print(sorted(name for name in sys.modules if name.startswith({homes!r})))
"""


@pytest.mark.parametrize("first", ["", "import statemachines.testing.machine", "import statemachines.testing.by_hand"])
def test_hypothesis_and_what_tests_machines_load_no_protocol(first):
    places = [place for one in registry.protocols() for place in one.machines.values()]
    homes = tuple(sorted({place.partition(":")[0].rpartition(".")[0] for place in places}))
    program = LOADED.format(first=first, homes=homes)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert len(homes) >= 3
    assert done.stdout.strip() == "[]"


STRANGER = """
import msgspec
from statemachines.kernel import Call, ConfigurationError, Fsm, Message, Protocol, Row, STAY, Status
from statemachines.testing.protocol import TestProtocol, Values

class On(Status):
    YES = "yes"

class Knock(Message, frozen=True):
    door: str
    knocks: int
    by: "Guest"

class Guest(msgspec.Struct, frozen=True):
    name: str
    umbrellas: tuple[int, ...] = ()

class Record(msgspec.Struct, frozen=True):
    status: On = On.YES

DOOR = Fsm("door", protocol="house", record=Record, states=On, initial=On.YES,
           rows=(Row(Knock, On.YES, STAY, None, None, "HO-01"),))
TESTING = TestProtocol(values=Values(ints={"knock": (7, 11)}, names={"door": ("front", "back")}))
HOUSE = Protocol("house", "HO", {"door": "house_machines:DOOR"}, areas={"testing": "house_machines:TESTING"})
"""

DRAWS = """
import random
from hypothesis import HealthCheck, given, settings, strategies as st
{first}
from statemachines import registry
registry.protocol("house_machines:HOUSE")
import house_machines
from statemachines.testing.struct_values import draw_example
kinds = (house_machines.Knock, house_machines.Guest)
drawn = [draw_example(kind, random.Random(n)) for n in range(50) for kind in kinds]
assert {{knock.knocks for knock in drawn[::2]}} == {{7, 11}}, drawn
assert {{knock.door for knock in drawn[::2]}} == {{"front", "back"}}, drawn

@settings(max_examples=20, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.from_type(house_machines.Knock), st.from_type(house_machines.Guest))
def look(knock, guest):
    assert knock.knocks in (7, 11) and knock.door in ("front", "back"), knock
    assert guest.name in ("a", "b", "c"), guest

look()
print(drawn)
"""


@pytest.mark.long
def test_what_is_drawn_is_a_function_of_the_type_whatever_else_is_loaded(tmp_path):
    (tmp_path / "house_machines.py").write_text(STRANGER)
    places = [place for one in registry.protocols() for place in one.machines.values()]
    loads = ["", "; ".join(f"import {place.partition(':')[0]}" for place in places)]
    said = [
        subprocess.run([sys.executable, "-c", DRAWS.format(first=first)], cwd=tmp_path, capture_output=True, text=True)
        for first in loads
    ]
    assert [(one.returncode, one.stderr) for one in said] == [(0, "")] * len(loads)
    assert len({one.stdout for one in said}) == 1


def test_the_words_of_the_vocabulary_have_no_values():
    """Which there are would depend on what is loaded."""
    for base in BASES:
        with pytest.raises(ConfigurationError, match=f"'{base.__name__}': has no values of its own: say which"):
            find(st.from_type(base), bool)


# -- types of one's own ---------------------------------------------------------------------------------------------


class Parcel(Message, frozen=True):
    owner: str
    shelf: Annotated[int, msgspec.Meta(ge=0)]
    first: int
    last: int
    fragile: bool = False


class Box(msgspec.Struct, frozen=True):
    """Beside no machine of a protocol."""

    size: Annotated[int, msgspec.Meta(ge=1_000, lt=1_010)]
    queue: Fifo
    mark: Literal["up", "down"] = "up"
    table: Map[int, str] = Map()


VALUES = Values(ints={"shelf": (3, 5)}, names={"owner": ("me", "you")})


def test_another_struct_is_registered():
    register(Box)
    box = find(st.from_type(Box), lambda box: len(box.queue) == 2 and len(box.table) == 1 and box.mark == "down")
    assert 1_000 <= box.size < 1_010
    assert list(box.queue) == ["a", "a"]


@given(of(Parcel, values=VALUES))
def test_values_are_those_that_are_given(parcel):
    assert parcel.owner in ("me", "you")
    assert parcel.shelf in (3, 5)
    assert 0 <= parcel.first <= parcel.last


@pytest.mark.long
def test_what_belongs_together_is_aimed_at_together():
    pool = Pool(Parcel("boss", 4711, 815, 816))
    hits = []

    @settings(max_examples=100)
    @given(of(Parcel, pool))
    def count_hits(parcel):
        hits.append((parcel.owner, parcel.shelf) == ("boss", 4711))

    count_hits()
    assert sum(hits) > 10
    with pytest.raises(NoSuchExample):
        find(of(Parcel, Pool(Parcel("boss", -1, 815, 816))), lambda one: one.shelf < 0)


class Strange(Message, frozen=True):
    when: dict[str, int]


def test_a_field_without_a_strategy_is_named():
    with pytest.raises(TypeError, match="no strategy for the field 'when'"):
        find(of(Strange), bool)


# -- machines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_events_are_those_of_the_alphabet(name):
    fsm = machine(name)

    @FEW
    @given(events(fsm, leave_out=(TimerFired,)))
    def check(event):
        assert type(event) in fsm.alphabet
        assert not isinstance(event, TimerFired)

    check()


@pytest.mark.parametrize("name", names())
def test_a_record_to_begin_with_has_its_defaults(name):
    fsm = machine(name)

    @FEW
    @given(starting(fsm.record_type))
    def check(record):
        assert record.status == fsm.initial

    check()


@pytest.mark.parametrize("name", names())
def test_any_record_can_be_kept_and_restored(name):
    fsm = machine(name)

    @FEW
    @given(of(fsm.record_type))
    def check(record):
        node = Node(fsm, record, name="n", now_ns=0)
        assert Node.restore(fsm, node.snapshot()).record == record

    check()


BOUNDS = settings(max_examples=60, stateful_step_count=30, suppress_health_check=list(HealthCheck))


def run(kind, examples=40):
    run_state_machine_as_test(kind, settings=settings(BOUNDS, max_examples=examples))


@pytest.mark.parametrize("examples", [8, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", catalogue.names())
def test_every_machine_keeps_its_promises_and_asks_for_what_is_there(name, examples):
    """Else its tests would wait for answers that nobody gives, and say nothing about what follows."""
    fsm = catalogue.machine(name)
    kind = MachineTest.of(fsm)
    asked = set()
    kind.watch = [
        lambda node, event, step: asked.update(one.service for one in step.effects if isinstance(one, kernel.Ask))
    ]
    run(kind, examples)
    assert asked <= set(environment_of(fsm).services)


# -- what such a test finds -----------------------------------------------------------------------------------------


class Lamp(kernel.Status):
    OFF = "off"
    ON = "on"
    BROKEN = "broken"


class Press(kernel.Call, frozen=True):
    force: int


class Dim(kernel.TimerFired, frozen=True):
    pass


class LampRecord(msgspec.Struct, frozen=True):
    name: str
    status: Lamp = Lamp.OFF
    presses: int = 0
    seen: kernel.Map[str, int] = kernel.Map()


def press(record, event, now_ns):
    return replace(record, presses=record.presses + 1), (kernel.SetTimer("dim", now_ns + 5 * event.force),)


def lamp(do=press, few=lambda record: True):
    """A lamp whose switch does `do`, and that promises `few`."""
    rows = (
        kernel.Row(Press, Lamp.OFF, Lamp.ON, do, None, "T-1"),
        kernel.Row(Press, Lamp.ON, kernel.STAY, do, lambda record, event: event.force < 3, "T-1"),
        kernel.Row(Press, Lamp.ON, Lamp.BROKEN, None, None, "T-1"),
        kernel.Row(Dim, Lamp.ON, Lamp.OFF, None, None, "T-1"),
        kernel.Ignore((Dim,), Lamp.OFF, "T-1"),
    )
    return kernel.Fsm(
        "lamp",
        record=LampRecord,
        states=Lamp,
        initial=Lamp.OFF,
        final=(Lamp.BROKEN,),
        rows=rows,
        timers=(kernel.Timer("dim", Dim, (Lamp.ON,), lambda record: 5),),
        invariants=(kernel.Invariant("few", "T-1", few),),
    )


def looks_at_the_clock(record, event, now_ns):
    return press(record, event, now_ns) if now_ns < 10**15 else (record, ())


def throws_a_coin(record, event, now_ns, coin=count()):  # noqa: B008 (one coin for all steps is the mistake)
    return replace(record, presses=next(coin)), ()


def forgets_what_it_cannot_write_down(record, event, now_ns):
    return replace(record, presses=str(record.presses)), ()


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (lamp(looks_at_the_clock), AssertionError),
        (lamp(throws_a_coin), AssertionError),
        (lamp(forgets_what_it_cannot_write_down), (AssertionError, msgspec.ValidationError)),
        (lamp(few=lambda record: record.presses < 3), kernel.InvariantViolated),
    ],
)
def test_a_machine_that_breaks_a_promise_is_found(broken, error):
    with pytest.raises(error):
        run_state_machine_as_test(MachineTest.of(broken), settings=settings(BOUNDS, phases=[Phase.generate]))


# -- the order of maps ----------------------------------------------------------------------------------------------

DIGEST = """
import hashlib
import msgspec
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from statemachines import catalogue
from statemachines.kernel.pmap import enc_hook
from statemachines.testing.machine import MachineTest
def written(row, event, effects):
    names = [type(one).__name__ for one in (event, *effects)]
    return msgspec.json.encode((row, names, event, effects), enc_hook=enc_hook)  # repr shows maps in no order
digest = hashlib.sha256()
for name in {names!r}:
    kind = MachineTest.of(catalogue.machine(name))
    kind.watch = [lambda node, event, step: digest.update(written(step.row, event, step.effects))]
    run_state_machine_as_test(kind, settings=settings(
        max_examples={examples}, stateful_step_count=30, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    ))
print(digest.hexdigest())
"""


@pytest.mark.parametrize("examples", [1, pytest.param(5, marks=pytest.mark.long)])
def test_no_step_depends_on_the_order_of_a_map(examples):
    """The same examples under two hash seeds take the same rows with the same effects."""
    digests = set()
    for hash_seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        program = DIGEST.format(names=catalogue.names(), examples=examples)
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1
    assert digests != {hashlib.sha256().hexdigest() + "\n"}


PROGRAM = """
import pathlib, signal, sys
role, *more = sys.argv[1:]
name, state = (more[more.index(option) + 1] for option in ("--name", "--state"))
if "--broken" in more:
    sys.exit("no such thing as --broken")
signal.signal(signal.SIGTERM, lambda *_: (print("goodbye", flush=True), sys.exit(0)))
pathlib.Path(state, f"{name}.life").open("a").write("1")
print(f"{role}: here at {name}:7", flush=True)
while "--once" not in more:
    signal.pause()
"""


@pytest.fixture
def nodes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with ProcessHarness(tmp_path / "nodes", program=(sys.executable, str(program)), common=("--x", "1")) as harness:
        yield harness


def test_a_process_is_waited_for_until_it_has_said_its_line(nodes):
    node = nodes.start("server", "server-1", says="here at ")
    assert (node.role, node.name, node.address) == ("server", "server-1", "server-1:7")
    assert node.read_output() == "server: here at server-1:7\n"
    with pytest.raises(ConfigurationError, match="a process of this name runs"):
        nodes.start("server", "server-1")


def test_who_ends_by_itself_is_named_with_what_it_said(nodes):
    bad = nodes.start("server", "server-1", "--broken")
    assert bad.wait() == 1
    with pytest.raises(HarnessError, match="server-1 ended with 1; it said: no such thing as --broken"):
        nodes.until(lambda: False, "nothing")
    assert len(nodes.close()) == 1


def test_what_never_comes_is_named(nodes):
    nodes.start("server", "server-1", says="here at ")
    with pytest.raises(HarnessError, match=r"waited 0\.05 s for a miracle; server-1 said: nothing"):
        nodes.until(lambda: False, "a miracle", patience_s=0.05)


def test_who_does_not_stop_is_killed_and_named(nodes, monkeypatch):
    monkeypatch.setattr(process_harness, "STOP_S", 0.2)
    node = nodes.start("server", "server-1", says="here at ")
    monkeypatch.setattr(node, "resume", lambda: None)
    node.stop()
    assert nodes.close() == ["server-1 did not stop on SIGTERM"]
    assert not lives(node.pid)


def test_a_port_is_given_to_one_alone_here_and_in_other_processes(monkeypatch):
    mine = [free_port() for _ in range(5)]
    assert len(set(mine)) == 5
    monkeypatch.setattr(process_harness, "PORTS", (mine[0], mine[0] + 1))
    with pytest.raises(HarnessError, match="100 of them were taken"):
        free_port()
    program = (
        f"from statemachines.testing import process_harness as p; p.PORTS = ({mine[0]}, {mine[0] + 1}); p.free_port()"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "100 of them were taken" in other.stderr


def lives(pid):
    """Whether there is such a process (a zombie, too)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Order(Message, frozen=True):
    dish: str
    guests: int
    extras: tuple[str, ...] = ()


class Pay(Message, frozen=True):
    amount: float


class Serve(Message, frozen=True):
    dish: str
    first: int
    last: int
    prices: tuple[int, ...] = ()


PUB = {
    "kitchen": Reader("guest", Order | Pay, "kitchen-1~1"),
    "guest": Reader("kitchen", Serve, "guest-1~1", dials=True),
}
SPOKEN_TO = {"kitchen": Reader("guest", Order | Pay, "kitchen-1~1")}
PROTOCOLS = [PUB, *(part_of(one).readers for one in registry.protocols() if part_of(one).readers)]
BY_NAME = pytest.mark.parametrize("readers", PROTOCOLS, ids=lambda readers: " and ".join(readers))


def test_a_role_that_alone_reads_is_fuzzed_too():
    came = fuzz(SPOKEN_TO, 1, 1_000)
    assert came.refused > 500
    assert came.taken > 50


@pytest.mark.parametrize("kind", ["whole", "wrong role", "oversize", "wrong proof"])
@BY_NAME
def test_each_kind_is_what_its_name_says(readers, kind):
    """All that is whole is taken, nothing of the others is."""
    sides = sides_of(readers)
    for one in make_inputs(readers, 5, 40 * len(KINDS)):
        if one.kind == kind == "whole":
            assert frames.read(sides[one.reader], one, frames.random.Random(0)) == 1
        elif one.kind == kind:
            with pytest.raises(frames.FrameError):
                frames.read(sides[one.reader], one, frames.random.Random(0))


def test_what_escapes_is_shown_with_what_repeats_it(monkeypatch):
    def broken(codec, body):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(PacketCodec, "decode", broken)
    with pytest.raises(EscapedError, match=r"ZeroDivisionError: planted, by input \d+ of fuzz\(seed=9\), a .* bytes: "):
        fuzz(PUB, 9, 1_000)
