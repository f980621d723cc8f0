"""The simulator: machines on SimPy, under failures."""
