"""LeaderStores: stores as a leader may meet them: with small pages, and with answers that come once more, and late."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Answer, Event
from statemachines.shared_subscriptions.group_store import Scan, StoredRecord
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.explorer.fsm_actor import FsmActor, FsmLocal
from statemachines_spec.shared_subscriptions.election import CandidateHost
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost, LeaderHostLocal
from statemachines_spec.shared_subscriptions.stores import FailingLocal, FailingStore, Store, StoreFailure, StoreLocal


class PagedStore(Store):
    """A group store that gives `page` records at a time, however many are asked for."""

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        asked = envelope.event
        if self.page and isinstance(asked, Scan):
            envelope = replace(envelope, event=replace(asked, limit=min(asked.limit, self.page)))
        return super().react(local, envelope, watch)


class Meddle(Event, frozen=True, gc=False):
    """Somebody else, another node or an operator, writes this record, or removes it."""

    key: str
    value: Any


class ConcurrentlyModifiedStore(FailingStore):
    """A group store in which somebody else writes these records, in this order, each at any time; it may fail, too."""

    def __init__(
        self, service: Any, *, meddles: tuple[Meddle, ...], hows: tuple[StoreFailure, ...] = (), **options: Any
    ) -> None:
        super().__init__(service, hows=hows, **options)
        self.meddles = meddles

    def inputs(self, local: StoreLocal) -> tuple[Any, ...]:
        return (*super().inputs(local), *self.meddles[local.appended : local.appended + 1])

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if not isinstance(event, Meddle):
            return super().react(local, envelope, watch)
        state, commits = local.state, local.commits + 1
        state = (
            state.delete(event.key) if event.value is None else state.set(event.key, StoredRecord(event.value, commits))
        )
        return Reaction(replace(local, state=state, commits=commits, appended=local.appended + 1))


class Again(Event, frozen=True, gc=False):
    """An answer that was given before arrives once more: who asked had given it up, or has had it."""

    answer: Envelope


class HauntedLocal(FailingLocal, frozen=True, gc=False):
    """As of any store; `said`: the last of its answers to each party, of each kind; `given`: how many."""

    said: tuple[Envelope, ...] = ()
    given: int = 0


class ReplayingStore(FailingStore):
    """A store whose answers may arrive once more at any time, as long as it has given no more than `most`.  `wrapped`:
    as an `Echo`, for hosts that count what is to come; `commits` before it begins."""

    def __init__(
        self,
        service: Any,
        *,
        most: int = 12,
        wrapped: bool = False,
        commits: int = 0,
        hows: tuple[StoreFailure, ...] = (),
        **options: Any,
    ) -> None:
        super().__init__(service, hows=hows, at_once=False, **options)
        self.most = most
        self.wrapped = wrapped
        self.commits = commits

    def initial(self) -> HauntedLocal:
        return HauntedLocal(self.state, self.commits)

    def inputs(self, local: StoreLocal) -> tuple[Any, ...]:
        assert isinstance(local, HauntedLocal)
        return (*super().inputs(local), *(Again(one) for one in local.said))

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Again):
            again = event.answer
            return Reaction(local, (), (replace(again, event=Echo(again.event)) if self.wrapped else again,))
        reaction = super().react(local, envelope, watch)
        if reaction is None:
            return None
        assert isinstance(reaction.local, HauntedLocal)
        answers = [one for one in reaction.sends if isinstance(one.event, Answer)]
        kept = {(one.to, type(one.event).__name__): one for one in (*reaction.local.said, *answers)}
        said = tuple(one for _, one in sorted(kept.items()))
        given = reaction.local.given + len(answers)
        return replace(reaction, local=replace(reaction.local, said=said, given=given))

    def within(self, local: StoreLocal) -> bool:
        assert isinstance(local, HauntedLocal)
        return local.given <= self.most and super().within(local)


class Echo(Event, frozen=True, gc=False):
    """An answer that was given before."""

    answer: Any


class HauntedHost(LeaderHost):
    """A leader host that hears answers once more: numbers of requests are what tells them apart, and stay as they
    are."""

    def react(self, local: LeaderHostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if not isinstance(envelope.event, Echo):
            return super().react(local, envelope, watch)
        heard = replace(envelope, event=envelope.event.answer)
        if local.party is None or heard.to != local.party.record.id:
            return Reaction(local)
        return super().react(replace(local, awaited=local.awaited + 1), heard, watch)

    def canonical(self, local: LeaderHostLocal) -> LeaderHostLocal:
        """Nothing is numbered anew."""
        return local


class HauntedNode(FsmActor):
    """A node that hears answers once more."""

    def react(self, local: FsmLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if isinstance(envelope.event, Echo):
            envelope = replace(envelope, event=envelope.event.answer)
        return super().react(local, envelope, watch)


class HauntedCandidate(HauntedHost, CandidateHost):
    """One that somebody asks as long as it has no leader."""
