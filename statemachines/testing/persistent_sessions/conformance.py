"""Conformance: the roles of persistent sessions that others may implement."""

from __future__ import annotations

from typing import Final

from statemachines.testing.persistent_sessions.conformance_session import SESSION_ROLE
from statemachines.testing.persistent_sessions.conformance_writer import WRITER_ROLE

ROLES: Final = {"session": SESSION_ROLE, "writer": WRITER_ROLE}
