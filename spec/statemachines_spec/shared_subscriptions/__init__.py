"""Shared subscriptions as closed systems: the host glue around the shipped machines, properties, deadline orders."""

from statemachines_spec.protocol import CheckProtocol
from statemachines_spec.shared_subscriptions.allowed_consumer import ALLOWED as CONSUMER_ALLOWED
from statemachines_spec.shared_subscriptions.allowed_leader import ALLOWED as LEADER_ALLOWED
from statemachines_spec.shared_subscriptions.allowed_process import ALLOWED as PROCESS_ALLOWED
from statemachines_spec.shared_subscriptions.bugs import BUGS
from statemachines_spec.shared_subscriptions.directed_systems import DIRECTED_SYSTEMS
from statemachines_spec.shared_subscriptions.every_system import SYSTEMS, obligations_of, system
from statemachines_spec.shared_subscriptions.orders import ORDERS
from statemachines_spec.shared_subscriptions.script import SCRIPT
from statemachines_spec.shared_subscriptions.systems import SIZES
from statemachines_spec.shared_subscriptions.unreachable import WORKS_IN_TIME
from statemachines_spec.shared_subscriptions.variants import VARIANTS

SPEC = CheckProtocol(
    systems=SYSTEMS,
    build=system,
    sizes=SIZES,
    variants=VARIANTS,
    orders=(*ORDERS, WORKS_IN_TIME),
    bugs=BUGS,
    obligations_of=obligations_of,
    directed=DIRECTED_SYSTEMS,
    allowed=(*CONSUMER_ALLOWED, *LEADER_ALLOWED, *PROCESS_ALLOWED),
    script=SCRIPT,
)
