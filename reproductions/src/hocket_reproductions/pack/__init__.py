"""The evaluation of Pack (Chicago, 2022), run again."""

from hocket_reproductions.pack.evaluation import REPRODUCTION

__all__ = ["REPRODUCTION"]
