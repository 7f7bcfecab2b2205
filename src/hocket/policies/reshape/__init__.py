"""Elastic GPUs, up and down: the scheduler of the Reshape paper."""

from hocket.policies.reshape.policy import Reshape, decide

__all__ = ["Reshape", "decide"]
