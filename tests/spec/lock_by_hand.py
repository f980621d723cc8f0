"""The system of `lock_toy` once more, its components written by hand: nothing of `FsmActor` or `ServiceActor` in it."""

from __future__ import annotations

import msgspec
from lock_toy import FREE, HELD, HOLDING, IDLE, WAITING, Acquire, Expiry, Granted, LeaseEnd, Store, Want, Write, Written
from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines_spec import Actor, Always, Budget, Crash, Envelope, Network, Order, Pause, Reaction, System, View
from statemachines_spec.explorer.actor import PassAll, Restart, Wake


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
