"""A lock with leases, declared as a stranger would: a server, holders, and a store that may look at tokens.

The server grants the lock under a token that grows; a holder writes to the store as long as it believes in its lease.
`lock_system` needs no glue: declared machines, and what may happen to them.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Answer,
    Ask,
    Call,
    Fsm,
    Ignore,
    Message,
    Request,
    Row,
    Send,
    Status,
    Tell,
    Timer,
    TimerFired,
)
from statemachines_spec import (
    Always,
    Crash,
    FsmActor,
    Network,
    Observer,
    Pause,
    Reaction,
    ServiceActor,
    Sometimes,
    System,
    View,
    at_most,
    deadline_order,
)

SECOND = 10**9


class Acquire(Message, frozen=True):
    who: str
    n: int


class Granted(Message, frozen=True):
    n: int
    token: int


class Want(Call, frozen=True):
    pass


class Store(Call, frozen=True):
    pass


class Write(Request, frozen=True):
    token: int


class Written(Answer, frozen=True):
    taken: bool


class LeaseEnd(TimerFired, frozen=True):
    pass


class Expiry(TimerFired, frozen=True):
    pass


class Wrote(Answer, frozen=True):
    token: int


# -- the server -----------------------------------------------------------------------------------------------------


class LockStatus(Status):
    FREE = "free"
    HELD = "held"


FREE, HELD = LockStatus


class LockRecord(msgspec.Struct, frozen=True):
    status: LockStatus = FREE
    owner: str = ""
    n: int = 0
    token: int = 0


def grant(record, event, now_ns):
    token = record.token + 1
    return replace(record, owner=event.who, n=event.n, token=token), (Send(event.who, Granted(event.n, token)),)


def forget(record, event, now_ns):
    return replace(record, owner="", n=0), ()


LOCK = Fsm(
    "lock",
    protocol="lock_made_up",
    record=LockRecord,
    states=LockStatus,
    initial=FREE,
    rows=(
        Row(Acquire, FREE, HELD, grant, None, "LK-01"),
        Ignore((Acquire,), HELD, "LK-03"),
        Row(Expiry, HELD, FREE, forget, None, "LK-04"),
        Ignore((Expiry,), FREE, "LK-05"),
    ),
    timers=(Timer("expiry", Expiry, (HELD,), lambda record: 10 * SECOND),),
)

# -- a holder -------------------------------------------------------------------------------------------------------


class HolderStatus(Status):
    IDLE = "idle"
    WAITING = "waiting"
    HOLDING = "holding"


IDLE, WAITING, HOLDING = HolderStatus


class HolderRecord(msgspec.Struct, frozen=True):
    name: str
    status: HolderStatus = IDLE
    n: int = 0
    token: int = 0


def ask(record, event, now_ns):
    n = record.n + 1
    return replace(record, n=n), (Send("lock", Acquire(record.name, n)),)


def hold(record, event, now_ns):
    return replace(record, token=event.token), ()


def write(record, event, now_ns):
    return record, (Ask("store", Write(record.token)),)


def tell(record, event, now_ns):
    return record, (Tell(Wrote(record.token)),) if event.taken else ()


def is_answer(record, event):
    return event.n == record.n


HOLDER = Fsm(
    "holder",
    protocol="lock_made_up",
    record=HolderRecord,
    states=HolderStatus,
    initial=IDLE,
    rows=(
        Row(Want, IDLE, WAITING, ask, None, "LK-10"),
        Row(Granted, WAITING, HOLDING, hold, is_answer, "LK-12"),
        Ignore((Granted,), (IDLE, WAITING, HOLDING), "LK-13"),
        Row(Store, HOLDING, STAY, write, None, "LK-14"),
        Row(Written, HOLDING, STAY, tell, None, "LK-15"),
        Ignore((Written,), (IDLE, WAITING), "LK-15"),
        Row(LeaseEnd, (WAITING, HOLDING), IDLE, None, None, "LK-16"),
        Ignore((LeaseEnd,), IDLE, "LK-17"),
        Ignore((Want,), (WAITING, HOLDING), "LK-18"),
        Ignore((Store,), (IDLE, WAITING), "LK-18"),
    ),
    timers=(Timer("lease", LeaseEnd, (WAITING, HOLDING), lambda record: 8 * SECOND, authority=True),),
)


# -- the store ------------------------------------------------------------------------------------------------------


class Kept(msgspec.Struct, frozen=True):
    """The token of the last write; `overtaken`: a write with an older one was taken after it."""

    token: int = 0
    overtaken: bool = False


class TokenStore:
    """Takes a write; one that honours tokens refuses an older one."""

    name = "store"

    def __init__(self, honours=True):
        self.honours = honours

    def initial(self):
        return Kept()

    def apply(self, state, request, now_ns):
        older = request.token < state.token
        if older and self.honours:
            return state, (Written(False),)
        return Kept(max(state.token, request.token), state.overtaken or older), (Written(True),)


# -- the closed system: what a stranger writes ----------------------------------------------------------------------


def calls(record):
    return {IDLE: (Want(),), HOLDING: (Store(),)}.get(record.status, ())


def keep_number(crashed, fresh):
    return replace(fresh, n=crashed.n)


def lock_system(honours=True, pauses=1, crashes=0, disk=True, asks=2, grants=2, in_flight=2, order=True, remote=False):
    """Two holders want the lock; one of them may stand still past its lease, or crash."""
    lock = FsmActor("lock", LOCK, LockRecord(), bound=lambda record: record.token <= grants)
    holders = [
        FsmActor(
            name,
            HOLDER,
            HolderRecord(name),
            calls=calls,
            faults=(Pause, Crash),
            lives=1 + crashes,
            disk=keep_number if disk else None,
            bound=lambda record: record.n <= asks,
        )
        for name in ("holder-1", "holder-2")
    ]
    store = ServiceActor(TokenStore(honours), remote=remote)
    both = tuple(one.is_in(HOLDING, awake=True) for one in holders)
    lease_first = deadline_order(
        "lease before expiry",
        "a lease lasts 8 s from its asking, the expiry comes 10 s after the grant",
        early="lease",
        late=Expiry,
        of_early=lambda actor, record: (actor, record.n),
        of_late=lambda actor, record, event: (record.owner, record.n),
    )
    return System(
        "lock",
        "a holder stands still past the end of its lease, and goes on",
        (lock, *holders, store),
        Network(in_flight),
        properties=(
            Always("one holder", "two holders never act together", both, lambda *each: sum(each) <= 1),
            Always("fenced", "no write is taken after a later one", (store.view(lambda kept: kept.overtaken),),
                   lambda overtaken: not overtaken),
            Sometimes("both hold", "each of them gets the lock", both, lambda one, two: two == 1),
        ),
        budgets=(at_most("pauses", pauses, Pause), at_most("crashes", crashes, Crash)),
        orders=(lease_first,) if order else (),
    )  # fmt: skip


class Heard(msgspec.Struct, frozen=True):
    """The highest token that anybody wrote under."""

    token: int = 0


class Books(Observer):
    """Who wrote, as applications were told."""

    def __init__(self):
        super().__init__("books")

    def initial(self):
        return Heard()

    def sees(self, actor, before, event, after):
        return None

    def react(self, local, envelope, watch=None):
        return Reaction(Heard(max(envelope.event.token, local.token)))


def wrote_system(tells=None, highest=2):
    """One holder asks twice; what it tells its application goes into the books."""
    told = {Wrote: "books"} if tells is None else tells
    holder = FsmActor("holder-1", HOLDER, HolderRecord("holder-1"), calls=calls, bound=few_asks, tells=told)
    lock = FsmActor("lock", LOCK, LockRecord(), bound=few_tokens)
    heard = View("books", 3, lambda local: local.token)
    return System(
        "books",
        "an application is told what was written",
        (lock, holder, ServiceActor(TokenStore(), remote=True), Books()),
        Network(2),
        properties=(
            Always("few", "nobody writes under a higher token", (heard,), lambda token: token <= highest),
            Sometimes("wrote", "", (heard,), lambda token: token == 2),
        ),
    )


def few_asks(record):
    return record.n <= 2


def few_tokens(record):
    return record.token <= 2
