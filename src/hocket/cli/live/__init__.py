"""Commands that talk to a controller, or start one."""
