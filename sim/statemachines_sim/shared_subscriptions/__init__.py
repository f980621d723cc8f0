"""Shared subscriptions in the simulator."""
