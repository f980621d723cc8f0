"""Identity: who a client has proved to be, however it has."""

from __future__ import annotations

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """`names`: of the user whose password it knows, or of its certificate (empty: it has proved no name);
    `is_certified`: they are those of a certificate."""

    names: frozenset[str] = frozenset()
    is_certified: bool = False

    def describe(self) -> str:
        """For logs."""
        return ", ".join(sorted(self.names)[:3]) or "a client without a name"
