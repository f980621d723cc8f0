"""MQTT connections (source: MQTT 5 and 3.1.1): the server's side of one, in front of a session.

It keeps topic aliases, packet ids in use and quotas of the connection, and asks a session for all that outlives it.
"""

from statemachines.kernel.protocol import Protocol

PROTOCOL = Protocol(
    name="mqtt_connections",
    prefix="MQ",
    about="the server's side of one MQTT connection, in front of a session",
    machines={"mqtt_connection": "statemachines.mqtt_connections.connection:MQTT_CONNECTION"},
    page="statemachines.mqtt_connections:clauses.md",
    areas={
        "spec": "statemachines_spec.mqtt_connections:SPEC",
        "sim": "statemachines_sim.mqtt_connections.sim:SIM",
        "drivers": "statemachines.drivers.mqtt_connections:DRIVERS",
        "reports": "statemachines_reports.mqtt_connections:REPORTS",
    },
    rests_on=("persistent_sessions",),
)
