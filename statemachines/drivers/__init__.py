"""Drivers: the machines on a real loop, over real transports, with real stores."""
