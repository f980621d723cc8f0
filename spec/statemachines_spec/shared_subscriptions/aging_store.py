"""AgingStore: the group store of a system with a tick: it counts how old the claim is, by its own clock.

Its times stay numbers of commits, as they must be exact and begin anew nowhere; a read has the time of the claim and as
much more as the claim is old, so that the shipped comparison with `claim_ttl` judges it.  A read comes a nanosecond
after the tick: where ages are compared strictly, the first moment beyond counts as reached.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Map, Request, in_order
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import Claim, GroupStore, Read
from statemachines_spec.explorer.actor import Envelope, Passed, Reaction, Watch
from statemachines_spec.explorer.timing import Timing
from statemachines_spec.shared_subscriptions.stores import Store, StoreLocal, declared, holder


class AgingLocal(StoreLocal, frozen=True, gc=False):
    """`age` of the claim in ticks, as long as somebody holds it."""

    age: int = 0


class AgingStore(Store):
    """`ours`: whose `claim_ttl` it is; `roots`: how many batches a group commits after its claim."""

    def __init__(self, ours: Configuration, tick_ns: int, *, at_once: bool = True, roots: int = 0) -> None:
        super().__init__(GroupStore(), at_once=at_once, state=declared(ours), roots=roots)
        self.ttl_ns = ours.claim_ttl_ms * MS
        self.set_timing(Timing(tick_ns))
        self.tick_ns = tick_ns

    @property
    def oldest(self) -> int:
        """The first age in ticks at which the claim may be taken: it grows no older."""
        return -(-self.ttl_ns // self.tick_ns)

    def initial(self) -> StoreLocal:
        return AgingLocal(self.state)

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if not isinstance(envelope.event, Passed):
            return super().react(local, envelope, watch)
        assert isinstance(local, AgingLocal)
        if holder(local) is None:
            return Reaction(local)
        age = min(local.age + envelope.event.ticks, self.oldest)
        return Reaction(replace(local, age=age, aged=age == self.oldest))

    def time_of(self, local: StoreLocal, request: Request) -> int:
        """As its class says; commits are numbered."""
        assert isinstance(local, AgingLocal)
        if not isinstance(request, Read) or holder(local) is None:
            return super().time_of(replace(local, aged=False), request)
        return _claimed_ns(local.state) + local.age * self.tick_ns + 1

    def committed(self, local: StoreLocal) -> StoreLocal:
        return replace(super().committed(local), age=0)

    def describe(self, local: StoreLocal) -> str:
        assert isinstance(local, AgingLocal)
        return super().describe(local) + (f", the claim {local.age} ticks old" if local.age else "")

    def bounds(self) -> dict[str, str]:
        return {"age of the claim": f"counted, up to {self.oldest} ticks"}


def _claimed_ns(state: Map[str, Any]) -> int:
    """The store's time of the claim."""
    return next(int(stored.time_ns) for _, stored in in_order(state) if isinstance(stored.value, Claim))
