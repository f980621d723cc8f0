"""Bug: a mistake that is put into shipped machines for the time of a `with` block, to see which check finds it.

    with planted("guard-dropped"):
        ...                                     # every Fsm, host and helper behaves as the sentence says

A bug is a patch of the declaration (rows of a table changed, the compiled table with them) or of what an action calls;
no machine is copied.  A protocol lists its own (`CheckProtocol.bugs`).  A check that finds none of them is not worth
its time; a property that no bug breaks is not worth its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from warnings import catch_warnings, simplefilter

import msgspec

from statemachines import registry
from statemachines.kernel import (
    ConfigurationError,
    DeclarationWarning,
    Delegate,
    Event,
    Fsm,
    Ignore,
    Process,
    Refuse,
    Row,
)
from statemachines.kernel.row import AnyRow

Apply = Callable[[ExitStack], None]


class Bug(msgspec.Struct, frozen=True):
    """A mistake: its `name`, a `sentence` that says it, the `clause` it breaks, what it `replaces`, and how."""

    name: str
    sentence: str
    clause: str
    replaces: str
    apply: Apply

    def __repr__(self) -> str:
        return f"Bug({self.name!r})"


@contextmanager
def plant_bug(name: str) -> Iterator[Bug]:
    """The bug called so (`bug`, or `protocol/bug`), for the time of the block; raises `ConfigurationError` with the
    known names for others."""
    bug = find_bug(name)
    with ExitStack() as stack:
        bug.apply(stack)
        yield bug


def find_bug(name: str) -> Bug:
    """The bug called so (`bug`, or `protocol/bug`); raises `ConfigurationError` with the known names, and where two
    protocols have one of this name."""
    owner, _, short = name.rpartition("/")
    known = list_bugs(owner)
    found = [one for one in known if one.rpartition("/")[2] == short]
    if len(found) > 1:
        raise ConfigurationError("bug", name, f"several protocols have one: say {' or '.join(found)}")
    if not found:
        raise registry.make_unknown_error("bug", name, [one.rpartition("/")[2] for one in known])
    return known[found[0]]


def list_bugs(protocol: str = "") -> dict[str, Bug]:
    """`protocol/bug` -> the bug, of one protocol, or of all that can be loaded and have any."""
    owners = [registry.protocol(protocol)] if protocol else [one for one in registry.protocols() if "spec" in one.areas]
    return {f"{owner.name}/{bug.name}": bug for owner in owners for bug in registry.load_area(owner.name, "spec").bugs}


# -- how to patch ---------------------------------------------------------------------------------------------------


def swap(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """`owner.name` is `value` until the block ends."""
    own = vars(owner)
    before = own.get(name)
    there = name in own
    setattr(owner, name, value)
    stack.callback(lambda: setattr(owner, name, before) if there else delattr(owner, name))


def redeclare(stack: ExitStack, fsm: Fsm[Any], change: Callable[[AnyRow], list[AnyRow]]) -> None:
    """The machine has the rows that `change` makes of its rows until the block ends."""
    declare(stack, fsm, tuple(new for row in fsm.declared for new in change(row)))


def declare(stack: ExitStack, fsm: Fsm[Any], rows: tuple[AnyRow, ...]) -> None:
    """The machine has these rows, compiled anew, until the block ends.

    The object stays the same: nodes, parents and catalogue that hold it see the other table.
    """
    with catch_warnings():
        simplefilter("ignore", DeclarationWarning)  # a mistake is made on purpose
        mutant: Fsm[Any] = Fsm(
            fsm.name,
            protocol=fsm.protocol,
            record=fsm.record_type,
            states=type(fsm.initial),
            initial=fsm.initial,
            rows=rows,
            final=fsm.final,
            timers=fsm.timers,
            children=fsm.children,
            key=fsm.key,
            invariants=fsm.invariants,
        )
    before = dict(vars(fsm))
    vars(fsm).update(vars(mutant))
    stack.callback(lambda: vars(fsm).update(before))


def change_rows(fsm: Fsm[Any], action: str, to: Any = None, **what: Any) -> Apply:
    """The rows whose action is called `action` have another destination `to`, action `do`, or guard `when`."""

    def change(row: AnyRow) -> list[AnyRow]:
        if not isinstance(row, Row) or action_of(row) != action:
            return [row]
        do, when = what.get("do", row.do), what.get("when", row.when)
        return [Row(row.on, row.source, row.to if to is None else to, do, when, row.clause)]

    return lambda stack: redeclare(stack, fsm, change)


def refuse_event(fsm: Fsm[Any], event: type[Event], source: Any) -> Apply:
    """An event that is ignored in `source` is a protocol error there: nobody had thought of it."""

    def change(row: AnyRow) -> list[AnyRow]:
        sources = row.source if isinstance(row.source, tuple) else (row.source,)
        if type(row) is not Ignore or event not in row.on or source not in sources:
            return [row]
        others = tuple(one for one in row.on if one is not event)
        elsewhere = tuple(one for one in sources if one is not source)
        rows: list[AnyRow] = [Refuse((event,), source, row.clause)]
        if others:
            rows.append(Ignore(others, row.source, row.clause))
        if elsewhere:
            rows.append(Ignore((event,), elsewhere, row.clause))
        return rows

    return lambda stack: redeclare(stack, fsm, change)


def drop_route(process: Process[Any], event: type[Event]) -> Apply:
    """What parties of the process tell by this event goes to the application, and to no party."""

    def apply(stack: ExitStack) -> None:
        kept = ((route, tuple(one for one in route.on if one is not event)) for route in process.routes)
        routes = tuple(msgspec.structs.replace(route, on=on) for route, on in kept if on)
        swap(stack, process, "routes", routes)
        swap(stack, process, "table", {place: one for place, one in process.table.items() if place[1] is not event})

    return apply


def replace_call(owner: Any, name: str, value: Any) -> Apply:
    """What actions call as `owner.name` is `value`."""
    return lambda stack: swap(stack, owner, name, value)


def wrap_call(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Apply:
    """What actions call as `owner.name` is wrapped."""
    return lambda stack: swap(stack, owner, name, wrap(getattr(owner, name)))


def combine(*parts: Apply) -> Apply:
    """All of them."""

    def apply(stack: ExitStack) -> None:
        for part in parts:
            part(stack)

    return apply


def action_of(row: Row) -> str:
    """The name of what a row does ("": it only moves on)."""
    run = row.do.run if isinstance(row.do, Delegate) else row.do
    return "" if run is None else str(run.__name__)
