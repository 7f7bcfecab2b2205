"""Hypothesis draws the same examples in every CI run: a commit is red for what it changed. Elsewhere it roams."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
