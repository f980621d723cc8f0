"""Process: turns, routes, what is shown of a party, its value, and declarations that cannot work."""

from __future__ import annotations

from functools import partial
from typing import Literal

import msgspec
import office
import pytest
from msgspec.structs import replace
from office import (
    CLERK,
    CLERKS,
    OFFICE,
    ROUTES,
    SECOND,
    Busy,
    Check,
    OfficeRecord,
    Question,
    Reply,
    Served,
    Visit,
    declare,
)

from statemachines import kernel
from statemachines.kernel.node import NodeState

KIND = kernel.PartyKind("clerk", CLERK, most=2)


def open_office(**fields):
    return kernel.ProcessRunner(OFFICE, OfficeRecord("o~1", **fields), check=True)


def test_a_turn_is_the_event_what_parties_are_fed_and_what_goes_on_at_once():
    runner = open_office()
    assert runner.receive("v", "o", Visit("v"), 0) == [("o~1/1", kernel.Send("v", Reply(0)))]
    assert runner.deadline() == 0, "the clerk goes on at once"
    assert runner.fire_first(0) == [("o~1/1", kernel.Tell(Busy()))], (
        "which no route leads anywhere but to the application"
    )
    assert runner.receive("v", "o~1/1", Question(7), 0) == [("o~1/1", kernel.Send("v", Reply(7)))]
    assert runner.receive("v", "o~1/9", Question(7), 0) == [], "who is gone takes nothing; the table says so"


def test_what_a_party_tells_the_process_is_taken_at_once_and_copied_where_a_route_says_so():
    runner = open_office()
    runner.receive("v", "o", Visit("v"), 0)
    assert runner.fire(SECOND) == [("o~1/1", kernel.Tell(Served("o~1/1")))], "what may not be any more comes first"
    assert (dict(runner.record.clerks), runner.record.gone, list(runner.nodes)) == ({}, 1, [])


def test_what_was_over_before_a_call_that_is_refused_is_owed_and_comes_with_the_next_turn(monkeypatch):
    """Whoever refuses it, the protocol or a check of what was given (D-332)."""

    take = kernel.ProcessRunner.take

    def refuse(self, party, event, now_ns):
        if event == Visit("w"):
            raise kernel.ConfigurationError("visitor", "w", "must be known")
        return take(self, party, event, now_ns)

    runner = open_office()
    runner.receive("v", "o", Visit("v"), 0)
    runner.fire(0)
    monkeypatch.setattr(kernel.ProcessRunner, "take", refuse)
    with pytest.raises(kernel.ConfigurationError):
        runner.call(Visit("w"), SECOND)
    assert runner.deadline() == 0
    assert runner.fire(SECOND) == [("o~1/1", kernel.Tell(Served("o~1/1")))]


def test_a_rule_sees_of_a_party_what_its_kind_shows_in_the_event():
    runner = open_office()
    for visitor in ("v", "w"):
        runner.receive(visitor, "o", Visit(visitor), 0)
    runner.receive("v", "o~1/2", Question(1), 0)
    assert runner.feed("o~1", Check(), 0)[-1] == ("o~1/2", kernel.Tell(Served("o~1/2")))
    assert list(runner.record.clerks) == ["o~1/1"]


def test_a_kind_that_exceeds_its_bound_and_an_id_of_another_are_refused():
    runner = open_office(limit=3)
    for visitor in ("v", "w"):
        runner.receive(visitor, "o", Visit(visitor), 0)
    with pytest.raises(kernel.DeclarationError, match="begins more than 2 of clerk at a time; guard the row"):
        runner.receive("x", "o", Visit("x"), 0)
    with pytest.raises(kernel.DeclarationError, match=r"begins clerk 'o~2/1'; its id must be like 'o~1/1'"):
        OFFICE.check_begin("clerk", "o~2/1", "o~1", 0)
    with pytest.raises(kernel.DeclarationError, match="begins 'cook', which is no kind of it; there are: clerk"):
        OFFICE.check_begin("cook", "o~1/1", "o~1", 0)


@pytest.mark.parametrize(
    ("kind", "own", "strange"),
    [
        (KIND, ("o~1/7",), ("o~1/x", "o~1/7/desk", "o~1/")),
        (replace(KIND, suffix="/desk"), ("o~1/7/desk",), ("o~1/7", "o~1/desk", "o~1/7/desk/desk")),
        (replace(KIND, prefix="c-", most=1, number="clerk"), ("o~1/c-clerk",), ("o~1/c-1", "o~1/clerk")),
    ],
)
def test_an_id_has_the_prefix_the_suffix_and_the_number_or_the_word_of_its_kind(kind, own, strange):
    assert [one for one in (*own, *strange) if kind.is_id(one)] == list(own)
    for one in own:
        assert kind.id_of("o~1", kind.number_of(one)) == one


def test_a_party_that_shows_nothing_is_not_looked_at():
    process = declare(kinds=(kernel.PartyKind("clerk", CLERK, most=2),))
    runner = kernel.ProcessRunner(process, OfficeRecord("o~1"))
    runner.receive("v", "o", Visit("v"), 0)
    with pytest.raises(kernel.GaplessError, match="looks at a clerk, which shows nothing; give the kind a view"):
        runner.feed("o~1", Check(), 0)


def test_a_process_is_a_value_that_is_written_read_and_made_anew():
    runner = open_office()
    runner.receive("v", "o", Visit("v"), 0)
    state = runner.state()
    assert OFFICE.decode(OFFICE.encode(state)) == state
    again = kernel.ProcessRunner.from_state(OFFICE, state)
    assert again.fire(SECOND) == runner.fire(SECOND)
    assert again.state() == runner.state() != state
    with pytest.raises(kernel.LocalProtocolError, match="effects are owed since a refused event; call fire"):
        OFFICE.encode(replace(state, owed=(("o~1", kernel.Tell(Busy())),)))


BAD = {
    "two kinds are called 'clerk'": {"kinds": (CLERKS, KIND)},
    "kind clerk has most=0; must be 1 or more": {"kinds": (replace(KIND, most=0),)},
    "kinds clerk and porter are the same; drop one": {"kinds": (CLERKS, replace(KIND, name="porter"))},
    "'cook' is no kind of the process": {"routes": (kernel.EventRoute((Served,), ("cook",), "process", "T-1"),)},
    "has no clause": {"routes": (kernel.EventRoute((Served,), ("clerk",), "process", ""),)},
    "only a message from outside has an addressee": {
        "routes": (kernel.EventRoute((Served,), ("clerk",), "addressee", "T-1"),)
    },
    "which one? name the field": {"routes": (kernel.EventRoute((Question,), (kernel.OUTSIDE,), "clerk", "T-1"),)},
    "only a party is paired with a party": {
        "routes": (kernel.EventRoute((Question,), (kernel.OUTSIDE,), "clerk", "T-1", paired=True),)
    },
    "served has no field 'owner'": {
        "routes": (kernel.EventRoute((Served,), ("clerk",), "process", "T-1", by="owner"),)
    },
    "nothing there takes busy; add a row": {"routes": (kernel.EventRoute((Busy,), ("clerk",), "process", "T-1"),)},
    "never taken, since one before it has no guard": {"routes": (*ROUTES, ROUTES[1])},
}


SEEN = kernel.Map({"o~1/1": office.ClerkRecord("o~1/1")})
"""What somebody knows of another party."""
NOTES: dict[str, int] = {}


def is_noted(record, event):
    return event.visitor in NOTES


def make_guards():
    """Guards that read something beside the record and the event, each with what is said of it."""
    clerk = office.ClerkRecord("o~1/1")
    state = kernel.ProcessState(NodeState("o~1", OfficeRecord("o~1")))
    runner = open_office()
    notes, kept = [], set()
    return {
        "reads clerk, where a ClerkRecord is; what it may know of a party is shown by a LookAt and its view":
            lambda record, event: clerk.asked > 0,
        "reads state, where a ProcessState is;": lambda record, event: bool(state.parties),
        "reads runner, where a ProcessRunner is that can change": lambda record, event: bool(runner.nodes),
        "reads self, where a ProcessRunner is that can change": runner.kind_of,
        "reads notes, where a list is that can change; keep it in the record, or make it a tuple or Map":
            lambda record, event: bool(notes),
        "reads an argument, where a dict is that can change": partial(max, NOTES),
        "reads a default of <lambda>, where a set is that can change": lambda record, event, known=kept: event in known,
        "is_noted reads NOTES, where a dict is that can change": lambda record, event: is_noted(record, event),
        "reads SEEN, where a ClerkRecord is": lambda record, event: event.visitor in SEEN,
    }  # fmt: skip


@pytest.mark.parametrize("rule", ["row", "route"])
@pytest.mark.parametrize("why", make_guards())
def test_a_guard_that_reads_another_party_is_refused(why, rule):
    guard = make_guards()[why]
    rows, routes = office.OFFICE_ROWS, ROUTES
    if rule == "row":
        rows = tuple(replace_guard(row, guard) if row.on is Served else row for row in rows)
    else:
        routes = (kernel.EventRoute((Served,), ("clerk",), "process", "T-7", when=guard), *ROUTES)
    with pytest.raises(kernel.DeclarationError) as refused:
        declare(routes=routes, rows=rows)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_action_of_a_party_that_reads_a_list_is_refused():
    heard = []
    rows = tuple(replace_action(row, lambda *given: heard.append(given)) for row in CLERK.declared[:1])
    clerk = kernel.Fsm(
        "clerk", record=CLERK.record_type, states=office.ClerkStatus, initial=office.IDLE,
        rows=(*rows, kernel.Ignore((office.GoHome, Question), kernel.ANY, "T-4"),
              kernel.Ignore((office.Serve,), (office.BUSY, office.GONE), "T-4")),
    )  # fmt: skip
    with pytest.raises(kernel.DeclarationError, match="reads heard, where a list is that can change"):
        declare(kinds=(replace(CLERKS, fsm=clerk),), routes=())


def test_a_rule_may_read_constants_and_functions():
    limits = (1, kernel.Map({"v": 2}), CLERKS, OPEN_HOURS)
    guard = partial(lambda most, record, event: len(most) > 0 and record.gone < 9, limits)
    declare(routes=(kernel.EventRoute((Served,), ("clerk",), "process", "T-7", when=guard),))


def test_a_route_to_parties_that_nothing_begins_is_refused():
    never = (kernel.PartyKind("porter", CLERK, most=1, prefix="p", number=1),)
    routes = (*ROUTES, kernel.EventRoute((office.Serve,), ("clerk",), "porter", "T-1"))
    with pytest.raises(kernel.DeclarationError) as refused:
        declare(kinds=(CLERKS, *never), routes=routes)
    assert str(refused.value) == (
        "office: no rule begins a porter, to which serve should go; return a Begin for it, drop it, or give it "
        "given=True if what embeds the process begins it"
    )
    with pytest.raises(kernel.DeclarationError, match="no rule begins a porter; return a Begin"):
        declare(kinds=(CLERKS, *never))


def test_parties_that_what_embeds_the_process_begins_are_given():
    porters = kernel.PartyKind("porter", CLERK, most=1, prefix="p", number=1, given=True)
    process = declare(kinds=(CLERKS, porters))
    runner = kernel.ProcessRunner(process, OfficeRecord("o~1"))
    runner.begin("porter", "o~1/p1", office.ClerkRecord("o~1/p1"), 0)
    assert list(runner.nodes) == ["o~1/p1"]


class Drawer(msgspec.Struct, frozen=True):
    of: str
    papers: tuple[str, ...] = ()


class Cell(msgspec.Struct):
    of: str


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (set[str], "DeskRecord.extra holds a set; make it a tuple in order or a Map"),
        (frozenset[str], "DeskRecord.extra holds a frozenset; make it a tuple in order or a Map"),
        (dict[str, int], "DeskRecord.extra holds a dict; make it a Map"),
        (tuple[list[int], ...], "DeskRecord.extra holds a list; make it a tuple"),
        (kernel.Map[str, Cell], "DeskRecord.extra holds a Cell; make it a frozen struct"),
        (object | None, "DeskRecord.extra does not say what it holds; name the types, as tuple[int, ...] does"),
        (tuple, "DeskRecord.extra does not say what it holds"),
        (tuple[kernel.Map[str, Drawer | None], int | Literal["x"], float, bytes, office.OfficeStatus], ""),
    ],
)
def test_a_process_whose_value_cannot_be_encoded_is_refused(kind, why):
    record = msgspec.defstruct("DeskRecord", [("extra", kind | None, None)], bases=(OfficeRecord,), frozen=True)
    machine = kernel.Fsm(
        "office", record=record, states=office.OfficeStatus, initial=office.OPEN, rows=office.OFFICE_ROWS
    )
    if not why:
        kernel.Process("office", machine, kinds=(CLERKS,), routes=ROUTES)
        return
    with pytest.raises(kernel.DeclarationError) as refused:
        kernel.Process("office", machine, kinds=(CLERKS,), routes=ROUTES)
    assert why in str(refused.value)
    assert str(refused.value).startswith("office: a process is a value that is written and read, and ")
    assert "\n" not in str(refused.value)


OPEN_HOURS = kernel.Map({"monday": (8, 16)})


def replace_guard(row, guard):
    return kernel.Row(row.on, row.source, row.to, row.do, guard, row.clause)


def replace_action(row, action):
    return kernel.Row(row.on, row.source, row.to, action, row.when, row.clause)


@pytest.mark.parametrize("why", BAD)
def test_a_declaration_that_cannot_work_is_refused_in_a_line(why):
    with pytest.raises(kernel.DeclarationError) as refused:
        declare(**BAD[why])
    assert why in str(refused.value)
    assert str(refused.value).startswith("office: ")
    assert "\n" not in str(refused.value)


def test_a_machine_of_the_office_is_a_machine_like_any():
    assert [fsm.name for fsm in OFFICE.machines] == ["office", "clerk"]
    assert office.OFFICE_MACHINE.cell(office.OPEN, Served)[0].clause == "T-7"
