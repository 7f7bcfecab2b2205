"""What a journal says, in numbers, tables and plots: the same for a simulation and for a live run."""
