"""Process: turns, routes, what is shown of a party, its value, and declarations that cannot work.

HostLoop: effects in order, nothing re-entered, answers at once, later or often; a circle ends.

A row takes the event of a timer, stays and does not set the timer again: a warning says that it fires once.
"""

from __future__ import annotations

import warnings
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

from statemachines import catalogue, kernel
from statemachines.kernel import STAY, DeclarationWarning, Fsm, Row, SetTimer, Status, Timer, TimerFired
from statemachines.kernel import loop as loops
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


class Idle(kernel.Status):
    IDLE = "idle"


class Look(kernel.Call, frozen=True):
    pass


class Query(kernel.Request, frozen=True):
    n: int


class Found(kernel.Answer, frozen=True):
    n: int


class Note(kernel.Message, frozen=True):
    n: int


class Seen(kernel.Call, frozen=True):
    n: int


class Alarm(kernel.TimerFired, frozen=True):
    pass


class Finder(msgspec.Struct, frozen=True):
    status: Idle = Idle.IDLE
    n: int = 0
    found: int = 0


def look(record, event, now_ns):
    """A message, a request, a word to the application, and another message."""
    n = record.n + 1
    return replace(record, n=n), (
        kernel.Send("far", Note(n)),
        kernel.Ask("index", Query(n)),
        kernel.Tell(Seen(n)),
        kernel.Send("far", Note(-n)),
    )


def take(record, event, now_ns):
    return replace(record, found=record.found + event.n), (kernel.Tell(Seen(100 + event.n)),)


FINDER = kernel.Fsm(
    "finder",
    record=Finder,
    states=Idle,
    initial=Idle.IDLE,
    rows=(
        kernel.Row(Look, Idle.IDLE, kernel.STAY, look, None, "T-1"),
        kernel.Row(Found, Idle.IDLE, kernel.STAY, take, None, "T-2"),
        kernel.Row(Alarm, Idle.IDLE, kernel.STAY, look, None, "T-3"),
    ),
    timers=(kernel.Timer("alarm", Alarm, (Idle.IDLE,), lambda record: 50, once=True),),
)

ONE_LOOK = ["send 1", "ask 1", "told 1", "send -1"]


class Desk:
    """A port that writes down what it performs; `answer(n, feed)` is what becomes of a request, `hear(n)` of a tell."""

    def __init__(self):
        self.done = []
        self.now_ns = 0
        self.depth = 0
        self.answer = lambda n, feed: None
        self.hear = lambda n: None
        host = kernel.Host()
        host.add(kernel.Node(FINDER, Finder(), name="finder~1", now_ns=0))
        self.loop = kernel.HostLoop(host, self, lambda: self.now_ns)

    @property
    def record(self):
        return self.loop.host.nodes["finder~1"].record

    def perform(self, party, effect, feed):
        assert party == "finder~1"
        if isinstance(effect, kernel.Send):
            self.done.append(f"send {effect.message.n}")
        else:
            self.done.append(f"ask {effect.request.n}")
            self.answer(effect.request.n, lambda n: feed(party, Found(n)))

    def route_tell(self, party, event):
        self.done.append(f"told {event.n}")
        self.hear(event.n)


def test_effects_are_performed_in_their_order():
    desk = Desk()
    desk.loop.feed("finder~1", Look())
    assert desk.done == ONE_LOOK


def test_an_answer_at_once_waits_until_the_effects_before_it_are_performed():
    desk = Desk()
    desk.answer = lambda n, feed: feed(n)
    desk.loop.feed("finder~1", Look())
    assert desk.done == [*ONE_LOOK, "told 101"]
    assert desk.record.found == 1


def test_many_answers_keep_their_order_and_later_ones_find_the_loop_idle():
    desk, later = Desk(), []

    def answer(n, feed):
        feed(1)
        feed(2)
        later.append(feed)

    desk.answer = answer
    desk.loop.feed("finder~1", Look())
    assert desk.done == [*ONE_LOOK, "told 101", "told 102"]
    later[0](3)
    assert desk.done[-1] == "told 103"
    assert desk.record.found == 6


def test_what_the_application_does_about_a_tell_comes_after_the_effects_of_the_step():
    desk = Desk()
    desk.hear = lambda n: desk.loop.feed("finder~1", Look()) if n == 1 else None
    desk.loop.feed("finder~1", Look())
    assert desk.done == [*ONE_LOOK, "send 2", "ask 2", "told 2", "send -2"]


def test_who_has_fed_the_host_already_gets_the_same():
    desk = Desk()
    desk.answer = lambda n, feed: feed(n)
    desk.loop.perform(desk.loop.host.feed("finder~1", Look(), 0))
    assert desk.done == [*ONE_LOOK, "told 101"]


def test_timers_fire_through_the_loop():
    desk = Desk()
    assert desk.loop.deadline() == 50
    desk.now_ns = 49
    desk.loop.fire()
    assert desk.done == []
    desk.now_ns = 50
    desk.loop.fire()
    assert desk.done == ONE_LOOK
    assert desk.loop.deadline() is None


def test_who_writes_rows_hears_of_a_turn_before_any_of_it_is_performed():
    heard, desk = [], Desk()
    desk.loop = kernel.HostLoop(
        desk.loop.host, desk, lambda: 0, before=lambda out: heard.append((len(out), list(desk.done)))
    )
    desk.answer = lambda n, feed: feed(1)
    desk.loop.feed("finder~1", Look())
    assert heard == [(4, []), (1, ONE_LOOK)]


def test_what_raises_leaves_the_loop_fit_and_what_waited_comes_first():
    desk = Desk()

    def answer(n, feed):
        feed(1)
        raise kernel.LocalProtocolError("finder", "idle", "query", "", "no index here")

    desk.answer = answer
    with pytest.raises(kernel.LocalProtocolError):
        desk.loop.feed("finder~1", Look())
    assert desk.done == ["send 1", "ask 1"]
    desk.answer = lambda n, feed: None
    desk.loop.feed("finder~1", Look())
    assert desk.done[2:] == ["told 101", "send 2", "ask 2", "told 2", "send -2"]


def test_a_circle_without_end_is_said_to_be_one(monkeypatch):
    monkeypatch.setattr(loops, "TURNS_MAX", 20)
    desk = Desk()
    desk.hear = lambda n: desk.loop.feed("finder~1", Look())
    with pytest.raises(kernel.GaplessError, match="20 turns of a host and no end"):
        desk.loop.feed("finder~1", Look())
    assert desk.done.count("told 20") == 1
    assert "told 21" not in desk.done


class Due(TimerFired, frozen=True):
    """The timer."""


class Other(TimerFired, frozen=True):
    """Another timer."""


class OnlyStatus(Status):
    ON = "on"


ON = OnlyStatus.ON


class Record(msgspec.Struct, frozen=True):
    status: OnlyStatus = ON


def look_of_timers_set_again(record, event, now_ns):
    return record, ()


def set_again(record, event, now_ns):
    return record, (SetTimer("due", now_ns + 1),)


def set_other(record, event, now_ns):
    return record, (SetTimer("other", now_ns + 1),)


def set_any(record, event, now_ns, name="due"):
    return record, (SetTimer(name, now_ns + 1),)


def look_and_set(record, event, now_ns):
    return set_again(record, event, now_ns)


def declare_of_timers_set_again(do, **timer):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Fsm(
            "clock",
            record=Record,
            states=OnlyStatus,
            initial=ON,
            rows=(Row(Due, ON, STAY, do, None, "CK-1"), Row(Other, ON, STAY, None, None, "CK-2")),
            timers=(
                Timer("due", Due, (ON,), lambda record: 1, **timer),
                Timer("other", Other, (ON,), lambda record: 1, once=True),
            ),
        )
    return [str(one.message) for one in caught if one.category is DeclarationWarning]


@pytest.mark.parametrize("do", [None, look_of_timers_set_again, set_other])
def test_a_timer_that_would_fire_once_is_warned_of_and_may_be_meant(do):
    (said,) = declare_of_timers_set_again(do)
    assert "clock, row 0: takes due, stays in on" in said
    assert "return SetTimer, or declare it once=True" in said
    assert declare_of_timers_set_again(do, once=True) == declare_of_timers_set_again(do, on_entry=False) == []


@pytest.mark.parametrize("do", [set_again, look_and_set, set_any])
def test_one_that_is_set_again_is_fine(do):
    assert declare_of_timers_set_again(do) == []


def test_no_machine_that_is_shipped_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in catalogue.names():
            catalogue.machine(name)._check_timers()
