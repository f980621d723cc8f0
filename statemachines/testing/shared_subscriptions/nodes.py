"""Nodes: the processes of a consumer group: leader hosts, consumers, publishers, over one store.

with GroupHarness(folder) as nodes:
    leader = nodes.leader()
    nodes.consumer("consumer-1", "$shared/g/#", leader.address)
    nodes.kill("consumer-1")
"""

from __future__ import annotations

from pathlib import Path

from statemachines.testing.process_harness import NodeProcess, ProcessHarness


class GroupHarness(ProcessHarness):
    """The processes of one group, and their store.

    `store`: path or URL of another store than a file in `folder`; `config`: TOML with the times of the group; `common`:
    arguments that every leader host and consumer gets.
    """

    def __init__(
        self,
        folder: Path,
        *,
        store: str = "",
        config: Path | None = None,
        trace: Path | None = None,
        common: tuple[str, ...] = (),
    ) -> None:
        self.store = store or str(folder / "messages.db")
        super().__init__(folder, trace=trace, common=("--store", self.store))
        self._of_group = (*common, *(() if config is None else ("--config", str(config))))

    def leader(self, name: str = "leader-1", *more: str, listen: str = "127.0.0.1:0") -> NodeProcess:
        """A leader host that listens already, at its `address`."""
        return self.start("leader", name, "--listen", listen, *self._of_group, *more, says="listening on ")

    def consumer(self, name: str, subscription: str, leader: str, *more: str) -> NodeProcess:
        """A consumer that looks for `leader` (HOST:PORT); a group that it declares begins with all that is stored."""
        asked = (subscription, "--leader", leader, "--start", "beginning")
        return self.start("consumer", name, *asked, *self._of_group, *more)

    def publisher(self, name: str = "publisher-1", *more: str) -> NodeProcess:
        """A publisher; that it ends by itself, well, is expected."""
        return self.start("publisher", name, *more, ends=True)
