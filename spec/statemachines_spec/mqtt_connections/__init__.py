"""MQTT connections as closed systems: a client that says anything, a session behind it, and a judge between them."""

from statemachines_spec.mqtt_connections.allowed import ALLOWED
from statemachines_spec.mqtt_connections.bugs import BUGS
from statemachines_spec.mqtt_connections.systems import ABOUT, system
from statemachines_spec.protocol import CheckProtocol

SPEC = CheckProtocol(
    systems=ABOUT,
    build=system,
    bugs=BUGS,
    allowed=ALLOWED,
)
