from collections.abc import Callable
from queue import Empty, Queue
from time import monotonic_ns

from statemachines.kernel import Event, Message, Node, Send, Stop, Tell
from statemachines.shared_subscriptions.borrower import BORROWER, BorrowerRecord, Start


def drive(
    record: BorrowerRecord, inbox: Queue[Event], send: Callable[[str, Message], None], tell: Callable[[Event], None]
) -> None:
    """Run a borrower to its end; `inbox` gets what its leader, its session and its application say."""
    node = Node(BORROWER, record, name=record.id, now_ns=monotonic_ns())
    inbox.put(Start())
    heard = 0
    while True:
        deadline = node.deadline()
        timeout = None if deadline is None else max(0, deadline - monotonic_ns()) / 1e9
        try:
            effects = node.feed(inbox.get(timeout=timeout), monotonic_ns())
            heard += 1
        except Empty:
            effects = []
        if inbox.empty() or heard == 100:  # timers come after what waits, but not for ever
            effects += node.fire(monotonic_ns())
            heard = 0
        for effect in effects:
            match effect:
                case Send(to, message):
                    send(to, message)
                case Tell(event):
                    tell(event)
                case Stop():
                    return
