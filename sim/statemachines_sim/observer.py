"""Observer: what hears of each step of a machine, of each message that is hit, and of each fault."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Event, Message, Node, Step


class Observer:
    """A base that lets it all pass."""

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """A step of any machine, before its effects; `before`: the status it had."""

    def hit(self, kind: str, node: str, sender: str, to: str, message: Message, now_ns: int) -> None:
        """The network loses (`kind` drop) what `sender` sent to `to` on its way to `node`, which may be dead; or it
        will arrive there twice (duplicate); or `sender` is about to send what is not so (forge)."""

    def fault(self, kind: str, node: str, now_ns: int) -> None:
        """A fault begins or ends, or something is done to a node (join, restart, resume)."""
