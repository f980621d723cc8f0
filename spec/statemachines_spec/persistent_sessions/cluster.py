"""Cluster: what carries live messages from writers to owners, and knows which writers live.

A path keeps the order of a writer's messages, unless the system says otherwise; it may break, and then everything on
it is lost and the owner is told.  A writer that has died, or come back, is reported some time later; where it has done
both, the broken path is.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.persistent_sessions.message import Live
from statemachines.persistent_sessions.writer_flow_record import LinkLost, WriterDown, WriterUp
from statemachines_spec.explorer.actor import Crash, Envelope, Observer, Reaction, Restart, Watch
from statemachines_spec.explorer.property import View
from statemachines_spec.persistent_sessions.attached import Carried

CLUSTER = "cluster"


class HandOver(Event, frozen=True, gc=False):
    """A message of this writer arrives; `place` on its path."""

    writer: str
    place: int


class Break(Event, frozen=True, gc=False):
    """The path from this writer breaks."""

    writer: str


class Lose(Event, frozen=True, gc=False):
    """The last that this writer has stored is not sent after all, and nobody is told."""

    writer: str


class Died(Event, frozen=True, gc=False):
    """A writer has died (nobody has noticed yet)."""

    writer: str


class Came(Event, frozen=True, gc=False):
    """A writer that had died is there again."""

    writer: str


class Report(Event, frozen=True, gc=False):
    """It is noticed whether this writer lives."""

    writer: str


class WriterPath(msgspec.Struct, frozen=True, gc=False):
    """From one writer: `posts` on their way; `news`: what nobody has noticed yet ("", down, up; link: it was
    down, is up again, and its connection broke)."""

    writer: str
    posts: tuple[Carried, ...] = ()
    news: str = ""


class ClusterLocal(msgspec.Struct, frozen=True, gc=False):
    """`paths` of all writers."""

    paths: tuple[WriterPath, ...]


class Cluster(Observer):
    """`places` of a path; `ordered`: whether it keeps the order; `owners` that are told what happens to writers."""

    def __init__(self, writers: tuple[str, ...], owners: tuple[str, ...], *, places: int, ordered: bool = True) -> None:
        super().__init__(CLUSTER)
        self.writers = writers
        self.owners = owners
        self.places = places
        self.ordered = ordered

    def initial(self) -> ClusterLocal:
        return ClusterLocal(tuple(WriterPath(writer) for writer in self.writers))

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor not in self.writers:
            return None
        if isinstance(event, Crash):
            return Died(actor)
        return Came(actor) if isinstance(event, Restart) and after.life > 1 else None

    def inputs(self, local: ClusterLocal) -> tuple[Any, ...]:
        found: list[Any] = []
        for path in local.paths:
            ready = path.posts[:1] if self.ordered else path.posts
            found += [HandOver(path.writer, place) for place in range(len(ready))]
            found += [Break(path.writer)] if path.posts else []
            found += [Lose(path.writer)] if path.posts and isinstance(path.posts[-1].message, Live) else []
            found += [Report(path.writer)] if path.news else []
        return tuple(found)

    def react(self, local: ClusterLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        writer = envelope.sender.partition("~")[0] if isinstance(event, Carried) else event.writer
        path = next(one for one in local.paths if one.writer == writer)
        match event:
            case Carried():
                return Reaction(_with(local, replace(path, posts=(*path.posts, event))))
            case HandOver(_, place):
                post = path.posts[place]
                rest = (*path.posts[:place], *path.posts[place + 1 :])
                return Reaction(
                    _with(local, replace(path, posts=rest)), (), (self._call(writer, post.to, post.message),)
                )
            case Lose():
                return Reaction(_with(local, replace(path, posts=path.posts[:-1])))
            case Break():
                return self._tell_owners(_with(local, replace(path, posts=())), LinkLost(writer))
            case Died():
                return Reaction(_with(local, replace(path, news="down")))
            case Came():
                return Reaction(_with(local, replace(path, news="link" if path.news == "down" else "up")))
            case Report() if path.news == "link":
                return self._tell_owners(_with(local, replace(path, posts=(), news="")), LinkLost(writer))
            case Report():
                news = WriterDown(writer) if path.news == "down" else WriterUp(writer)
                posts = () if path.news == "down" else path.posts
                return self._tell_owners(_with(local, replace(path, posts=posts, news="")), news)
        raise TypeError(f"the cluster does not take {event!r}")

    def within(self, local: ClusterLocal) -> bool:
        return all(len(path.posts) <= self.places for path in local.paths)

    def describe(self, local: ClusterLocal) -> str:
        words = [
            f"{path.writer}: {len(path.posts)} on the way{', ' + path.news if path.news else ''}"
            for path in local.paths
        ]
        return "; ".join(words)

    def bounds(self) -> dict[str, str]:
        order = "in order" if self.ordered else "in any order"
        return {"live messages": f"at most {self.places} of each writer on their way, {order}"}

    def rests(self) -> View:
        """Nothing is on its way, and nothing has to be noticed."""
        return View(self.name, 2, lambda local: int(all(not path.posts and not path.news for path in local.paths)))

    def _tell_owners(self, local: ClusterLocal, news: Event) -> Reaction:
        return Reaction(local, (), tuple(Envelope(self.name, owner, news) for owner in self.owners))

    def _call(self, writer: str, to: str, message: Any) -> Envelope:
        return Envelope(writer, to, message)


def _with(local: ClusterLocal, path: WriterPath) -> ClusterLocal:
    return ClusterLocal(tuple(path if one.writer == path.writer else one for one in local.paths))
