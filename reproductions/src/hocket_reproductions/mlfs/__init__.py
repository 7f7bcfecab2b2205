"""The evaluation of MLFS (CoNEXT'20), run again."""

from hocket_reproductions.mlfs.evaluation import REPRODUCTION

__all__ = ["REPRODUCTION"]
