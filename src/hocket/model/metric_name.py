"""Whether less or more of a metric is better, by the words of its name, where its user has not said so."""

from __future__ import annotations

import re

_FALLING = frozenset((
    "loss", "losses", "logloss", "err", "error", "errors", "wer", "cer", "perplexity", "rmse", "nrmse", "mae", "mse",
))  # fmt: skip
_RISING = frozenset((
    "acc", "accuracy", "ap", "auc", "auroc", "bleu", "dice", "f", "iou", "map", "miou", "ndcg", "precision", "psnr",
    "recall", "reward", "rouge", "score", "ssim",
))  # fmt: skip
# Of what is right, or found, or wrong, and so from 0 to 1; losses, rewards and decibels may be anything.
_SHARES = frozenset((
    "acc", "accuracy", "ap", "auc", "auroc", "dice", "f", "iou", "map", "miou", "ndcg", "precision", "recall",
))  # fmt: skip
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def less_is_better(metric: str) -> bool:
    """By a word of its name: "valLoss" and "top5_err" tell of errors, "answer_acc" does not, though "wer" is in it."""
    return any(word.lower() in _FALLING for word in _WORD.findall(metric))


def is_share(metric: str) -> bool:
    """Whether it is surely at most 100 %: "val_acc" and "F1" are, "reward", "acc_loss" and "x" are not."""
    return more_is_better(metric) and any(word.lower() in _SHARES for word in _WORD.findall(metric))


def more_is_better(metric: str) -> bool:
    """Whether it is surely no error: "val_acc", "F1" and "eval/reward" are, "score_loss" and "x" are not."""
    return not less_is_better(metric) and any(word.lower() in _RISING for word in _WORD.findall(metric))
