"""How Hypothesis draws. It never judges how long something took: a machine may be slow."""

import signal

from hypothesis import HealthCheck, settings
from tests.roaming import ROAMS

settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not ROAMS)
settings.load_profile("ours")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background, as a job of a shell: what the tests start would never hear of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
