"""Role: as what a node takes part in its protocol: whom it talks to, and which messages it takes.

    SERVER = Role("lock_service", "server", takes=Acquire | Renew | Release, dialled_by=("holder",))
    HOLDER = Role("lock_service", "holder", takes=Granted | Denied, dials=("server",))

Transports compare roles and never name one: the words are the protocol's.
"""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError, RemoteProtocolError, name_of
from statemachines.wire import PacketCodec


class NodeRole(msgspec.Struct, frozen=True):
    """`takes`: a type of message, or a union of some; `dials`: the roles at the other end of connections that we make,
    `dialled_by`: of those that we accept (a name alone is of the same protocol, `protocol/name` of any); `speaker`: the
    field of our messages that names who speaks, which must be the sender ("": they name none); `proved`: the roles of
    peers that nobody is believed to have without a proof, where there are certificates or secrets; `storeless`: the
    roles, ours or of peers, that work on no store, and may talk to those that do.

    Raises `ConfigurationError` for a role that talks to nobody.
    """

    protocol: str
    name: str
    takes: Any
    dials: tuple[str, ...] = ()
    dialled_by: tuple[str, ...] = ()
    speaker: str = ""
    proved: tuple[str, ...] = ()
    storeless: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.dials and not self.dialled_by:
            raise ConfigurationError("role", self.full_name, "talks to nobody; give it `dials` or `dialled_by`")

    @property
    def full_name(self) -> str:
        """As a hello says it."""
        return f"{self.protocol}/{self.name}"

    def full(self, name: str) -> str:
        """The full name of a role that goes by `name` here."""
        return name if "/" in name else f"{self.protocol}/{name}"

    def peers(self, dialled: bool) -> tuple[str, ...]:
        """The full names of the roles that may be at the other end; `dialled`: of a connection that we made."""
        return tuple(self.full(name) for name in (self.dials if dialled else self.dialled_by))

    @property
    def proved_roles(self) -> tuple[str, ...]:
        """The full names of the roles that must be proved."""
        return tuple(self.full(name) for name in self.proved)

    def has_store(self, role: str) -> bool:
        """Whether a node with this (full) role must work on our store."""
        return not {role, self.full_name} & {self.full(name) for name in self.storeless}

    def codec(self) -> PacketCodec[Any]:
        """Decodes what this role takes, and nothing else."""
        return PacketCodec(self.takes)

    def check_speaker(self, sender: str, message: Any) -> None:
        """Nobody speaks for another: raises `RemoteProtocolError` for a message that names somebody else."""
        if self.speaker and getattr(message, self.speaker) != sender:
            why = f"it is of another {self.speaker}, {getattr(message, self.speaker)}"
            raise RemoteProtocolError(self.full_name, "-", name_of(type(message)), "", why)
