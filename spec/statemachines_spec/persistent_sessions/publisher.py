"""Publisher: hands messages to the writers, and is told which of them are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.persistent_sessions.message import Written
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.writer_record import Hand, HandRange
from statemachines_spec.explorer.actor import Actor, Crash, Envelope, Observer, Reaction, Restart, Watch

PUBLISHER = "publisher"


class PublishTo(Event, frozen=True, gc=False):
    """A message matches the session's subscription, and goes to this writer; `also`: another, together with it."""

    writer: str
    message: str
    also: str = ""


class SessionPublisherLocal(msgspec.Struct, frozen=True, gc=False):
    """The messages that were handed over."""

    handed: tuple[str, ...] = ()


class SessionPublisherActor(Actor):
    """`messages`: what each writer gets, in any order if `jumbled` (their ids were stamped before), of this `qos`, and
    several at once if `together`; `untils`: from when on those are over that expire."""

    def __init__(
        self,
        messages: dict[str, tuple[str, ...]],
        *,
        jumbled: bool = False,
        together: bool = False,
        qos: int = 1,
        untils: Mapping[str, int] | None = None,
        filters: int = 1,
    ) -> None:
        super().__init__(PUBLISHER)
        self.more = tuple(f"t{n}" for n in range(2, filters + 1))
        self.messages = messages
        self.jumbled = jumbled
        self.together = together
        self.qos = qos
        self.untils = dict(untils or {})

    def initial(self) -> SessionPublisherLocal:
        return SessionPublisherLocal()

    def inputs(self, local: SessionPublisherLocal) -> tuple[Any, ...]:
        found: list[Any] = []
        for writer, messages in self.messages.items():
            left = [one for one in messages if one not in local.handed]
            found += [PublishTo(writer, one) for one in (left if self.jumbled else left[:1])]
            if self.together and len(left) > 1:
                found.append(PublishTo(writer, left[0], left[1]))
        return tuple(found)

    def react(self, local: SessionPublisherLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Written):
            return Reaction(local)
        messages = (event.message, event.also) if event.also else (event.message,)
        hands = tuple(Hand(one, "t", self.qos, self.untils.get(one, 0), more=self.more) for one in messages)
        call = Envelope(self.name, event.writer, HandRange(hands) if event.also else hands[0])
        return Reaction(replace(local, handed=tuple(sorted((*local.handed, *messages)))), (), (call,))

    def describe(self, local: SessionPublisherLocal) -> str:
        return f"has handed over {', '.join(local.handed) or 'nothing'}"

    def bounds(self) -> dict[str, str]:
        lines = {"messages": "; ".join(f"{len(messages)} to {writer}" for writer, messages in self.messages.items())}
        if self.untils:
            lines["expiry"] = ", ".join(f"{message} at {until}" for message, until in self.untils.items())
        return lines


class CommitSeen(Event, frozen=True, gc=False):
    """So many rows were committed; or this writer has `died`, or is `up` again."""

    commits: int = 0
    died: str = ""
    up: str = ""


class PublisherCourse(msgspec.Struct, frozen=True, gc=False):
    """`sent`: so many messages; `since_ns`: when it sent the first of them to the writer that it is at; `waits`: for
    the answer to the last; `commits` of rows, so far; writers that are `down`."""

    sent: int = 0
    since_ns: int = 0
    waits: bool = False
    commits: int = 0
    down: tuple[str, ...] = ()


class MovingPublisher(Observer):
    """One publisher, which sends each message, and to which writer, when the one before it is answered.  A message that
    is on its way when its writer dies is given up."""

    def __init__(self, course: tuple[tuple[str, str], ...]) -> None:
        super().__init__(PUBLISHER)
        self.course = course

    def initial(self) -> PublisherCourse:
        return PublisherCourse()

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor == DATABASE and before.commits != after.commits:
            return CommitSeen(after.commits)
        if isinstance(event, Restart):
            return CommitSeen(up=actor)
        return CommitSeen(died=actor) if isinstance(event, Crash) else None

    def inputs(self, local: PublisherCourse) -> tuple[Any, ...]:
        if local.waits or local.sent == len(self.course):
            return ()
        to = self.course[local.sent]
        return () if to[0] in local.down else (PublishTo(*to),)

    def react(self, local: PublisherCourse, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        last = self.course[local.sent - 1] if local.sent else ("", "")
        match event:
            case CommitSeen(commits, died, up):
                gives_up = bool(died) and died == last[0]
                down = tuple(sorted({*local.down, died} - {up, ""}))
                commits = max(commits, local.commits)
                return Reaction(replace(local, commits=commits, waits=local.waits and not gives_up, down=down))
            case Written(message):
                return Reaction(replace(local, waits=local.waits and message != last[1]))
        is_new = event.writer != last[0]
        since_ns = local.commits + 1 if is_new else local.since_ns
        hand = Hand(event.message, "t", since_ns=since_ns)
        local = replace(local, sent=local.sent + 1, since_ns=since_ns, waits=True)
        return Reaction(local, (), (Envelope(self.name, event.writer, hand),))

    def describe(self, local: PublisherCourse) -> str:
        return f"has sent {local.sent} messages{', and waits for an answer' if local.waits else ''}"

    def bounds(self) -> dict[str, str]:
        return {"messages": ", then ".join(f"{message} to {writer}" for writer, message in self.course)}
