"""Shared subscriptions as closed systems: the host glue around the shipped machines, properties, deadline orders."""

from types import SimpleNamespace

from statemachines_spec.shared_subscriptions.script import SCRIPT
from statemachines_spec.shared_subscriptions.variants import VARIANTS

SPEC = SimpleNamespace(script=SCRIPT, variants=VARIANTS)
