"""What the explorer is to know: closed systems of the lock, and what must hold in them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lock_service.holder import HOLDER, HOLDING, IDLE, Drop, HolderRecord, Put, Want
from lock_service.server import HELD, SERVER, Begin, OverTimer, ServerRecord
from lock_service.store import Journal, Vault
from statemachines.kernel import Event
from statemachines_spec import (
    Always,
    CheckProtocol,
    Crash,
    FsmActor,
    Network,
    Pause,
    ServiceActor,
    Sometimes,
    Stepwise,
    System,
    at_most,
    deadline_order,
)

SIZES = {
    "small": {"attempts": 2, "tokens": 2, "writes": 1, "network": 2},
    "ci": {"attempts": 3, "tokens": 2, "writes": 2, "network": 2},
}
"""What bounds a system: attempts of each holder, tokens given out, writes of each holder, messages in flight."""

Lease = tuple[str, int]
"""A holder, and the attempt that its lease counts from; "" is anybody."""


def lease_of(actor: str, record: HolderRecord) -> Lease:
    return (record.id, record.lease_n)


def over_of(actor: str, record: ServerRecord, event: Event) -> Lease:
    """Which leases end before the server goes on: those of its holder, or after a restart everybody's."""
    return (record.holder, record.n) if record.status is HELD else ("", 0)


def ends_first(leases: frozenset[Lease], over: Lease) -> bool:
    return not over[0] or any(holder == over[0] and attempt <= over[1] for holder, attempt in leases)


LEASE_FIRST = replace(
    deadline_order(
        "lease before over",
        "lease <= surely_over * (1 - drift) / (1 + drift), and a lease counts from the sending",
        early="lease",
        late=OverTimer,
        of_early=lease_of,
        of_late=over_of,
    ),
    before=ends_first,
)


def calls(record: HolderRecord) -> tuple[Event, ...]:
    """What an application may do."""
    if record.status is IDLE:
        return (Want(),)
    return (Drop(), Put("x")) if record.status is HOLDING else (Drop(),)


def never_back(actor: str, before: Any, event: Event, after: Any) -> bool:
    """S2 in one step of the vault: its token does not go down."""
    return actor != "vault" or bool(after.state.token >= before.state.token)


def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """Two holders, a server with its journal, and the vault; one fault of the kind that the system is called after."""
    bounds = SIZES[size]

    def few_tokens(record: ServerRecord) -> bool:
        return record.token <= bounds["tokens"]

    def few_attempts(record: HolderRecord) -> bool:
        return record.n <= bounds["attempts"] and record.writes <= bounds["writes"]

    server = FsmActor(
        "server",
        SERVER,
        lambda life: ServerRecord("server"),
        start=Begin(),
        faults=(Crash,),
        lives=2 if name == "restart" else 1,
        silent=("again",),
        bound=few_tokens,
    )
    holders = [
        FsmActor(
            holder,
            HOLDER,
            HolderRecord(holder, "server"),
            calls=calls,
            faults=(Pause,),
            bound=few_attempts,
        )
        for holder in ("holder-1", "holder-2")
    ]
    vault = ServiceActor(Vault(honours=variant != "no_tokens"), remote=True)
    awake = tuple(holder.is_in(HOLDING, awake=True) for holder in holders)
    return System(
        name,
        SYSTEMS[name],
        (server, *holders, ServiceActor(Journal()), vault),
        Network(bounds["network"]),
        properties=(
            Always("S1", "no two holders that run believe that they have the lock", awake, lambda *each: sum(each) < 2),
            Stepwise("S2", "what is written is written under tokens that never go down", never_back),
            Sometimes("held by the second", "the other one gets it, too", awake, lambda one, two: two == 1),
            Sometimes("token 2", "it changes hands", (server.view(lambda record: min(record.token, 2), 3),),
                      lambda token: token == 2),
        ),
        budgets=(
            at_most("pauses of a holder", 1 if name == "pause" else 0, Pause),
            at_most("crashes of the server", 1 if name == "restart" else 0, Crash),
        ),
        orders=() if LEASE_FIRST.name in without else (LEASE_FIRST,),
        bounds={key: str(value) for key, value in bounds.items()},
    )  # fmt: skip


SYSTEMS = {
    "quiet": "nothing fails but the network",
    "pause": "a holder stands still, perhaps past the end of its lease, and goes on",
    "restart": "the server crashes, and comes back with its journal",
}

SPEC = CheckProtocol(
    systems=SYSTEMS,
    build=system,
    sizes=tuple(SIZES),
    variants={"settled": "the vault honours tokens", "no_tokens": "the vault takes whatever comes"},
    orders=(LEASE_FIRST,),
)
