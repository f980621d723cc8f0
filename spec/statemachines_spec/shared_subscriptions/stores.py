"""Store: a service as a component: the shipped pure `apply`, its commits numbered.

FailingStore: a store that at times does not do what it is asked, or does it and does not say so.

A `Fail` says which of the next requests it meets, since several of them may come within one step.  What is answered
with a failure may have been carried out all the same: the outcome of a commit is open then.  Sometimes there is no
answer at all, which no driver of ours does.

RestoredStore: a group store that is put back once, to a claim of before: epochs begin anew there, or come twice.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Event, Map, Request, Service, Status, in_order
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    Committed,
    Properties,
    StoredRecord,
    StoreFailed,
    record_key,
)
from statemachines.shared_subscriptions.names import CLAIM, ROOT, record_name
from statemachines.shared_subscriptions.stream_store import (
    Append,
    Drop,
    FetchFailed,
    ListStreams,
    Measure,
    Rotate,
    StoredStream,
    StoredStreams,
)
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.property import Property
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP
from statemachines_spec.shared_subscriptions.leader_host import Watched


class StoreLocal(msgspec.Struct, frozen=True, gc=False):
    """What the service keeps; `commits` so far, which are their stamps, so that no two batches carry the same one;
    `aged`: somebody has watched its claim for the TTL; `appended`: how much of its script the environment has done."""

    state: Any
    commits: int = 0
    aged: bool = False
    appended: int = 0


class Store(Actor):
    """`at_once`: answers within the transition that asks; `script`: what the environment asks of it while the system
    runs, in this order; `page`: it lists at most so many streams at a time (0: as many as it is asked for); `roots`:
    how many batches a group commits after its claim."""

    def __init__(
        self,
        service: Service[Any],
        *,
        at_once: bool = True,
        state: Any = None,
        script: tuple[Request, ...] = (),
        page: int = 0,
        roots: int = 0,
    ) -> None:
        super().__init__(service.name)
        self.service = service
        self.at_once = at_once
        self.state = service.initial() if state is None else state
        self.script = script
        self.page = page
        self.roots = roots

    def initial(self) -> StoreLocal:
        return StoreLocal(self.state)

    def inputs(self, local: StoreLocal) -> tuple[Any, ...]:
        return (self.script[local.appended],) if local.appended < len(self.script) else ()

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Watched):
            return Reaction(replace(local, aged=local.aged or stamp_of_claim(local) == event.stamp))
        assert isinstance(event, Request)
        if self.page and isinstance(event, ListStreams):
            event = replace(event, limit=min(event.limit, self.page))
        state, answers = self.service.apply(local.state, event, self.time_of(local, event))
        if not envelope.sender:
            return Reaction(replace(local, state=state, appended=local.appended + 1))
        if isinstance(event, Commit) and isinstance(answers[0], Committed):
            after = self.count_commit(replace(local, state=state))
        else:
            after = replace(local, state=state)
        back = tuple(Envelope(self.name, envelope.sender, answer) for answer in answers)
        return Reaction(after, (), back) if self.at_once else Reaction(after, back)

    def time_of(self, local: StoreLocal, request: Request) -> int:
        """The number of a commit; of anything else, that of the last."""
        return local.commits + isinstance(request, Commit)

    def count_commit(self, local: StoreLocal) -> StoreLocal:
        """One commit more: the claim is new."""
        return replace(local, commits=local.commits + 1, aged=False)

    def within(self, local: StoreLocal) -> bool:
        if self.name != GROUP_STORE:
            return True
        roots = (stored.value for key, stored in in_order(local.state) if record_name(key).name == ROOT)
        return all(root <= self.roots for root in roots)

    def describe(self, local: StoreLocal) -> str:
        if self.name != GROUP_STORE:
            return ", ".join(f"{stream}: {stored.count} messages" for stream, stored in in_order(local.state.by_id))
        words = [f"{key} = {stored.value}" for key, stored in in_order(local.state) if "properties" not in key]
        return ", ".join([*words, *(["watched for its TTL"] if local.aged else [])])


def stamp_of_claim(local: StoreLocal) -> int:
    """The stamp of the claim; 0: there is none."""
    return next((one.stamp for _, one in in_order(local.state) if isinstance(one.value, Claim)), 0)


def holder(local: StoreLocal) -> Claim | None:
    """The claim that somebody holds."""
    for key, stored in in_order(local.state):
        if record_name(key).name == CLAIM and isinstance(stored.value, Claim) and stored.value.leader:
            return stored.value
    return None


def streams(topics: tuple[str, ...], count: int, *, ended: bool = False) -> StoredStreams:
    """A stream store with `count` messages in the one stream of each topic; `ended`: nothing follows in them."""
    held = {f"0.0/{topic}": StoredStream(topic, 0, 0, count, ((0, 0),), ended) for topic in topics}
    return StoredStreams(Map(held))


def script(lines: tuple[str, ...]) -> tuple[Request, ...]:
    """What the environment does with the stream store: "rotate", "drop" (all generations but the current one), or the
    name of a topic that gets a message."""
    rotated = 0
    requests: list[Request] = []
    for line in lines:
        rotated += line == "rotate"
        done = {"rotate": Rotate(0), "drop": Drop(0, rotated)}
        requests.append(done.get(line, Append(0, line, 1)))
    return tuple(requests)


def make_declared_store(configuration: Configuration) -> Map[str, StoredRecord]:
    """A group store that knows the group: it begins with everything stored."""
    ours = configuration
    properties = Properties(0, ours.ping_interval_ms, ours.ping_timeout_ms, ours.claim_ttl_ms)
    return Map({record_key(GROUP, FILTER, "properties"): StoredRecord(properties, 0)})


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


FIRST = 1
"""The epoch of the claim at the beginning, which nobody holds."""

KEPT = ("S1", "S17")
"""The first words of the names of what is promised all the same; the rest rests on a store that keeps what it has
committed (D-33)."""


class Restore(Event, frozen=True, gc=False):
    """All that was committed since is lost; the claim has this epoch."""

    epoch: int


class RestoredStore(Store):
    """A group store; how often it is put back a budget says."""

    def inputs(self, local: StoreLocal) -> tuple[Any, ...]:
        return (*super().inputs(local), Restore(FIRST - 1), Restore(FIRST))

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if isinstance(envelope.event, Restore):
            return Reaction(replace(self.count_commit(local), state=release_claim(self.state, envelope.event.epoch)))
        return super().react(local, envelope, watch)


def release_claim(state: Map[str, StoredRecord], epoch: int) -> Map[str, StoredRecord]:
    """The same records, and a claim of that epoch that nobody holds."""
    return state.set(record_key(GROUP, FILTER, CLAIM), StoredRecord(Claim("", epoch), 0))


def keep_unbroken(properties: tuple[Property, ...]) -> tuple[Property, ...]:
    """Those of the properties that a store which is put back does not break."""
    return tuple(one for one in properties if one.name.split(" ")[0] in KEPT)
