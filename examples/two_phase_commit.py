"""Two-phase commit: resource managers and a transaction manager, over a set of messages from which nothing is removed.

It is the "direct" model of Stateright's examples, itself a part of the specification in Gray and Lamport, "Consensus on
Transaction Commit": the same states, 288 with three resource managers and 8 832 with five.

    cd examples
    gapless show two_phase_commit:TRANSACTION_MANAGER
    gapless check two_phase_commit:SPEC                  three resource managers
    gapless check two_phase_commit:SPEC --size 7
    gapless check two_phase_commit:SPEC --variant impatient     the manager commits too early: a counterexample
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Fsm, Ignore, Message, Row, Send, Status
from statemachines_spec import Always, CheckProtocol, FsmActor, MessageSet, Sometimes, System


class Prepared(Message, frozen=True):
    """To the transaction manager: `manager` is prepared to commit."""

    manager: str


class CommitMessage(Message, frozen=True):
    """To a resource manager, which follows: the transaction is committed."""


class AbortMessage(Message, frozen=True):
    """To a resource manager, which follows: the transaction is aborted."""


class Prepare(Call, frozen=True):
    """A resource manager has done its part."""


class GiveUp(Call, frozen=True):
    """A resource manager aborts by itself."""


class DecideCommit(Call, frozen=True):
    """The transaction manager commits, if all are prepared."""


class DecideAbort(Call, frozen=True):
    """The transaction manager aborts, whenever it likes."""


class ResourceStatus(Status):
    WORKING = "working"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"


WORKING, PREPARED, COMMITTED, ABORTED = ResourceStatus


class ResourceRecord(msgspec.Struct, frozen=True):
    id: str
    status: ResourceStatus = WORKING


def announce(record, event, now_ns):
    return record, (Send("tm", Prepared(record.id)),)


RESOURCE_MANAGER = Fsm(
    "resource_manager",
    protocol="two_phase_commit",
    record=ResourceRecord,
    states=ResourceStatus,
    initial=WORKING,
    rows=(
        #   on       from       to         do        when  clause
        Row(Prepare, WORKING, PREPARED, announce, None, "TP-01"),
        Row(GiveUp, WORKING, ABORTED, None, None, "TP-02"),
        Row(CommitMessage, tuple(ResourceStatus), COMMITTED, None, None, "TP-03"),
        Row(AbortMessage, tuple(ResourceStatus), ABORTED, None, None, "TP-04"),
        Ignore((Prepare, GiveUp), (PREPARED, COMMITTED, ABORTED), "TP-01"),
    ),
)


class TransactionStatus(Status):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TransactionRecord(msgspec.Struct, frozen=True):
    """`managers`: all resource managers; `prepared`: those that are known to be prepared, in order; `needed`: so many
    must be, before the transaction commits."""

    managers: tuple[str, ...]
    needed: int
    status: TransactionStatus = TransactionStatus.OPEN
    prepared: tuple[str, ...] = ()


def note(record, event, now_ns):
    return replace(record, prepared=tuple(sorted({*record.prepared, event.manager}))), ()


def tell_commit(record, event, now_ns):
    return record, tuple(Send(manager, CommitMessage()) for manager in record.managers)


def tell_abort(record, event, now_ns):
    return record, tuple(Send(manager, AbortMessage()) for manager in record.managers)


def is_prepared(record, event):
    return len(record.prepared) >= record.needed


TRANSACTION_MANAGER = Fsm(
    "transaction_manager",
    protocol="two_phase_commit",
    record=TransactionRecord,
    states=TransactionStatus,
    initial=TransactionStatus.OPEN,
    rows=(
        #   on            from           to                  do           when         clause
        Row(Prepared, TransactionStatus.OPEN, STAY, note, None, "TP-10"),
        Row(DecideCommit, TransactionStatus.OPEN, TransactionStatus.COMMITTED, tell_commit, is_prepared, "TP-11"),
        Row(DecideAbort, TransactionStatus.OPEN, TransactionStatus.ABORTED, tell_abort, None, "TP-12"),
        Ignore((Prepared, DecideCommit), tuple(TransactionStatus), "TP-13"),
        Ignore((DecideAbort,), (TransactionStatus.COMMITTED, TransactionStatus.ABORTED), "TP-13"),
    ),
)


def system(managers: int, needed: int) -> System:
    """So many resource managers; the transaction commits once `needed` of them are prepared."""
    names = tuple(f"rm-{number}" for number in range(managers))
    work = {WORKING: (Prepare(), GiveUp())}
    choices = {TransactionStatus.OPEN: (DecideCommit(), DecideAbort())}
    resources = tuple(
        FsmActor(name, RESOURCE_MANAGER, ResourceRecord(name), calls=lambda record: work.get(record.status, ()))
        for name in names
    )
    manager = FsmActor(
        "tm",
        TRANSACTION_MANAGER,
        TransactionRecord(names, needed),
        calls=lambda record: choices.get(record.status, ()),
    )
    ends = tuple(actor.view(lambda record: {COMMITTED: 1, ABORTED: 2}.get(record.status, 0), 3) for actor in resources)
    properties = (
        Always("consistent", "nobody commits what another one aborts", ends, lambda *seen: not {1, 2} <= set(seen)),
        Sometimes("commit agreement", "all commit", ends, lambda *seen: set(seen) == {1}),
        Sometimes("abort agreement", "all abort", ends, lambda *seen: set(seen) == {2}),
    )
    about = f"{managers} resource managers decide whether they commit a transaction"
    origin = (f"{__name__}:system", {"managers": managers, "needed": needed})
    return System("direct", about, (*resources, manager, MessageSet()), properties=properties, origin=origin)


def build(name: str, size: str = "3", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system of this size."""
    return system(int(size), int(size) - (variant == "impatient"))


SPEC = CheckProtocol(
    systems={"direct": "resource managers, a transaction manager, and messages that are never removed"},
    build=build,
    sizes=("3", "5", "7", "10"),
    variants={
        "settled": "the transaction commits when all resource managers are prepared",
        "impatient": "it commits when all but one are",
    },
)
