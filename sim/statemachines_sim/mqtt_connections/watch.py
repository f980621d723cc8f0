"""MqttWatch: what `SessionWatch` judges of sessions, but for SUPERSEDED, which MQTT does not promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statemachines_sim.persistent_sessions.watch import SessionWatch

if TYPE_CHECKING:
    from statemachines_sim.persistent_sessions.subscriber_process import SubscriberProcess


class MqttWatch(SessionWatch):
    """MQTT has no number of an attempt.  The CONNECT of a client that died may arrive behind that of its next life,
    and takes the session; the client connects once more (D-654)."""

    def observe_end(self, client: SubscriberProcess, why: str) -> None:
        """Nothing is promised of why."""
