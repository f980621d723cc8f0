"""Process: what one process is made of: a machine of its own, kinds of parties, and routes between them.

A process decides by a table, like any machine: whom to believe, whom to begin, what to remember.  Its machine has three
more effects: `Begin` and `Forget` a party, `Feed` an event to one.  A route says where a message that arrives, or a
`Tell` of a party, goes.  One without a guard is a look-up and costs no step.

    OFFICE = Process("office", OFFICE_MACHINE, kinds=(PartyKind("clerk", CLERK, most=1_000), ...), routes=(
        EventRoute((Served,), of=("clerk",), to=PROCESS, clause="OF-7"), ...))

A guard or an action of the process reads the event and the record of the process.  What it may read of a party, it is
shown in the event (`LookAt`).  Everything else that a rule names is a constant (`rule_reach`), and every record is a
value that can be encoded (`record_fields`).  What is not so is refused when it is declared.  `ProcessRunner` runs a
process; a `ProcessState` is one as a value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from statemachines.kernel.effect import Begin, Effects
from statemachines.kernel.errors import DeclarationError, LocalProtocolError
from statemachines.kernel.event import Call, Event, Message, name_of
from statemachines.kernel.fsm import Fsm
from statemachines.kernel.identity import life_of
from statemachines.kernel.node import NodeState
from statemachines.kernel.pmap import dec_hook, enc_hook
from statemachines.kernel.record_fields import find_unfit
from statemachines.kernel.rule_reach import NamedValue, can_change, list_inside, list_named, list_rules

R = TypeVar("R", bound=msgspec.Struct)

PROCESS: Final = "process"
"""As the end of a route: the machine of the process."""

OUTSIDE: Final = "outside"
"""As the beginning of a route: the network."""

ADDRESSEE: Final = "addressee"
"""As the end of a route: the party that the message is for; where there is none (any more), the process."""

APPLICATION: Final = "application"
"""As the end of a route: what embeds the process.  Every `Tell` without a route goes there."""


class Arrived(Call, frozen=True, gc=False):
    """To a process: `sender` says `message` to the party `to`."""

    sender: str
    to: str
    message: Any


class Departing(Call, frozen=True, gc=False):
    """To a process: its party `speaker` sends `message` to `to`, and the process decides how it goes."""

    speaker: str
    to: str
    message: Any


class LookAt(Call, frozen=True, gc=False):
    """To a process from itself: the base of events that name one party.  The runner fills in `seen`, as the `view` of
    the party's kind has it.  If the party is gone, nothing happens."""

    party: str
    seen: Any = None


class PartyKind(msgspec.Struct, frozen=True):
    """A kind of parties.  `most`: how many at a time; `prefix` and `suffix` of the running number in their ids
    (`o1~1/clerk-3`, `o1~1/3/desk`); `number`: the one id of a kind that has one party at most, a number or a word
    (`o1~1/porter`); `view`: what a `LookAt` shows of the record; `given`:
    what embeds the process begins parties of this kind (`ProcessRunner.begin`), and no rule of it does."""

    name: str
    fsm: Fsm[Any]
    most: int
    prefix: str = ""
    number: int | str | None = None
    view: Callable[[Any], Any] | None = None
    suffix: str = ""
    given: bool = False

    def id_of(self, life: str, number: int | str | None = None) -> str:
        """The id of the party with this running number in this life of the process."""
        return f"{life}/{self.prefix}{self.number if number is None else number}{self.suffix}"

    def number_of(self, party: str) -> str:
        """The running number in the id of a party of this kind."""
        return party.partition("/")[2].removeprefix(self.prefix).removesuffix(self.suffix)

    def is_id(self, party: str) -> bool:
        """It may be the id of a party of this kind."""
        number = self.number_of(party)
        is_number = number.isdigit() if self.number is None else number == str(self.number)
        return is_number and party == self.id_of(life_of(party), number)


class EventRoute(msgspec.Struct, frozen=True):
    """Where an event goes.

    `on`: its types; `of`: the kinds that tell it, or `OUTSIDE`; `to`: `PROCESS`, `ADDRESSEE`, `APPLICATION`, or a kind;
    `by`: the field of the event that names the party ("": the only one of its kind); `when(record, event)`: a guard on
    the record of the process (the first route whose guard holds is taken); `change(party, event)`: what is fed in
    place of what `party` tells, of type `as_type`; `copied`: the application is told as well; `paired`: to the party
    of kind `to` that has the number of the one that tells it.
    """

    on: tuple[type[Event], ...]
    of: tuple[str, ...]
    to: str
    clause: str
    by: str = ""
    when: Callable[[Any, Any], bool] | None = None
    change: Callable[[str, Any], Event] | None = None
    as_type: type[Event] | None = None
    copied: bool = False
    paired: bool = False


class PartyState(msgspec.Struct, frozen=True, gc=False):
    """A party as a value."""

    kind: str
    node: NodeState


class ProcessState(msgspec.Struct, frozen=True, gc=False):
    """A process as a value: its machine, its parties in the order of their ids, and the effects that are owed since a
    refused event, each with its party."""

    own: NodeState
    parties: tuple[PartyState, ...] = ()
    owed: tuple[tuple[str, Any], ...] = ()


def begin_nothing(record: Any) -> Effects:
    """No party."""
    return ()


class Process(Generic[R]):
    """The declaration; raises `DeclarationError` for what cannot work, in a line that says how to mend it.

    `begin(record)`: the parties that every life begins with; `diverts(record, message)`: whether the process decides
    how a message that a party sends goes (`Departing`).
    """

    def __init__(
        self,
        name: str,
        fsm: Fsm[R],
        *,
        kinds: tuple[PartyKind, ...],
        routes: tuple[EventRoute, ...] = (),
        begin: Callable[[R], Effects] = begin_nothing,
        diverts: Callable[[R, Message], bool] | None = None,
    ) -> None:
        self.name = name
        self.fsm = fsm
        self.protocol = fsm.protocol
        self.full_name = f"{fsm.protocol}/{name}" if fsm.protocol else name
        self.kinds = {kind.name: kind for kind in kinds}
        self.routes = routes
        self.begin = begin
        self.diverts = diverts
        self._check(kinds)
        self.table: dict[tuple[str, type[Event]], tuple[EventRoute, ...]] = {}
        for route in routes:
            self._add(route)
        self.check_rules()

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        """The machines of the process and of its parties."""
        return (self.fsm, *{kind.fsm.full_name: kind.fsm for kind in self.kinds.values()}.values())

    def fsm_of(self, kind: str) -> Fsm[Any]:
        """The machine of a kind, or of the process."""
        return self.fsm if kind == PROCESS else self.kinds[kind].fsm

    def target(self, route: EventRoute, life: str, event: Any, to: str = "", kind: str = "", party: str = "") -> str:
        """The id of the party that a route leads to; `to`: whom a message is for; `party` of this `kind` tells it."""
        if route.to == PROCESS:
            return life
        if route.to == ADDRESSEE:
            return to
        if route.paired:
            return self.kinds[route.to].id_of(life, self.kinds[kind].number_of(party))
        return str(getattr(event, route.by)) if route.by else self.kinds[route.to].id_of(life)

    def check_begin(self, kind: str, party: str, life: str, living: int) -> PartyKind:
        """The kind of a party that begins; raises `DeclarationError` where it may not."""
        known = self.kinds.get(kind)
        if known is None:
            raise DeclarationError(f"{self.name}: begins {kind!r}, which is no kind of it; there are: {self._kinds()}")
        if life_of(party) != life or not known.is_id(party):
            raise DeclarationError(
                f"{self.name}: begins {kind} {party!r}; its id must be like {known.id_of(life, known.number or 1)!r}"
            )
        if living >= known.most:
            raise DeclarationError(
                f"{self.name}: begins more than {known.most} of {kind} at a time; guard the row that begins them, or"
                f" declare more"
            )
        return known

    # -- values -------------------------------------------------------------------------------------------------

    def encode(self, state: ProcessState) -> bytes:
        """The value as JSON.  Raises `LocalProtocolError` while effects are owed: `fire` gives them."""
        if state.owed or state.own.owed or any(one.node.owed for one in state.parties):
            raise LocalProtocolError(self.name, "-", "encode", "", "effects are owed since a refused event; call fire")
        return msgspec.json.encode(state, enc_hook=enc_hook)

    def decode(self, data: bytes) -> ProcessState:
        """The inverse of `encode`."""
        raw = msgspec.json.decode(data)
        own = self._node(raw["own"], self.fsm)
        parties = tuple(
            PartyState(one["kind"], self._node(one["node"], self.fsm_of(one["kind"]))) for one in raw["parties"]
        )
        return ProcessState(own, parties)

    @staticmethod
    def _node(raw: Any, fsm: Fsm[Any]) -> NodeState:
        record = msgspec.convert(raw["record"], fsm.record_type, dec_hook=dec_hook)
        timers, soon = (tuple(tuple(one) for one in raw[name]) for name in ("timers", "soon"))
        return NodeState(raw["name"], record, timers, soon)

    # -- the declaration ----------------------------------------------------------------------------------------

    def _kinds(self) -> str:
        return ", ".join(self.kinds) or "none"

    def _check(self, kinds: tuple[PartyKind, ...]) -> None:
        for kind in kinds:
            if kind.name in (PROCESS, OUTSIDE, ADDRESSEE, APPLICATION) or kind is not self.kinds[kind.name]:
                raise DeclarationError(f"{self.name}: two kinds are called {kind.name!r}; rename one")
            if kind.most < 1:
                raise DeclarationError(f"{self.name}: kind {kind.name} has most={kind.most}; must be 1 or more")
            for other in kinds:
                if other is not kind and other.prefix == kind.prefix and other.fsm is kind.fsm:
                    raise DeclarationError(f"{self.name}: kinds {kind.name} and {other.name} are the same; drop one")
        for fsm in self.machines:
            unfit = find_unfit(fsm.record_type)
            if unfit:
                raise DeclarationError(f"{self.name}: a process is a value that is written and read, and {unfit}")

    def check_rules(self) -> None:
        """Rules read nothing but what they are given and what never changes, and some rule begins each kind."""
        shown = (kind.view for kind in self.kinds.values())
        guards = (rule for route in self.routes for rule in (route.when, route.change))
        own = list_named((*list_rules(self.fsm), self.begin, self.diverts, *guards, *shown))
        self._check_values(own)
        for kind in self.kinds.values():
            self._check_values(list_named(list_rules(kind.fsm)))
        values = [one.value for one in own]
        can_begin = any(one is Begin for one in values)
        words = {one.name if isinstance(one, PartyKind) else one for one in values if isinstance(one, str | PartyKind)}
        for name, kind in self.kinds.items():
            if not (kind.given or (can_begin and name in words)):
                events = [name_of(event) for route in self.routes if route.to == name for event in route.on]
                led = f", to which {', '.join(events)} should go" if events else ""
                raise DeclarationError(
                    f"{self.name}: no rule begins a {name}{led}; return a Begin for it, drop it, or give it given=True "
                    "if what embeds the process begins it"
                )

    def _check_values(self, named: list[NamedValue]) -> None:
        families = (one for fsm in self.machines for one in fsm.family())
        records: Any = (ProcessState, PartyState, NodeState, *(one.record_type for one in families))
        for function, name, value in named:
            for one in list_inside(value):
                if isinstance(one, records):
                    mend = "; what it may know of a party is shown by a LookAt and its view"
                elif can_change(one):
                    mend = " that can change; keep it in the record, or make it a tuple or Map"
                else:
                    continue
                where = f"{self.name}: {function} reads {name}, where a {type(one).__name__} is"
                raise DeclarationError(f"{where}{mend}")

    def _add(self, route: EventRoute) -> None:
        where = f"{self.name}: the route of {', '.join(map(name_of, route.on))} to {route.to}"
        if not route.clause:
            raise DeclarationError(f"{where} has no clause")
        for end in (*route.of, route.to):
            if end not in self.kinds and end not in (PROCESS, OUTSIDE, ADDRESSEE, APPLICATION):
                raise DeclarationError(f"{where}: {end!r} is no kind of the process; there are: {self._kinds()}")
        if route.to == ADDRESSEE and route.of != (OUTSIDE,):
            raise DeclarationError(f"{where}: only a message from {OUTSIDE} has an addressee; name a kind")
        to_kind = self.kinds.get(route.to)
        if route.paired and (to_kind is None or not all(kind in self.kinds for kind in route.of)):
            raise DeclarationError(f"{where}: only a party is paired with a party; name kinds as both ends")
        if to_kind is not None and not route.by and not route.paired and to_kind.number is None:
            raise DeclarationError(
                f"{where}: which one? name the field that says so (by=), say paired=True, or give the kind a number"
            )
        for event in route.on:
            self._check_taken(where, route, event)
            for kind in route.of:
                known = self.table.setdefault((kind, event), ())
                if known and known[-1].when is None:
                    raise DeclarationError(f"{where}: never taken, since one before it has no guard; put it first")
                self.table[kind, event] = (*known, route)

    def _check_taken(self, where: str, route: EventRoute, event: type[Event]) -> None:
        """Its end takes the event."""
        if route.to in (ADDRESSEE, APPLICATION):
            return
        taken = event if route.as_type is None else route.as_type
        if route.to == PROCESS and OUTSIDE in route.of:
            taken = Arrived
        if taken not in self.fsm_of(route.to).alphabet:
            raise DeclarationError(f"{where}: nothing there takes {name_of(taken)}; add a row, or change the route")
        fields = getattr(event, "__struct_fields__", ())
        if route.by and route.by not in fields:
            raise DeclarationError(
                f"{where}: {name_of(event)} has no field {route.by!r}; there are: {', '.join(fields)}"
            )
