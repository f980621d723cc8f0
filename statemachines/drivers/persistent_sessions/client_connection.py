"""ClientConnection: what a node knows of a client that is connected, and how it says something to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from statemachines.drivers.persistent_sessions.client_rights import ClientRights
from statemachines.drivers.persistent_sessions.outbox import Outbox
from statemachines.kernel import Message
from statemachines.persistent_sessions.acknowledgements import Acknowledgement, FrontAcknowledged
from statemachines.persistent_sessions.message import Delivered, PublishStored, Pubrel

Say = Callable[[Message], bool]
"""Brings a message to a client; False: there was no room for it."""

SayAll = Callable[[Sequence[Delivered | Pubrel | PublishStored]], bool]
"""Brings messages to a client; of QoS 0 what there is no room for is dropped.  False: there was none for another."""

Tell = Callable[[str, Message], None]
"""Says a message to the client of a life, if it is still there."""


class ClientConnection:
    """A client: `say` to it, and `deliver` messages to it; `answers` about what it published go out together, if it is
    over the transport (None: each at once); when it was `heard_ns` last; `owner` of its session ("":
    none), and who brings it that session's messages; `rights`: what it may do; `changes` of its subscriptions, and
    messages it is `publishing` (and their `bytes`), that are under way; what it has `acknowledged` in this turn of the
    loop; `since_ns`: when it has published first, by the store's time (None: it has not; 0: that is being asked for).
    While it is `subscribing` so many filters that may bring retained messages, direct messages are `held` behind
    these."""

    __slots__ = (
        "acknowledged", "answers", "bytes", "changes", "courier", "deliver", "heard_ns", "held", "owner", "publishing",
        "rights", "say", "since_ns", "subscribing",
    )  # fmt: skip

    def __init__(self, say: Say, deliver: SayAll, heard_ns: int, rights: ClientRights) -> None:
        self.say = say
        self.deliver = deliver
        self.rights = rights
        self.heard_ns = heard_ns
        self.owner = ""
        self.changes = 0
        self.publishing = 0
        self.bytes = 0
        self.courier: Outbox | None = None
        self.since_ns: int | None = None
        self.answers: list[PublishStored] | None = None
        self.acknowledged: list[Acknowledgement | FrontAcknowledged] = []
        self.held: list[Delivered] = []
        self.subscribing = 0
