"""MqttSection: what a scenario file says of MQTT clients: all that it says of persistent sessions, and a bit more."""

from __future__ import annotations

from statemachines.kernel import ConfigurationError
from statemachines_sim.persistent_sessions.section import Section
from statemachines_sim.persistent_sessions.section import check as check_sessions
from statemachines_sim.scenario import Scenario, check_bounds


class MqttSection(Section, frozen=True, forbid_unknown_fields=True):
    """The keys below `[mqtt_connections]`."""

    filters: int = 1
    """One: a packet does not say which filter brought it."""
    qos: tuple[int, ...] = (1, 2)
    """Not 0: such a message is never stored, and what is stored is judged."""
    half_open: float = 0.3
    """Such a share of the connections that a subscriber gives up stays open, until the next takes its session."""


def check(own: MqttSection, scenario: Scenario) -> None:
    """Raises `ConfigurationError` where a value breaks a rule."""
    check_sessions(own, scenario)
    check_bounds(("half_open", own.half_open, 0, 1))
    if 0 in own.qos:
        raise ConfigurationError("qos", list(own.qos), "must not have 0: such a message is never stored")
    if own.filters != 1:
        raise ConfigurationError("filters", own.filters, "must be 1: a packet does not say which filter brought it")
