"""Mutants: how a clause is taken away from a shipped machine, or something that a machine or host calls is changed.

Each way takes an `ExitStack` and is undone when that closes; the objects stay the same, so nodes, parents and the
catalogue see the mutant.  `breaks.py` beside a protocol's tests says how those of its clauses are broken that are no
row and no invariant: `BREAKS`, clause -> a function of the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from msgspec.structs import asdict, replace

from statemachines.kernel import Fsm, Ignore, Refuse, Row
from statemachines.kernel.fsm import Line
from statemachines.kernel.row import AnyRow
from statemachines_spec import bug

NEUTRAL = "without the clause"
"""The clause of a line that stands where nothing else decides a cell."""

Break = Callable[[ExitStack], None]


def swap(owner: Any, name: str, value: Any) -> Break:
    """`owner.name` is `value`; raises `AttributeError` where there is none, since that would break nothing."""
    getattr(owner, name)
    return lambda stack: bug.swap(stack, owner, name, value)


def shadow(owner: type, name: str, value: property) -> Break:
    """The attribute of its instances is this property."""
    return lambda stack: bug.swap(stack, owner, name, value)


def wrap(owner: Any, name: str, around: Callable[[Any], Any]) -> Break:
    """`owner.name` is what `around` makes of it."""
    return lambda stack: swap(owner, name, around(getattr(owner, name)))(stack)


def without(fsm: Fsm[Any], clause: str) -> Break:
    """The machine has no row of the clause."""
    return lambda stack: without_rows(stack, fsm, tuple(row for row in fsm.declared if row.clause == clause))


def without_choice(protocol: str, clause: str) -> Break:
    """The relations of a protocol's roles say nothing by the clause: everything is as in our table, or nothing binds
    what it binds."""

    def apply(stack: ExitStack) -> None:
        from statemachines.testing.conformance.role import roles_of  # it needs Hypothesis, as few others do

        roles: Any = roles_of(protocol)
        changed = {name: replace(role, relation=_without(role.relation, clause)) for name, role in roles.items()}
        stack.enter_context(patch.dict(roles, changed))

    return apply


def _without(relation: Any, clause: str) -> Any:
    choices = {kind: ones for kind, ones in asdict(relation).items() if ones and kind != "hidden"}
    return replace(
        relation, **{kind: tuple(one for one in ones if one.clause != clause) for kind, ones in choices.items()}
    )


def without_rows(stack: ExitStack, fsm: Fsm[Any], gone: tuple[AnyRow, ...]) -> None:
    """The machine does not have these of its rows until the stack closes."""
    kept = tuple(row for row in fsm.declared if not any(row is one for one in gone))
    bug.declare(stack, fsm, (*kept, *neutral(fsm, kept, tuple(fsm._number(gone)))))


def neutral(fsm: Fsm[Any], kept: tuple[AnyRow, ...], gone: tuple[Line, ...]) -> Iterator[AnyRow]:
    """A line for each cell of `gone` that no unguarded row of `kept` decides: what was ignored is refused, all else is
    ignored."""
    closed = {
        (state, event)
        for row in kept
        for event in ((row.on,) if isinstance(row, Row) else row.on)
        for state in fsm._sources(row.source)
        if not isinstance(row, Row) or row.when is None
    }
    for line in gone:
        kind = Refuse if line.kind == "ignore" else Ignore
        for state in line.sources:
            if (state, line.event) not in closed:
                closed.add((state, line.event))
                yield kind((line.event,), state, NEUTRAL)


def without_invariants(stack: ExitStack, fsm: Fsm[Any], clause: str) -> None:
    """The machine does not check the invariants of the clause until the stack closes."""
    before = fsm.invariants
    fsm.invariants = tuple(one for one in before if one.clause != clause)
    stack.callback(lambda: setattr(fsm, "invariants", before))
