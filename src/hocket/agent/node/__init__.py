"""The agent of one machine: it runs what the controller orders, and reports what happens."""
