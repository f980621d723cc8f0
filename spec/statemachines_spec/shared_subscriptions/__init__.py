"""Shared subscriptions as closed systems: the host glue around the shipped machines, properties, deadline orders."""

from statemachines_spec.protocol import CheckProtocol
from statemachines_spec.shared_subscriptions import alone, contracts, declaring
from statemachines_spec.shared_subscriptions.allowed_consumer import ALLOWED as CONSUMER_ALLOWED
from statemachines_spec.shared_subscriptions.allowed_leader import ALLOWED as LEADER_ALLOWED
from statemachines_spec.shared_subscriptions.bugs import BUGS
from statemachines_spec.shared_subscriptions.hunts import HUNTS
from statemachines_spec.shared_subscriptions.orders import ORDERS
from statemachines_spec.shared_subscriptions.script import SCRIPT
from statemachines_spec.shared_subscriptions.systems import SIZES, SYSTEMS
from statemachines_spec.shared_subscriptions.timed import SYSTEMS as TIMED
from statemachines_spec.shared_subscriptions.timed import any_system, obligations_of
from statemachines_spec.shared_subscriptions.variants import VARIANTS

SPEC = CheckProtocol(
    systems={name: about for name, (about, _) in (*SYSTEMS.items(), *TIMED.items())}
    | declaring.ABOUT
    | alone.ABOUT
    | contracts.ABOUT,
    build=any_system,
    sizes=SIZES,
    variants=VARIANTS,
    orders=ORDERS,
    bugs=BUGS,
    obligations_of=obligations_of,
    hunted=HUNTS,
    allowed=(*CONSUMER_ALLOWED, *LEADER_ALLOWED),
    script=SCRIPT,
)
