"""SS-263 on a real database: a destroyer whose line stands still destroys what it found, not what is declared since."""

from __future__ import annotations

import asyncio

import pytest
from held_line import HeldLine

from statemachines.drivers.shared_subscriptions import declare, destroy

GROUP = "$shared/g/a/#"

WRITES, SWEEPS, COMMITS = b"UPDATE gapless.store", b"ORDER BY key LIMIT", b"COMMIT"
"""What a destroyer sends: the first statement of a transaction that writes, the look at a page, an end."""


def through(url, line):
    """The same database by the held line."""
    head, _, rest = url.rpartition(":")
    return f"{head}:{line.port}/{rest.partition('/')[2]}"


@pytest.mark.parametrize(
    ("held", "unanswered"),
    [
        pytest.param((WRITES,), False, id="before the mark"),
        pytest.param((WRITES, COMMITS), True, id="the mark is not answered"),
        pytest.param((SWEEPS,), False, id="before the look"),
        pytest.param((SWEEPS, WRITES), False, id="before the end"),
        pytest.param((SWEEPS, WRITES, COMMITS), True, id="the end is not answered"),
    ],
)
async def test_SS_263_a_destroyer_that_stood_still_spares_what_was_declared_since(postgres, held, unanswered):
    """Another completes the destruction while it stands still, and somebody declares the group anew."""
    url = postgres.url
    await declare(GROUP, store=url)
    port = int(url.rpartition(":")[2].partition("/")[0])
    with HeldLine(port, *held, unanswered=unanswered) as line:
        destroying = asyncio.create_task(destroy(GROUP, store=through(url, line)))
        await asyncio.to_thread(line.holds.wait)
        await destroy(GROUP, store=url)
        anew = await declare(GROUP, store=url)
        line.released.set()
        assert (await destroying).found
    assert (await declare(GROUP, store=url)).start_ns == anew.start_ns
