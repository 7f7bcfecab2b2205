"""Training with a sharded model on parameter servers."""
