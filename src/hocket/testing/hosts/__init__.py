"""Several hosts on one machine, for tests and benchmarks of several machines.

Each host is a network namespace with a link of limited bandwidth, a share of the cores and a memory budget, and runs a
real agent that joins a real controller: `launcher.Hosts`, or `python -m hocket.testing.hosts`.
"""
