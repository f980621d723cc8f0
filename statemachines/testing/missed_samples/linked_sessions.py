"""LinkedSessions: two sessions of zenoh with a lossy link between, for programs without a loop.

with linked_sessions(delay_s=0.01) as linked:
    subscriber = linked.thread.enter(declare_reliable_subscriber(linked.far, "k/*"))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import zenoh

from statemachines.drivers.missed_samples import LoopThread, session_config
from statemachines.kernel import GaplessError
from statemachines.testing.missed_samples.lossy_link import LossyDatagrams, LossyLink
from statemachines.testing.process_harness import free_port

WAIT_S = 30.0
"""What is certain to come comes late on a busy machine, but no later."""


class LinkedSessions(NamedTuple):
    """Who publishes is at `near`, who subscribes at `far`; `thread` has the loop of what is ours, `of_link` that
    of the link: `linked.of_link.call(linked.link.cut)`."""

    near: zenoh.Session
    far: zenoh.Session
    link: LossyLink | LossyDatagrams
    thread: LoopThread
    of_link: LoopThread


@contextmanager
def link_sessions(delay_s: float = 0.0, transport: str = "tcp") -> Iterator[LinkedSessions]:
    """Peers, connected through a link of `delay_s` seconds in each direction, or ("udp") through one that loses
    datagrams; the link has a thread of its own.  Raises `GaplessError` if they do not find each other."""
    port = free_port()
    with LoopThread() as of_link, zenoh.open(session_config(listen=[f"{transport}/127.0.0.1:{port}"])) as near:
        where = ("127.0.0.1", port)
        link: LossyLink | LossyDatagrams = LossyLink(where, delay_s=delay_s)
        if transport == "udp":
            link = LossyDatagrams(where)
        of_link.enter(link)
        with zenoh.open(session_config(connect=[link.endpoint])) as far, LoopThread() as thread:
            await_that(lambda: bool(far.info.transports()), "the link")
            yield LinkedSessions(near, far, link, thread, of_link)


def await_that(holds: Callable[[], bool], what: str, wait_s: float = WAIT_S) -> None:
    """Wait until it holds; raises `GaplessError` that names `what` if it does not within `wait_s` seconds."""
    end = time.monotonic() + wait_s
    while not holds():
        if time.monotonic() > end:
            raise GaplessError(f"never came: {what}")
        time.sleep(0.002)


def put_until_heard(put: Callable[[int], object], heard: Callable[[int], bool], apart_s: float = 0.3) -> int:
    """Put number after number until two in a row are heard by everybody: the first may be put before the way is known.
    The next number; raises `GaplessError` if it takes too long."""
    number, due = 0, 0.0

    def steady() -> bool:
        nonlocal number, due
        if number > 1 and heard(number - 2) and heard(number - 1):
            return True
        if time.monotonic() >= due:
            put(number)
            number, due = number + 1, time.monotonic() + apart_s
        return False

    await_that(steady, "two of the first samples in a row")
    return number
