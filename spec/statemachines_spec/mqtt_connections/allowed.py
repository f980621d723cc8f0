"""Allowed: mutants of MQTT connections that change nothing a clause speaks of."""

from __future__ import annotations

from typing import Final

from statemachines_spec.protocol import AllowedMutants

ALLOWED: Final = (
    AllowedMutants(
        ("mqtt_connection/*/to-connected",),
        "MQ-51",
        "it stays connected either way, and entering sets no timer",
    ),
    AllowedMutants(
        ("connection_actions.refuse_version/4/lt-is-lte",),
        "MQ-04",
        "a CONNECT of level 4 is 3.1.1, so it is never refused for its level",
    ),
    AllowedMutants(
        ("mqtt_connection/1/after-2", "mqtt_connection/28/after-29", "mqtt_connection/29/after-30",
         "mqtt_connection/30/after-31", "mqtt_connection/31/after-32", "mqtt_connection/37/after-38"),
        "MQ-54",
        "of several violations in one packet any may be answered",
    ),
    AllowedMutants(
        ("mqtt_connection/0/after-1", "mqtt_connection/15/after-16", "mqtt_connection/33/after-34",
         "mqtt_connection/34/after-35", "mqtt_connection/48/after-49", "mqtt_connection/49/after-50"),
        "MQ-58",
        "no packet meets both guards, or both refuse it: either may be asked first",
    ),
)  # fmt: skip
"""Each with the clause that allows it."""
