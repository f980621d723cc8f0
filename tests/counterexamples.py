"""Counterexamples of the explorer as scripts, for tests that follow them."""

import random
from functools import cache

from msgspec.structs import replace

from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.explore import along, explore
from statemachines_spec.explorer.moves import Moves
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.script.path_to_script import script_of
from statemachines_spec.shared_subscriptions.systems import system

PLANTED = {
    "late-grant-installs": ("late-copies", "S1", "S1"),
    "revoke-to-new-owner": ("late-copies", "leader:assignments-have-owners", "leader:assignments-have-owners"),
    "duplicate-connect-response": ("late-copies", "no-error", "no-error"),
}
"""Bug -> the small system that finds it, the property that breaks there, and what that is called outside."""


@cache
def stale_grant():
    """The source's stale grant: its rules let two consumers hold one stream."""
    return scripted(system("late-copies", "small", "as_written"), variant="as_written")


@cache
def of_bug(bug):
    """The shortest run to what a planted bug breaks."""
    with plant_bug(bug):
        return scripted(system(PLANTED[bug][0], "small"), bug=bug)


def scripted(one, *, variant="settled", bug=""):
    """The counterexample of a system that has one."""
    path = explore(replace(one, origin=None), engine="plain", hashing=False).path
    assert path is not None
    return script_of(one, path, protocol="shared_subscriptions", variant=variant, bug=bug)


def random_walk(one, seed, steps, entries=None):
    """Some run of a system, that ends where nothing more can happen or after so many steps; `entries` are those of the
    system in full, where it is walked more than once."""
    entries = entries or Entries(one.in_full())
    moves, chance = Moves(entries), random.Random(seed)
    states = [moves.first()]
    for _ in range(steps):
        options = [
            move.target
            for move in moves.of(states[-1])
            if move.target is not None and not move.broken and move.target not in states
        ]
        if not options:
            break
        states.append(chance.choice(options))
    return along(entries, states)
