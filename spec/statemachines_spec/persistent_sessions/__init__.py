"""Persistent sessions as closed systems: writers, owners, a database that lags, and a client that judges what comes."""

from statemachines_spec.persistent_sessions.allowed import ALLOWED
from statemachines_spec.persistent_sessions.bugs import BUGS
from statemachines_spec.persistent_sessions.counterexamples import ASIDE
from statemachines_spec.persistent_sessions.directed_systems import DIRECTED_SYSTEMS, SYSTEMS, system
from statemachines_spec.persistent_sessions.script import SCRIPT
from statemachines_spec.persistent_sessions.systems import VARIANTS
from statemachines_spec.protocol import CheckProtocol

SPEC = CheckProtocol(
    systems=SYSTEMS,
    build=system,
    sizes=("small", "ci"),
    variants=VARIANTS,
    bugs=BUGS,
    allowed=ALLOWED,
    directed=DIRECTED_SYSTEMS,
    script=SCRIPT,
    aside={name: one.about for name, one in ASIDE.items()},
)
