"""MQTT in an application: a node that ordinary MQTT clients connect to.

    from statemachines.drivers.mqtt_connections import MqttNode

A name is imported when it is used first: a listing of the roles of `gapless node` needs no machine.
"""

from typing import TYPE_CHECKING, Final

from statemachines.drivers.lazy_import import import_lazily
from statemachines.drivers.protocol import DriverProtocol

if TYPE_CHECKING:
    from statemachines.drivers.mqtt_connections.mqtt_node import MqttNode as MqttNode
    from statemachines.drivers.password_file import PasswordFile as PasswordFile
    from statemachines.mqtt_connections.connection_record import MqttSettings as MqttSettings

DRIVERS: Final = DriverProtocol(roles={"mqtt": f"{__name__}.node_commands:mqtt"})

__getattr__ = import_lazily(
    __name__,
    {
        f"{__name__}.mqtt_node": ("MqttNode",),
        "statemachines.drivers.password_file": ("PasswordFile",),
        "statemachines.mqtt_connections.connection_record": ("MqttSettings",),
    },
)
