"""A lock with leases, declared as a stranger would: a server, holders, and a store that may look at tokens.

The server grants the lock under a token that grows; a holder writes to the store as long as it believes in its lease.
`lock_system` needs no glue: declared machines, and what may happen to them.

The system of `lock_toy` once more, its components written by hand: nothing of `FsmActor` or `ServiceActor` in it.

The lock of `lock_toy` with a tick: its lease of 8 s and expiry of 10 s are counted down, and nothing is assumed.

With a tick of 2 s a lease lasts 4 ticks of its holder, and the lock expires after 5 of the server's.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Answer,
    Ask,
    Call,
    Event,
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
    Actor,
    Always,
    Budget,
    Crash,
    Drift,
    Envelope,
    FsmActor,
    Network,
    Observer,
    Order,
    Pause,
    Reaction,
    ServiceActor,
    Sometimes,
    System,
    TickClock,
    Timing,
    View,
    at_most,
    deadline_order,
)
from statemachines_spec.explorer.actor import PassAll, Restart, Wake

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


class LockLocal(msgspec.Struct, frozen=True):
    status: object = FREE
    owner: str = ""
    n: int = 0
    token: int = 0


class Lock(Actor):
    def __init__(self, grants):
        super().__init__("lock")
        self.grants = grants

    def initial(self):
        return LockLocal()

    def inputs(self, local):
        return (Expiry(),) if local.status is HELD else ()

    def react(self, local, envelope, watch=None):
        event = envelope.event
        if isinstance(event, Expiry):
            return Reaction(LockLocal(token=local.token))
        assert isinstance(event, Acquire)
        if local.status is HELD:
            return Reaction(local)
        token = local.token + 1
        answer = Envelope("lock", event.who, Granted(event.n, token))
        return Reaction(LockLocal(HELD, event.who, event.n, token), (answer,))

    def within(self, local):
        return local.token <= self.grants


class HolderLocal(msgspec.Struct, frozen=True):
    mode: str = "running"
    life: int = 1
    status: object = IDLE
    n: int = 0
    token: int = 0
    leased: bool = False


class Holder(Actor):
    def __init__(self, name, lives, asks, disk):
        super().__init__(name)
        self.lives = lives
        self.asks = asks
        self.disk = disk

    def initial(self):
        return HolderLocal()

    def inputs(self, local):
        if local.mode == "down":
            return (Restart(),) if local.life < self.lives else ()
        if local.mode == "paused":
            return (Wake(), PassAll(), Crash()) if local.leased else (Wake(), Crash())
        if local.mode == "late":
            return (Wake(), Crash())
        own = {IDLE: (Want(),), WAITING: (LeaseEnd(),), HOLDING: (LeaseEnd(), Store())}[local.status]
        return (*own, Crash(), Pause())

    def react(self, local, envelope, watch=None):
        event = envelope.event
        if isinstance(event, Crash):
            left = local.n if self.disk and local.life < self.lives else 0
            return Reaction(HolderLocal("down", local.life, n=left))
        if isinstance(event, Restart):
            return Reaction(HolderLocal(life=local.life + 1, n=local.n))
        if isinstance(event, Pause):
            return Reaction(replace(local, mode="paused"))
        if isinstance(event, PassAll):
            return Reaction(replace(local, mode="late"))
        if isinstance(event, Wake):
            awake = replace(local, mode="running")
            return Reaction(replace(awake, status=IDLE, leased=False) if local.mode == "late" else awake)
        if local.mode == "down":
            return Reaction(local)
        if local.mode in ("paused", "late"):
            return None
        return self.step(local, event)

    def step(self, local, event):
        match event:
            case Want():
                n = local.n + 1
                asks = Envelope(self.name, "lock", Acquire(self.name, n))
                return Reaction(replace(local, status=WAITING, n=n, leased=True), (asks,))
            case LeaseEnd():
                return Reaction(replace(local, status=IDLE, leased=False))
            case Granted(n, token):
                if local.status is WAITING and n == local.n:
                    return Reaction(replace(local, status=HOLDING, token=token))
                return Reaction(local)
            case Store():
                return Reaction(local, (), (Envelope(f"{self.name}~{local.life}", "store", Write(local.token)),))
            case Written():
                return Reaction(local)
        raise TypeError(event)

    def within(self, local):
        return local.n <= self.asks


class StoreLocal(msgspec.Struct, frozen=True):
    token: int = 0
    overtaken: bool = False


class Arrived(Event, frozen=True):
    token: int


class Keeper(Actor):
    def __init__(self, honours, remote):
        super().__init__("store")
        self.honours = honours
        self.remote = remote

    def initial(self):
        return StoreLocal()

    def inputs(self, local):
        return ()

    def react(self, local, envelope, watch=None):
        token = envelope.event.token
        if self.remote and isinstance(envelope.event, Write):
            return Reaction(local, (Envelope(envelope.sender, "store", Arrived(token)),))
        older = token < local.token
        answer = (Envelope("store", envelope.sender, Written(not (older and self.honours))),)
        after = local if older and self.honours else StoreLocal(max(token, local.token), local.overtaken or older)
        return Reaction(after, answer) if self.remote else Reaction(after, (), answer)


def lock_by_hand(honours=True, pauses=1, crashes=0, disk=True, asks=2, grants=2, in_flight=2, order=True, remote=False):
    holders = [Holder(name, 1 + crashes, asks, disk) for name in ("holder-1", "holder-2")]
    acting = [View(one.name, 2, lambda local: local.mode == "running" and local.status is HOLDING) for one in holders]

    def leased(actor, local):
        return (actor, local.n) if isinstance(local, HolderLocal) and local.leased and local.mode != "late" else None

    def expiring(actor, local, event):
        return (local.owner, local.n) if isinstance(event, Expiry) else None

    return System(
        "lock by hand",
        "",
        (Lock(grants), *holders, Keeper(honours, remote)),
        Network(in_flight),
        properties=(
            Always("one holder", "", tuple(acting), lambda one, two: one + two <= 1),
            Always("fenced", "", (View("store", 2, lambda local: local.overtaken),), lambda overtaken: not overtaken),
        ),
        budgets=(
            Budget("pauses", pauses, lambda actor, event: isinstance(event, Pause)),
            Budget("crashes", crashes, lambda actor, event: isinstance(event, Crash)),
        ),
        orders=(Order("lease", "", leased, expiring, lambda early, late: early == late),) if order else (),
    )


TICK = 2 * SECOND
LAGS = Drift(5, 1, fast=False)
"""In any 5 ticks a clock may fall behind by one: 4 of its ticks may take 5, as long as the server waits."""
NETWORK = Network(1, lossy=False, duplicating=False)


def with_period(fsm, name, period_ns):
    """The machine with another period of one of its timers."""
    timers = tuple(
        Timer(one.name, one.event, one.states, lambda record: period_ns, authority=one.authority, once=one.once)
        if one.name == name
        else one
        for one in fsm.timers
    )
    return Fsm(
        fsm.name, protocol=fsm.protocol, record=fsm.record_type, states=type(fsm.initial), initial=fsm.initial,
        rows=fsm.declared, final=fsm.final, timers=timers,
    )  # fmt: skip


def timed_lock(expiry=10, pauses=1, drift=None, tick=TICK, clock=True, late=None, network=NETWORK):
    """Two holders, of which the first may drift; who holds the lock is awake and its lease is not due."""
    server = with_period(LOCK, "expiry", expiry * SECOND)
    lock = FsmActor(
        "lock", server, LockRecord(), bound=lambda record: record.token <= 2, timing=Timing(tick, ("expiry",))
    )
    holders = [
        FsmActor(
            name,
            HOLDER,
            HolderRecord(name),
            calls=lambda record: calls(record) if record.status is IDLE else (),
            faults=(Pause,),
            timing=Timing(tick, ("lease",), late=late or {}),
            bound=lambda record: record.n <= 1,
        )
        for name in ("holder-1", "holder-2")
    ]
    both = tuple(one.is_in(HOLDING, awake=True, until="lease") for one in holders)
    time = (TickClock(TICK, drift={"holder-1": drift}),) if clock else ()
    return System(
        "timed lock",
        "a lease ends before the lock expires, by the clocks",
        (lock, *holders, *time),
        network,
        properties=(
            Always("one holder", "two holders never act together", both, lambda *each: sum(each) <= 1),
            Sometimes("both hold", "each of them gets the lock", both, lambda one, two: two == 1),
        ),
        budgets=(at_most("pauses", pauses, Pause),),
    )
