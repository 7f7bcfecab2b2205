"""Hypothesis draws the same examples in every CI run: a commit is red for what it changed. Elsewhere it roams."""

import os
import signal

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background, as a job of a shell: what the tests start would never hear of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
