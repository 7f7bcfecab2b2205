"""Small images of digits for the examples: scikit-learn's if it is installed, else ten noisy random patterns."""

import torch
from torch.utils.data import TensorDataset


def digits():
    """A data set for training, and (images, labels) for evaluation; 8×8 images, values from 0 to 1."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        pictures, labels = _patterns()
    else:
        found = load_digits()
        pictures, labels = torch.tensor(found.data, dtype=torch.float32) / 16, torch.tensor(found.target)
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))
    pictures, labels = pictures[order], labels[order]
    return TensorDataset(pictures[:1300], labels[:1300]), (pictures[1300:], labels[1300:])


def _patterns():
    dice = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (1800,), generator=dice)
    patterns = torch.rand(10, 64, generator=dice)
    return (patterns[labels] + 0.7 * torch.randn(1800, 64, generator=dice)).clamp(0, 1), labels
