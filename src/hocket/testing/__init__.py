"""For tests, ours and yours: builders, Hypothesis strategies, a harness, and the laws for policies and executors.

Nothing in Hocket imports this package. `strategies` needs the `hypothesis` package; the rest does not.
"""
