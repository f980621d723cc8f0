"""Strategies by type: valid by construction, aimed, hostile; known to Hypothesis, which loads no protocol."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from statemachines import registry
from statemachines.catalogue import machine, names
from statemachines.kernel import ConfigurationError, Fifo, Map, Message, Node, TimerFired
from statemachines.kernel.pmap import dec_hook, enc_hook
from statemachines.testing.protocol import Values
from statemachines.testing.strategies import BASES, events, of, register, starting
from statemachines.testing.struct_values import Pool

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
