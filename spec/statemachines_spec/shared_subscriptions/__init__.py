"""Shared subscriptions as closed systems: the host glue around the shipped machines, properties, deadline orders."""
