"""Real jobs: actions become orders for the agents of the nodes, and what those report becomes events."""
