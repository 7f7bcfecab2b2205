"""The evaluation of Reshape (SC'20), run again."""

from hocket_reproductions.reshape.evaluation import REPRODUCTION

__all__ = ["REPRODUCTION"]
