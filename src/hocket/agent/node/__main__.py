"""`python -m hocket.agent.node`: the agent of this machine."""

from hocket.agent.node.agent import run

run()
