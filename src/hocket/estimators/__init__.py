"""From observations to beliefs: pure functions, called by the fold, never by a policy."""
