"""The evaluation of Rotary, run again."""

from hocket_reproductions.rotary.evaluation import REPRODUCTION

__all__ = ["REPRODUCTION"]
