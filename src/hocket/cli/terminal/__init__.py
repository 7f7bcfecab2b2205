"""Tables, progress bars, errors and files: what all commands share."""
