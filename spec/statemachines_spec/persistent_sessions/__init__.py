"""Persistent sessions as closed systems: writers, owners, a database that lags, and a client that judges what comes."""

from statemachines_spec.persistent_sessions.bugs import BUGS
from statemachines_spec.persistent_sessions.hunts import HUNTS
from statemachines_spec.persistent_sessions.systems import SYSTEMS, VARIANTS, system
from statemachines_spec.protocol import CheckProtocol

SPEC = CheckProtocol(
    systems={name: about for name, (about, _) in SYSTEMS.items()},
    build=system,
    variants=VARIANTS,
    bugs=BUGS,
    hunted=HUNTS,
)
