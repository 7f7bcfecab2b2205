"""Estimates (beliefs) from observations: pure functions, called by the fold, never by a policy."""
