"""`python -m hocket.agent.node`: the agent of this machine."""

import gc

gc.disable()  # Nothing of what is imported is garbage.

from hocket.agent.node.agent import run  # noqa: E402

gc.freeze()
gc.enable()
run()
