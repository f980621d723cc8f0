"""Witness consumer: a consumer as it is shipped up to its session: Agent, Borrower and the Witness that stands before
it.

Whoever likes may speak to it as a leader (`Lie`): under every epoch up to one that nobody has reached, with the numbers
that its borrower follows, as its own party or as a host.  All it cannot do is to speak under the name and life of
another, which the transport prevents.  What the Agent does with it is the shipped class's own work.

The claim is read when the store gets round to it (`Reading`), and what was read arrives later (`Arriving`), as a
failure (`Failing`), or never.  Numbers of reads begin anew when none is open.

Named leader: a borrower follows nobody but whom the claim named (S17), whoever speaks to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Ask, Event, Fsm, Process, node_of
from statemachines.shared_subscriptions.agent_process import AGENT, BORROWERS, WITNESSES
from statemachines.shared_subscriptions.borrower import CONNECTED, BorrowerRecord
from statemachines.shared_subscriptions.configuration import ASKING, RESTING, Configuration, RestTimer, WitnessRecord
from statemachines.shared_subscriptions.group_store import SERVICE, Claim, Read, StoreFailed
from statemachines.shared_subscriptions.message import Grant, Invalidate, LeaderConnectResponse, PingResponse, Revoked
from statemachines.shared_subscriptions.private_subscription import AgentRecord
from statemachines.shared_subscriptions.properties.committed_claim import check_leader
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import InternedParty
from statemachines_spec.explorer.process_steps import PartsTurn, ProcessParts, use_machine
from statemachines_spec.explorer.property import Always, Property, Sometimes, Stepwise, View
from statemachines_spec.shared_subscriptions.consumer import (
    FILTER,
    GROUP,
    RUNNING,
    Consumer,
    ConsumerLocal,
    ConsumerMode,
    subscribe,
)
from statemachines_spec.shared_subscriptions.stores import StoreLocal

LIAR = "liar~1"
"""A host that leads nothing; its parties are named after it."""


class PretenderLocal(msgspec.Struct, frozen=True, gc=False):
    """It needs to remember nothing."""


class Pretender(Actor):
    """The host of `LIAR`: whatever it is told, it says what it likes, which is an input of who hears it."""

    def __init__(self) -> None:
        super().__init__(node_of(LIAR))

    def initial(self) -> PretenderLocal:
        return PretenderLocal()

    def inputs(self, local: Any) -> tuple[Any, ...]:
        return ()

    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction:
        return Reaction(local)


DOUBTED = 2
"""So many messages wait for a read of the claim."""


class Lie(Event, frozen=True, gc=False):
    """Somebody whom no claim names speaks to a borrower as a leader, under its own name."""

    sender: str
    message: Any


class Reading(Event, frozen=True, gc=False):
    """The group store gets round to the read that is open."""


class Arriving(Event, frozen=True, gc=False):
    """What was read arrives; the claim may be another by now."""


class Failing(Event, frozen=True, gc=False):
    """The group store does not do it, and says so."""


class WitnessedLocal(ConsumerLocal, frozen=True, gc=False):
    """`open`: the read that the store has not done yet, `answer`: what it has read."""

    open: Read | None = None
    answer: Any = None

    @property
    def witness(self) -> InternedParty | None:
        """The machine that reads the claim."""
        return None if self.parts is None else self.parts.of_kind(WITNESSES.name)

    @property
    def doubted(self) -> tuple[tuple[str, Any], ...]:
        """What waits until the claim is read, with its senders."""
        claim = None if self.parts is None else self.parts.own.record.claims.get((GROUP, FILTER))
        return () if claim is None else claim.doubted


class WitnessedConsumer(Consumer):
    """`lies`: the highest epoch that is lied about; `fails`: reads of the claim may fail."""

    environments = ()

    def __init__(
        self, name: str, configuration: Configuration, *, lies: int, fails: bool = False, **options: Any
    ) -> None:
        super().__init__(name, configuration, **options)
        self.lies = lies
        self.fails = fails

    def choose_process(self, fsm: Fsm[Any]) -> Process[Any]:
        return use_machine(AGENT, BORROWERS.name, fsm)

    def make_record(self, life: str) -> AgentRecord:
        return replace(super().make_record(life), doubted_max=DOUBTED)

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> WitnessedLocal:
        return WitnessedLocal(RUNNING, 1, subscribe(self.steps, self.make_record(self.host)))

    def inputs(self, local: ConsumerLocal) -> tuple[Any, ...]:
        assert isinstance(local, WitnessedLocal)
        if local.party is None or local.witness is None:
            return ()
        return (*super().inputs(local), *self._reads(local), *self._lies(local.party.record))

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        assert isinstance(local, WitnessedLocal)
        event = envelope.event
        if isinstance(event, Reading):
            assert local.witness is not None
            return Reaction(local, (), (Envelope(local.witness.record.id, SERVICE, local.open),))
        if isinstance(event, Answer):
            return Reaction(replace(local, answer=event))
        return super().react(local, envelope, watch)

    def _take(self, turn: PartsTurn, local: ConsumerLocal, envelope: Envelope) -> None:
        assert isinstance(local, WitnessedLocal)
        match envelope.event:
            case Arriving() | Failing() | RestTimer() as event:
                assert local.witness is not None
                told: Event = event
                if local.open is not None and not isinstance(event, RestTimer):
                    told = local.answer if isinstance(event, Arriving) else StoreFailed(local.open.n)
                turn.feed(local.witness.record.id, told)
            case Lie(sender, message):
                assert local.party is not None
                turn.receive(sender, local.party.record.id, message)
            case _:
                super()._take(turn, local, envelope)

    def canonical(self, local: ConsumerLocal) -> ConsumerLocal:
        """Reads are numbered from 0 where none is open."""
        assert isinstance(local, WitnessedLocal)
        if local.parts is None or local.witness is None or local.witness.record.status is ASKING:
            return local
        return replace(local, parts=local.parts.put(self.steps.changed(local.witness, "n=0", _without_number)))

    def describe(self, local: ConsumerLocal) -> str:
        assert isinstance(local, WitnessedLocal)
        words = [super().describe(local)]
        if local.witness is not None:
            record = local.witness.record
            words.append(f"the claim names {record.leader or 'nobody'} (epoch {record.epoch}), {record.status.value}")
            words += [f"{sender} waits" for sender, _ in local.doubted]
        return "; ".join(words)

    # -- inside -------------------------------------------------------------------------------------------------

    def _reads(self, local: WitnessedLocal) -> Iterator[Event]:
        """What becomes of the read that is open."""
        if local.open is not None:
            yield Reading() if local.answer is None else Arriving()
            if self.fails:
                yield Failing()

    def _lies(self, record: BorrowerRecord) -> Iterator[Lie]:
        """Each that could do harm, under the registration that the borrower goes by."""
        registration = 1 if record.link is None else record.link.registration
        for epoch in range(1, self.lies + 1):
            pair = (record.id, epoch, registration)
            leader = f"{LIAR}/1" if record.link is None else record.link.leader
            yield Lie(f"{LIAR}/1", LeaderConnectResponse(record.id, f"{LIAR}/1", epoch, registration))
            yield Lie(LIAR, Invalidate(*pair))
            if record.status is not CONNECTED:
                continue
            yield Lie(f"{LIAR}/1", LeaderConnectResponse(record.id, leader, epoch, registration + 1))
            yield Lie(f"{LIAR}/1", PingResponse(*pair, record.ping_n))
            yield Lie(f"{LIAR}/1", Grant(*pair, "0.0/a", 1, 0))
            yield Lie(f"{LIAR}/1", Revoked(*pair, "0.0/a", 1))

    def _done(self, turn: PartsTurn, before: ConsumerLocal, event: Any = None) -> Reaction:
        assert isinstance(before, WitnessedLocal)
        if isinstance(event, Arriving | Failing):
            before = replace(before, open=None, answer=None)
        asked = [effect.request for _, effect in turn.out if isinstance(effect, Ask)]
        assert len(asked) + (before.open is not None) <= 1, "one read is open at a time"
        return super()._done(turn, replace(before, open=asked[0]) if asked else before)

    def _end(self, local: ConsumerLocal, mode: ConsumerMode, parts: ProcessParts | None) -> ConsumerLocal:
        """Nothing that is read matters any more."""
        return replace(super()._end(local, mode, parts), open=None, answer=None)


def _without_number(record: WitnessRecord) -> WitnessRecord:
    return replace(record, n=0)


EPOCHS = 8
"""Epochs are told apart below this."""

FALSE = EPOCHS
"""Of a borrower that follows somebody who never had the claim."""


def believes(consumers: Iterable[str]) -> tuple[Property, ...]:
    """S17, of every consumer that has a witness."""
    consumers = tuple(consumers)
    return (
        *(
            Always(
                f"S17 {name}",
                "follows nobody who never had the claim",
                (View(name, FALSE + 1, read_followed_epoch),),
                lambda epoch: epoch != FALSE,
            )
            for name in consumers
        ),
        *(
            Always(
                f"S17 as read {name}",
                "follows whom the claim named when it was read last, and waits for no epoch above that",
                (View(name, 2, _follows_the_read),),
                bool,
            )
            for name in consumers
        ),
        *(
            Always(
                f"epochs of {name}",
                "S17: goes by no epoch, and waits for none, that the claim has not reached",
                (View(name, FALSE + 1, read_followed_epoch), View(SERVICE, EPOCHS, read_claim_epoch)),
                lambda epoch, now: epoch <= now,
            )
            for name in consumers
        ),
        *(
            Always(
                f"S17 asked {name}",
                "what was said waits only while the claim is read, or will be when the last read has rested",
                (View(name, 2, _is_asked_about),),
                bool,
            )
            for name in consumers
        ),
        Stepwise("S17 once", "the claim is read once in a period", reads_once),
        Stepwise("S17 kept", "what was read last is what is known, whatever was known before", keeps_what_was_read),
        *(
            Sometimes(f"S17 doubts {name}", "what was said waits for the claim", (View(name, 2, _doubts),), bool)
            for name in consumers
        ),
    )


def read_followed_epoch(local: Any) -> int:
    """The epoch that a borrower goes by, or waits for; `FALSE` where it follows a liar."""
    if not isinstance(local, WitnessedLocal) or local.party is None:
        return 0
    record = local.party.record
    if record.link is not None and node_of(record.link.leader) == node_of(LIAR):
        return FALSE
    epoch: int = record.epoch if record.link is None else record.link.epoch
    return min(epoch, FALSE)


def read_claim_epoch(local: StoreLocal) -> int:
    """The epoch of the claim."""
    values = (stored.value for stored in local.state.values())
    return min(next((value.epoch for value in values if isinstance(value, Claim)), 0), EPOCHS - 1)


def reads_once(actor: str, before: Any, event: Any, after: Any) -> bool:
    """A read begins where none is open, and not before the last one has rested."""
    if not isinstance(before, WitnessedLocal) or not isinstance(after, WitnessedLocal) or before.witness is None:
        return True
    if after.open is None or after.open == before.open:
        return True
    return before.witness.record.status is not RESTING or isinstance(event, RestTimer)


def keeps_what_was_read(actor: str, before: Any, event: Any, after: Any) -> bool:
    """Where the answer arrives the witness knows what it says, and nothing else makes it know another thing."""
    if not isinstance(before, WitnessedLocal) or not isinstance(after, WitnessedLocal):
        return True
    if before.witness is None or after.witness is None:
        return True
    was, now = before.witness.record, after.witness.record
    if not isinstance(event, Arriving):
        return (was.leader, was.epoch) == (now.leader, now.epoch)
    (found,) = before.answer.records
    claim = Claim("", 0) if found is None else found.value
    return (claim.leader, claim.epoch) == (now.leader, now.epoch)


def _follows_the_read(local: Any) -> int:
    if not isinstance(local, WitnessedLocal) or local.party is None or local.witness is None:
        return 1
    record, known = local.party.record, local.witness.record
    if record.link is None:
        return int(record.epoch <= known.epoch)
    return int(not check_leader(record.id, record.link, ((known.leader, known.epoch),)))


def _is_asked_about(local: Any) -> int:
    if not isinstance(local, WitnessedLocal) or local.witness is None:
        return 1
    record = local.witness.record
    if record.status is ASKING:
        return int(local.open is not None)
    return int(local.open is None and (not local.doubted or (record.status is RESTING and record.doubted)))


def _doubts(local: Any) -> int:
    return int(isinstance(local, WitnessedLocal) and bool(local.doubted))
