"""The controller as a service: one process, one journal, an HTTP API."""
