"""Registry: finds or starts the leader of a group and filter, in its process (source: "Registry").

What it decides is the declared process `REGISTRY`; here are the calls of its host.  No input or output of its own: a
driver feeds it and performs what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping

from statemachines.kernel import Outgoing, ProcessRunner
from statemachines.kernel.node import Observer
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.registry_process import REGISTRY, Close, HaltAll, RegistryRecord


class Registry(ProcessRunner):
    """`life` is the incarnation of the process (`leader-1~3`); `alone`: no other host could lead in its place."""

    def __init__(
        self,
        life: str,
        configuration: Configuration,
        *,
        alone: bool = False,
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        record = RegistryRecord(life, configuration.check(), alone)
        super().__init__(REGISTRY, record, observe=observe, check=check)

    @property
    def leaders(self) -> Mapping[tuple[str, str], str]:
        """(group, filter) -> the leader of this host."""
        leaders: Mapping[tuple[str, str], str] = self.record.leaders
        return leaders

    def close(self, now_ns: int) -> list[Outgoing]:
        """The host ends: every leader gives its claim up, and no other is started; it is done when `nodes` is empty.

        Whoever asks for a leader meanwhile asks the next host: one started here would take the claim that was just
        given up, and keep it beyond the end of the host.
        """
        return self.call(Close(), now_ns)

    def halt(self, now_ns: int) -> list[Outgoing]:
        """Every leader gives its claim up; whoever asks next starts another."""
        return self.call(HaltAll(), now_ns)
