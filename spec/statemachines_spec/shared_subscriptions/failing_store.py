"""FailingStore: a store that at times does not do what it is asked, or does it and does not say so.

A `Fail` says which of the next requests it meets, since several of them may come within one step.  What is answered
with a failure may have been carried out all the same: the outcome of a commit is open then.  Sometimes there is no
answer at all, which no driver of ours does.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Answer, Event, Request, Status
from statemachines.shared_subscriptions.group_store import Commit, StoreFailed
from statemachines.shared_subscriptions.stream_store import FetchFailed, ListStreams, Measure
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.shared_subscriptions.stores import Store, StoreLocal


class StoreFailure(Status):
    """What becomes of the next request."""

    NONE = "carried out and answered"
    REFUSED = "not carried out, answered with a failure"
    OPEN = "carried out, answered with a failure"
    DROPPED = "not carried out, not answered"
    SILENT = "carried out, not answered"


NONE, REFUSED, OPEN, DROPPED, SILENT = StoreFailure


class Fail(Event, frozen=True, gc=False):
    """The store is about to fail in this way, after so many more requests."""

    how: StoreFailure
    after: int


class FailingLocal(StoreLocal, frozen=True, gc=False):
    """As of any store; `failing`: what becomes of a request; `after`: how many come before it."""

    failing: StoreFailure = NONE
    after: int = 0


class FailingStore(Store):
    """`hows`: the ways in which it may fail; `chain`: how many requests come within one step, at most."""

    def __init__(self, service: Any, *, hows: tuple[StoreFailure, ...], chain: int = 1, **options: Any) -> None:
        super().__init__(service, **options)
        self.hows = hows
        self.chain = chain

    def initial(self) -> FailingLocal:
        return FailingLocal(self.state)

    def inputs(self, local: StoreLocal) -> tuple[Any, ...]:
        assert isinstance(local, FailingLocal)
        inputs = super().inputs(local)
        if local.failing is not NONE:
            return inputs
        return (*inputs, *(Fail(how, after) for how in self.hows for after in range(self.chain)))

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        assert isinstance(local, FailingLocal)
        event = envelope.event
        if isinstance(event, Fail):
            return Reaction(replace(local, failing=event.how, after=event.after))
        if local.failing is NONE or not (envelope.sender and isinstance(event, Request)):
            return super().react(local, envelope, watch)
        if local.after:
            return super().react(replace(local, after=local.after - 1), envelope, watch)
        done = replace(local, failing=NONE)
        if local.failing in (OPEN, SILENT) and isinstance(event, Commit):
            reaction = super().react(done, envelope, watch)
            assert reaction is not None
            done = reaction.local
        if local.failing in (DROPPED, SILENT):
            return Reaction(done)
        back = (Envelope(self.name, envelope.sender, make_failed_answer(event)),)
        return Reaction(done, (), back) if self.at_once else Reaction(done, back)


def make_failed_answer(request: Request) -> Answer:
    """How a driver says that a store did not carry out a request."""
    n: int = getattr(request, "n", 0)
    return FetchFailed(n) if isinstance(request, ListStreams | Measure) else StoreFailed(n)
