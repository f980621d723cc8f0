"""MqttSection: what a scenario file says of MQTT clients: all that it says of persistent sessions, and a bit more."""

from __future__ import annotations

from statemachines.kernel import ConfigurationError
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.persistent_sessions.section import check as check_sessions
from statemachines_sim.scenario import Scenario, check_bounds


class MqttSection(SessionSection, frozen=True, forbid_unknown_fields=True):
    """The keys below `[mqtt_connections]`."""

    filters: int = 1
    """One: a packet does not say which filter brought it."""
    qos: tuple[int, ...] = (1, 2)
    """Of subscriptions and messages.  A message of QoS 0 comes once at most."""
    levels: tuple[int, ...] = (5,)
    """Each client speaks one of these, in turn: 4 is MQTT 3.1.1."""
    keep: bool = False
    """A publisher has a session, and goes on there with what it has published with QoS 2."""
    half_open: float = 0.3
    """Such a share of the connections that a subscriber gives up stays open, until the next takes its session."""


def check(own: MqttSection, scenario: Scenario) -> None:
    """Raises `ConfigurationError` where a value breaks a rule."""
    check_sessions(own, scenario)
    check_bounds(("half_open", own.half_open, 0, 1))
    if not own.levels or not set(own.levels) <= {4, 5}:
        raise ConfigurationError("levels", list(own.levels), "must be one or more of 4 and 5")
    if own.filters != 1:
        raise ConfigurationError("filters", own.filters, "must be 1: a packet does not say which filter brought it")
