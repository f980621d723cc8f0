"""Group listing: the groups of a store, one request after the other.

A group has a few records, and two for each of its streams.  Those of streams lie between its claim and its root, so a
listing finds the first record of a group, reads the few, and goes on behind the root.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, ConfigurationError, node_of
from statemachines.shared_subscriptions.group_store import Claim, Order, Properties, Read, ReadDone, Scan, Scanned
from statemachines.shared_subscriptions.names import CLAIM, PROPERTIES, ROOT, record_key, record_name

GROUPS: Final = "/"
"""How the keys of all records of groups begin."""

NAMES: Final = (PROPERTIES, CLAIM, ROOT)
"""The records of a group that say what it is; the last has the greatest key of all."""


class ListedGroup(msgspec.Struct, frozen=True):
    """A group that is declared in a store."""

    subscription: str
    """As one subscribes to it: $shared/GROUP/FILTER."""
    order: Order
    start_ns: int
    """Nanoseconds of store time; 0: everything stored."""
    leader: str
    """The node of the leader host that has the claim, or had it last without a word; "": nobody has."""
    epoch: int
    """How many leaders the group has had."""
    is_destroyed: bool
    """It is not declared any more; what is left of it is being removed."""

    def describe(self) -> str:
        """A line about it."""
        leads = f"led by {self.leader}, epoch {self.epoch}" if self.leader else "led by nobody"
        ends = ", is being destroyed" if self.is_destroyed else ""
        return f"{self.subscription}: {self.order} order, {leads}{ends}"


class GroupListing(msgspec.Struct, frozen=True):
    """`after`: the groups up to this key are listed; `key`: a record of the group that is read now ("": the next one is
    looked for); `found`: the groups so far; there may be more of them `left`."""

    after: str = GROUPS
    key: str = ""
    found: tuple[ListedGroup, ...] = ()
    left: bool = True

    @property
    def request(self) -> Scan | Read:
        """What is to be asked next."""
        return Read(1, list_keys(self.key)) if self.key else Scan(1, GROUPS, self.after, 1)

    @property
    def is_over(self) -> bool:
        """All groups were found."""
        return not self.left

    def take(self, answer: Answer) -> GroupListing:
        """What is to be asked after this answer; raises `ConfigurationError` where the store did not answer."""
        if isinstance(answer, Scanned):
            if not answer.records:
                return replace(self, left=False)
            return replace(self, key=answer.records[0][0])
        if not isinstance(answer, ReadDone):
            raise ConfigurationError("store", "groups", "cannot be read now; try again")
        found = show_group(self.key, answer)
        after = max(self.key, list_keys(self.key)[-1])
        return GroupListing(after, found=self.found if found is None else (*self.found, found))


def list_keys(key: str) -> tuple[str, ...]:
    """The keys of the few records of the group that has a record with this key."""
    group, topic_filter, _ = record_name(key)
    return tuple(record_key(group, topic_filter, one) for one in NAMES)


def show_group(key: str, answer: ReadDone) -> ListedGroup | None:
    """The group whose few records these are; None: it is not declared."""
    group, topic_filter, _ = record_name(key)
    properties, claim = (None if one is None else one.value for one in answer.records[:2])
    if not isinstance(properties, Properties):
        return None
    held = claim if isinstance(claim, Claim) else Claim("", 0)
    return ListedGroup(
        f"$shared/{group}/{topic_filter}",
        properties.order,
        properties.start_ns,
        node_of(held.leader) if held.leader else "",
        held.epoch,
        properties.destroyed,
    )
