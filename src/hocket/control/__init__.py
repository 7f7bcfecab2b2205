"""The cycle: fold, decide, check, diff, apply. Pure but for the journal and the executor it is given."""
