"""Results of a journal as numbers, tables and plots: the same for a simulation and for a live run."""
