"""What must hold of MQTT connections (`spec/mqtt_connections/properties.md`): written once for all that judge it."""

from __future__ import annotations

from statemachines.mqtt_connections.properties.connection_history import RULES

PROPERTIES: tuple[str, ...] = tuple(RULES)
"""Those that `ConnectionHistory` judges."""
