"""Allowed: mutants of MQTT connections that change nothing a clause speaks of."""

from __future__ import annotations

from typing import Final

from statemachines_spec.protocol import Allowed

ALLOWED: Final = (
    Allowed(
        ("mqtt_connection/*/to-connected",),
        "MQ-51",
        "it stays connected either way, and entering sets no timer",
    ),
    Allowed(
        ("mqtt_connection/1/after-2", "mqtt_connection/27/after-28", "mqtt_connection/28/after-29",
         "mqtt_connection/29/after-30", "mqtt_connection/30/after-31", "mqtt_connection/36/after-37"),
        "MQ-54",
        "of several violations in one packet any may be answered",
    ),
    Allowed(
        ("mqtt_connection/0/after-1", "mqtt_connection/14/after-15", "mqtt_connection/32/after-33",
         "mqtt_connection/33/after-34", "mqtt_connection/43/after-44", "mqtt_connection/44/after-45"),
        "MQ-58",
        "no packet meets both guards, or both refuse it: either may be asked first",
    ),
)  # fmt: skip
"""Each with the clause that allows it."""
