"""Nodes from Ray: an agent on every node of a Ray cluster. Jobs run there by the executor in `executors/agents`."""
