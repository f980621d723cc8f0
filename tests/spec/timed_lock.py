"""The lock of `lock_toy` with a tick: its lease of 8 s and expiry of 10 s are counted down, and nothing is assumed.

With a tick of 2 s a lease lasts 4 ticks of its holder, and the lock expires after 5 of the server's.
"""

from __future__ import annotations

from lock_toy import (
    HOLDER,
    HOLDING,
    IDLE,
    LOCK,
    SECOND,
    HolderRecord,
    LockRecord,
    calls,
)

from statemachines.kernel import Fsm, Timer
from statemachines_spec import (
    Always,
    Drift,
    FsmActor,
    Network,
    Pause,
    Sometimes,
    System,
    TickClock,
    Timing,
    at_most,
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
