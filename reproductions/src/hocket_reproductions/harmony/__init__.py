"""The evaluation of Harmony (ICDCS'21), run again."""

from hocket_reproductions.harmony.evaluation import REPRODUCTION

__all__ = ["REPRODUCTION"]
