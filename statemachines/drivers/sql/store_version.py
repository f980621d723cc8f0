"""StoreVersion: which versions of gapless may use a store, and what a newer one changes in it (PS-541)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Upgrade(NamedTuple):
    """The `statements` that make the next version of a store.  `is_additive`: they only add columns with a default,
    tables, indexes and functions with names of their own, so programs of the version before may go on beside it."""

    statements: tuple[str, ...]
    is_additive: bool = False


Upgrades = Mapping[int, Upgrade]
"""Version -> what makes the next one of it."""

NO_UPGRADES: Final[Upgrades] = {}


class StoreVersion(NamedTuple):
    """The `version` of the tables, and the oldest one of a program that may use them."""

    version: int
    oldest_reader: int

    def find_fault(self, ours: int, upgrades: Upgrades) -> str:
        """Why a program of version `ours` may not use it, and what to do; "": it may."""
        if self.oldest_reader > ours:
            needed = f"needs a gapless with tables of version {self.oldest_reader} or later"
            return f"is of version {self.version}, and {needed}; this one has version {ours}: use a newer one"
        if any(version not in upgrades for version in self.list_steps(ours)):
            oldest = min(upgrades, default=ours)
            rule = f"is of version {self.version}, and this gapless upgrades none of before {oldest}"
            return f"{rule}; upgrade it with a version in between"
        return ""

    def list_steps(self, ours: int) -> range:
        """The versions that are upgraded where a program of version `ours` opens it."""
        return range(self.version, ours)

    def needs_stop(self, ours: int, upgrades: Upgrades) -> bool:
        """Whether no other program may use it while it is upgraded."""
        return not all(upgrades[version].is_additive for version in self.list_steps(ours))

    def upgrade(self, ours: int, upgrades: Upgrades) -> StoreVersion:
        """What it is then."""
        broken = [version + 1 for version in self.list_steps(ours) if not upgrades[version].is_additive]
        return StoreVersion(max(self.version, ours), max(self.oldest_reader, *broken, 0))


def say_users(users: list[str], version: StoreVersion, ours: int) -> str:
    """Why it is not upgraded now."""
    found = f"is of version {version.version}, and nodes may still run ({', '.join(users)})"
    return f"{found}; version {ours} does not go beside it: stop them, and wait for the end of their lease"
