"""For tests, ours and yours: builders, Hypothesis strategies, a harness without a world, and laws for policies.

Nothing in Hocket imports this package. `strategies` needs the `hypothesis` package; the rest does not.
"""
