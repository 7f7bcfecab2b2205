"""For tests, ours and yours: builders, Hypothesis strategies, a controller without an executor, and laws for policies.

Nothing in Hocket imports this package. `strategies` needs the `hypothesis` package; the rest does not.
"""
