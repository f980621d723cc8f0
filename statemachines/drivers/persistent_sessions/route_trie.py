"""RouteTrie: which sessions a topic is for: filters with wildcards in a trie, those without by name (source: "High
level description").

A look-up walks the levels of the topic, at most two ways at each; what it costs does not grow with the filters that do
not match.  `version` says how much of the store's changes it knows.

Filters of groups, at nodes that know no groups; the rules of all topics and filters are in `drivers.topic`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from statemachines.drivers.topic import check_filter, is_shared
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.message import choose_routes

REMEMBERED_MAX: Final = 100_000
"""Routes that are remembered for the topics of messages; beyond it all are forgotten."""

TOPIC_MAX: Final = 256
"""Characters of the longest topic that is remembered."""


class Route(NamedTuple):
    """A subscription of a session that a topic matches; `until_ns` of a message that is stored for it; `is_single`: of
    those of the session that are, one gets the message; `owner` of the session, to whom a message goes directly."""

    session: str
    filter: str
    qos: int
    until_ns: int = 0
    is_single: bool = False
    owner: str = ""


SINGLE: Final = 4
"""Added to the quality of a subscription that is single."""


class Branch:
    """A level of filters: `here` the sessions of the filter that ends at it, `below` what follows."""

    __slots__ = ("below", "here")

    def __init__(self) -> None:
        self.below: dict[str, Branch] = {}
        self.here: dict[str, int] = {}


class RouteTrie:
    """Filters of sessions, as far as the store's routes of `version`."""

    def __init__(self) -> None:
        self.version = 0
        self._plain: dict[str, dict[str, int]] = {}
        self._root = Branch()
        self._remembered: dict[str, tuple[Route, ...]] = {}
        """Topic -> its routes, of topics that came since a subscription changed."""
        self._size = 0
        """How many routes are remembered."""

    @property
    def is_empty(self) -> bool:
        """Whether no filter has ever been put."""
        return not (self._plain or self._root.below)

    def put(self, session: str, topic_filter: str, qos: int, is_single: bool = False) -> None:
        """The session subscribes; a subscription that is there has this `qos` from now on."""
        self._forget()
        self._sessions(topic_filter)[session] = qos + SINGLE * is_single

    def remove(self, session: str, topic_filter: str) -> None:
        """The session does not subscribe any more, if it did."""
        self._forget()
        if not has_wildcard(topic_filter):
            sessions = self._plain.get(topic_filter, {})
            sessions.pop(session, None)
            if not sessions:
                self._plain.pop(topic_filter, None)
            return
        self._remove_below(self._root, topic_filter.split("/"), 0, session)

    def sessions_of(self, topic_filter: str) -> list[str]:
        """The sessions that subscribe this very filter, sorted."""
        if not has_wildcard(topic_filter):
            return sorted(self._plain.get(topic_filter, ()))
        branch: Branch | None = self._root
        for level in topic_filter.split("/"):
            branch = None if branch is None else branch.below.get(level)
        return [] if branch is None else sorted(branch.here)

    def match(self, topic: str) -> list[Route]:
        """Every subscription that the topic matches, sorted."""
        found = [make_route(session, topic, number) for session, number in self._plain.get(topic, {}).items()]
        levels = topic.split("/")
        # No wildcard of the first level matches what belongs to the server ("$SYS/...").
        self._walk(self._root, levels, (), found, wild=not topic.startswith("$"))
        return sorted(found)

    def find_routes(self, topic: str) -> tuple[Route, ...]:
        """The same, with one of the single ones of each session."""
        known = self._remembered.get(topic)
        if known is None:
            known = choose_routes(self.match(topic))
            if len(topic) > TOPIC_MAX:
                return known
            if self._size + len(known) >= REMEMBERED_MAX:
                self._forget()
            self._size += len(known) + 1
            self._remembered[topic] = known
        return known

    def _forget(self) -> None:
        self._remembered.clear()
        self._size = 0

    def _sessions(self, topic_filter: str) -> dict[str, int]:
        if not has_wildcard(topic_filter):
            return self._plain.setdefault(topic_filter, {})
        branch = self._root
        for level in topic_filter.split("/"):
            following = branch.below.get(level)
            if following is None:
                following = branch.below[level] = Branch()
            branch = following
        return branch.here

    def _remove_below(self, branch: Branch, levels: list[str], place: int, session: str) -> None:
        """Branches that lead nowhere any more go, too."""
        if place == len(levels):
            branch.here.pop(session, None)
            return
        following = branch.below.get(levels[place])
        if following is not None:
            self._remove_below(following, levels, place + 1, session)
            if not following.here and not following.below:
                del branch.below[levels[place]]

    def _walk(
        self, branch: Branch, levels: list[str], path: tuple[str, ...], found: list[Route], wild: bool = True
    ) -> None:
        if wild and (rest := branch.below.get("#")) is not None:  # the level above, too: "a/#" matches "a"
            _gather(rest, (*path, "#"), found)
        if len(path) == len(levels):
            _gather(branch, path, found)
            return
        level = levels[len(path)]
        for each in (level, "+") if wild else (level,):
            following = branch.below.get(each)
            if following is not None:
                self._walk(following, levels, (*path, each), found)


def _gather(branch: Branch, path: tuple[str, ...], found: list[Route]) -> None:
    if branch.here:
        topic_filter = "/".join(path)
        found += [make_route(session, topic_filter, number) for session, number in branch.here.items()]


def make_route(session: str, topic_filter: str, number: int) -> Route:
    """Of a subscription whose quality, and whether it is single, is this number."""
    return Route(session, topic_filter, number % SINGLE, 0, number >= SINGLE)


def of_sessions(routes: Iterable[Route]) -> tuple[Route, ...]:
    """The routes to sessions, without those to streams of groups, and to owners."""
    return tuple(filter(attrgetter("session"), routes))


def is_for_session(routes: Sequence[Route]) -> bool:
    """Whether one of the routes is to a session: all others stand behind them."""
    return bool(routes) and bool(routes[0].session)


def is_for_owner(routes: Sequence[Route]) -> bool:
    """Whether one of the routes is to an owner, past the database: those stand behind all others."""
    return bool(routes) and bool(routes[-1].owner)


def is_for_stream(routes: Sequence[Route]) -> bool:
    """Whether one of the routes is to the stream of a group: those to sessions stand before it."""
    return bool(routes) and not routes[-1].session and not all(one.session or one.owner for one in routes)


def has_wildcard(topic_filter: str) -> bool:
    """Whether it stands for more than one topic."""
    return "+" in topic_filter or "#" in topic_filter


def check_private(topic_filter: str) -> str:
    """A filter that a session may subscribe where no groups are: itself; raises `ConfigurationError` for one of a group
    (PS-220)."""
    if is_shared(check_filter(topic_filter)):
        raise unknown_group(topic_filter)
    return topic_filter


def unknown_group(topic_filter: str) -> ConfigurationError:
    """Why a node without groups does nothing for a filter of one, and what to do about it."""
    rule = "is of a group that shares, and this node knows no groups: run it with --group-leader and --group-store"
    return ConfigurationError("filter", topic_filter, f"{rule}; without a session of its own SharedSession reads it")
