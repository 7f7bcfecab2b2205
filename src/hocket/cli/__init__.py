"""One file a command. Heavy imports stand inside the command, so that `hocket --help` answers at once."""
