"""Brokers as processes, and a plain client, for tests, measurements and the demo."""
