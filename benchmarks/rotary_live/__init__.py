"""A shortened Table 3.1 of Rotary on real queries, live and simulated."""
