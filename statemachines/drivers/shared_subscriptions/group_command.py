"""`gapless group`: declare a group of consumers, list those of a store, or destroy one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from statemachines.drivers.shared_subscriptions.node_commands import Config, Start, Store, read_configuration
from statemachines.plain_text import plain_json
from statemachines.registry import make_unknown_error
from statemachines.wire import quote_for_log

if TYPE_CHECKING:
    from statemachines.shared_subscriptions.listing import ListedGroup

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Declare a group of consumers, list those of a store, or destroy one.",
)

Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="$shared/GROUP/FILTER")]

Order = Annotated[
    str | None,
    typer.Option(
        help="strict: a message that is given back keeps back those behind it in its stream;"
        " relaxed: its stream goes on. Without it: as the group was declared, or strict."
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]

Stream = Annotated[str, typer.Argument(metavar="STREAM", help="As `gapless group parked` and the log name it")]


def list_declared(store: str) -> dict[str, ListedGroup]:
    """Subscription -> its group, of a store."""
    import asyncio

    from statemachines.drivers.shared_subscriptions.groups import list_groups
    from statemachines.drivers.signals import run_without_waiting

    return {one.subscription: one for one in asyncio.run(run_without_waiting(list_groups(store=store)))}


@app.command()
def declare(
    subscription: Subscription, store: Store, start: Start = "now", order: Order = None, config: Config = None
) -> None:
    """Declare a group before anybody subscribes: what is stored from its start on is kept for its members.

    To subscribe declares a group as well, from now on; a group that is declared already is left as it is.
    """
    import asyncio

    from statemachines.drivers.shared_subscriptions.groups import declare as declare_group
    from statemachines.drivers.signals import log_plainly, run_without_waiting

    times = read_configuration(config)
    log_plainly()
    declaring = declare_group(subscription, store=store, start=start, order=order, configuration=times)  # type: ignore[arg-type]
    told = asyncio.run(run_without_waiting(declaring))
    begins = "the beginning" if told.start_ns == 0 else f"{told.start_ns} ns of store time"
    says = f"{subscription}: {'was declared already' if told.found else 'declared'}, from {begins} on"
    print(f"{says}, in relaxed order" if told.order == "relaxed" else says)


@app.command(name="list")
def show_groups(store: Store, json: Json = False) -> None:
    """List the groups of a store, whoever declared them, with their order and the host that leads them."""
    from statemachines.drivers.signals import log_plainly

    log_plainly()
    found = [*list_declared(store).values()]
    if json:
        print(plain_json(found))
        return
    for line in [one.describe() for one in found] or ["no group is declared"]:
        print(quote_for_log(line))


@app.command()
def destroy(subscription: Subscription, store: Store, config: Config = None) -> None:
    """Destroy a group: its members stop, its progress is removed; only a new subscribe, or declare, begins it again.

    Returns when nothing is delivered any more: when its leader has noticed (within claim_heartbeat), or lost its claim,
    and the last lease has ended.
    """
    import asyncio

    from statemachines.drivers.shared_subscriptions.groups import destroy as destroy_group
    from statemachines.drivers.signals import log_plainly, run_without_waiting

    times = read_configuration(config)
    log_plainly()
    told = asyncio.run(run_without_waiting(destroy_group(subscription, store=store, configuration=times)))
    if not told.found:
        raise make_unknown_error("subscription", subscription, list_declared(store))
    print(f"{subscription}: destroyed")


@app.command()
def parked(subscription: Subscription, store: Store, json: Json = False) -> None:
    """Show the streams of a group that are parked at a message, since it failed max_deliver times."""
    import asyncio

    from statemachines.drivers.shared_subscriptions.groups import list_parked
    from statemachines.drivers.signals import log_plainly, run_without_waiting

    log_plainly()
    found = asyncio.run(run_without_waiting(list_parked(subscription, store=store)))
    try:
        _ = found or list_declared(store)[subscription]
    except KeyError as error:
        raise make_unknown_error("subscription", subscription, list_declared(store)) from error
    if json:
        print(plain_json(found))
        return
    for one in found:
        waits = ", and is to be skipped" if one.is_skipped else ""
        print(f"{one.stream}: message {one.offset} was handed over {one.count} times{waits}")
    if not found:
        print(f"{subscription}: no stream is parked")


@app.command()
def skip(subscription: Subscription, stream: Stream, store: Store) -> None:
    """Let a group go on behind the message that a stream is parked at.

    The message stays in the store. The group's leader notices within renew_streams.
    """
    import asyncio

    from statemachines.drivers.shared_subscriptions.groups import skip as skip_message
    from statemachines.drivers.signals import log_plainly, run_without_waiting

    log_plainly()
    told = asyncio.run(run_without_waiting(skip_message(subscription, stream, store=store)))
    print(f"{subscription}: goes on behind message {told.offset} of {told.stream}")
