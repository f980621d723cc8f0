"""A process of one party, for comparisons: whatever arrives goes to it, and it does nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import OUTSIDE, Arrived, Begin, EventRoute, Ignore, Message, PartyKind, Process, Status
from statemachines.kernel import Fsm as Machine
from statemachines_spec.explorer.process_actor import ProcessActor


class ShellStatus(Status):
    OPEN = "open"


class ShellRecord(msgspec.Struct, frozen=True):
    id: str
    status: ShellStatus = ShellStatus.OPEN


def make_shell(record):
    """A machine that drops all that arrives."""
    rows = (Ignore((Arrived,), ShellStatus.OPEN, "T-1"),)
    return Machine("shell", record=record, states=ShellStatus, initial=ShellStatus.OPEN, rows=rows)


SHELL = make_shell(ShellRecord)


def with_id(record: Any, party: str) -> Any:
    """The record, and the id of who has it."""
    kind = type(record)
    if "id" in kind.__struct_fields__:
        return replace(record, id=party)
    named = msgspec.defstruct(kind.__name__, [("id", str, "")], bases=(kind,), frozen=True)
    values = {field: getattr(record, field) for field in kind.__struct_fields__}
    return named(id=party, **values)


def wrap(fsm: Machine) -> Process:
    """A process that hands all that arrives to its one party; `first` in its record is what that begins with."""
    first = ("first", fsm.record_type)
    record = msgspec.defstruct("WrapRecord", [first], bases=(ShellRecord,), frozen=True, kw_only=True)
    messages = tuple(one for one in fsm.alphabet if issubclass(one, Message))
    routes = (EventRoute(messages, (OUTSIDE,), "one", "T-1"),) if messages else ()
    kinds = (PartyKind("one", fsm, most=1, number=1),)
    return Process("shell", make_shell(record), kinds=kinds, routes=routes,
                   begin=lambda record: (Begin(f"{record.id}/1", "one", record.first),))  # fmt: skip


def make_single(name, fsm, record, *, calls=None, timing=None, bound=None, disk=None, **options):
    """What `FsmActor(name, fsm, record, ...)` is, as a process."""
    process = wrap(fsm)
    return ProcessActor(
        name,
        process,
        lambda life: process.fsm.record_type(life, first=with_id(record, f"{life}/1")),
        inputs_of={} if calls is None else {"one": calls},
        timings={} if timing is None else {"one": timing},
        bound=None if bound is None else lambda parts: bound(party_of(parts)),
        disk=None if disk is None else lambda crashed, fresh: fresh,
        **options,
    )


def party_of(parts):
    """The record of its party."""
    return parts.of_kind("one").record
