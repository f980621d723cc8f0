"""Store: a service as a component: the shipped pure `apply`, its commits numbered."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Map, Request, Service, in_order
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    Committed,
    Properties,
    StoredRecord,
    record_key,
)
from statemachines.shared_subscriptions.names import CLAIM, ROOT, record_name
from statemachines.shared_subscriptions.stream_store import (
    Append,
    Drop,
    ListStreams,
    Rotate,
    StoredStream,
    StoredStreams,
)
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
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
