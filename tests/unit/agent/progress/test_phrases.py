"""What people print, each as one of the libraries or tutorials does."""

from __future__ import annotations

from math import inf, isnan
from typing import Any

import pytest

from hocket.agent.progress.reader import Report

OUTPUTS: dict[str, tuple[str, list[Report]]] = {
    "one line": ("epoch 3 loss=0.4 acc=0.91\n", [(3, {"loss": 0.4, "acc": 0.91})]),
    "tutorial": ("Epoch [3/10], Loss: 0.43, Accuracy: 91.2%\n", [(3, {"loss": 0.43, "accuracy": 0.912})]),
    "columns": ("epoch: 3 | val_loss: 0.2 | lr: 1e-3\n", [(3, {"val_loss": 0.2, "lr": 0.001})]),
    "words": ("INFO:root:Epoch 3 - train loss 0.5, val acc 91 %\n", [(3, {"train_loss": 0.5, "val_acc": 0.91})]),
    "number sign": ("[Epoch #3] avg_loss:0.5\n", [(3, {"avg_loss": 0.5})]),
    "of": (
        "Epoch 3 of 10 finished, top-1 acc = 76.1%, top-5 acc = 93%\n",
        [(3, {"top-1_acc": 0.761, "top-5_acc": 0.93})],
    ),
    "f-string": ("epoch=03 loss -> 0.5; f1=.875\n", [(3, {"loss": 0.5, "f1": 0.875})]),
    "signed, scientific": ("Epoch 3: elbo=-1.5e+02 nll: +3.\n", [(3, {"elbo": -150.0, "nll": 3.0})]),
    "a sentence": ("Epoch 3 is done with accuracy 0.91.\n", [(3, {"accuracy": 0.91})]),
    "only begun": ("Epoch 1/3\nEpoch 2/3\nEpoch 3/3\n", [(1, {}), (2, {})]),
    "only ended": ("Finished epoch 1\nFinished epoch 2\n", [(1, {}), (2, {})]),
    "tensors": (
        "Epoch 1: loss: tensor(0.3456, device='cuda:0') acc: np.float64(0.5)\n",
        [(1, {"loss": 0.3456, "acc": 0.5})],
    ),
    "steps": (
        "Epoch [1/2], Step [100/600], Loss: 0.9\nEpoch [1/2], Step [600/600], Loss: 0.5\n"
        "Epoch [2/2], Step [1/600], Loss: 0.4\n",
        [(1, {"loss": 0.5})],
    ),
    "steps without an end": (
        "epoch 1 step 100 loss 0.5\nepoch 1 step 200 loss 0.4\nepoch 2 step 300 loss 0.3\n",
        [(1, {"loss": 0.4})],
    ),
    "a step and an evaluation": ("epoch 1 step 100 val_loss 0.5\n", [(1, {"val_loss": 0.5})]),
    "PyTorch MNIST": (
        "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300039\n"
        "Train Epoch: 1 [59520/60000 (99%)]\tLoss: 0.1\n\n"
        "Test set: Average loss: 0.0513, Accuracy: 9830/10000 (98%)\n\n",
        [(1, {"train_loss": 0.1, "test_average_loss": 0.0513, "test_accuracy": 0.983})],
    ),
    "PyTorch ImageNet": (
        "Epoch: [0][   1/5005]\tTime  0.516 ( 6.521)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.39 (  0.20)\n"
        " *   Acc@1 15.110 Acc@5 35.040\n",
        [(1, {"loss": 6.9, "acc@1": 15.11, "acc@5": 35.04})],
    ),
    "PyTorch transfer learning": (
        "Epoch 0/24\n----------\ntrain Loss: 0.6582 Acc: 0.6885\nval Loss: 0.2417 Acc: 0.9020\n\n"
        "Epoch 1/24\n----------\n",
        [
            (1, {"train_loss": 0.6582, "train_acc": 0.6885}),
            (1, {"train_loss": 0.6582, "train_acc": 0.6885, "val_loss": 0.2417, "val_acc": 0.902}),
        ],
    ),
    "PyTorch word model": (
        "| epoch   1 |   200/ 2928 batches | lr 20.00 | ms/batch 3.25 | loss  7.63 | ppl  2062.92\n"
        "-----------\n| end of epoch   1 | time: 10.03s | valid loss  5.46 | valid ppl   235.49\n-----------\n",
        [(1, {"loss": 7.63, "ppl": 2062.92, "valid_loss": 5.46, "valid_ppl": 235.49})],
    ),
    "Keras": (
        "Epoch 1/2\n"
        "\r  1/469 [..............................] - ETA: 2:01 - loss: 2.3 - accuracy: 0.1"
        "\b\b\b\b\b\r300/469 [==================>...........] - ETA: 0s - loss: 0.5 - accuracy: 0.8"
        "\r469/469 [==============================] - 2s 3ms/step - loss: 0.26 - accuracy: 0.92 - val_loss: 0.14\n"
        "Epoch 2/2\n",
        [(1, {"loss": 0.26, "accuracy": 0.92, "val_loss": 0.14})],
    ),
    "Keras 3 in colours": (
        "Epoch 1/2\n\r\x1b[1m  1/469\x1b[0m \x1b[37m━━━━━\x1b[0m \x1b[1m2:44\x1b[0m 352ms/step - accuracy: 0 - loss: 2"
        "\r\x1b[1m469/469\x1b[0m \x1b[32m━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m1s\x1b[0m 2ms/step"
        " - accuracy: 0.9 - loss: 0.3\n",
        [(1, {"accuracy": 0.9, "loss": 0.3})],
    ),
    "Keras in a file": ("Epoch 1/2\n469/469 - 2s - loss: 0.26 - acc: 0.92\n", [(1, {"loss": 0.26, "acc": 0.92})]),
    "Transformers": (
        "{'loss': 0.5, 'grad_norm': 1.2, 'learning_rate': 4e-05, 'epoch': 0.5}\n"
        "{'eval_loss': 0.4, 'eval_accuracy': 0.8, 'epoch': 1.0}\n{'loss': 0.3, 'epoch': 1.5}\n",
        [(1, {"loss": 0.5, "grad_norm": 1.2, "learning_rate": 4e-05, "eval_loss": 0.4, "eval_accuracy": 0.8})],
    ),
    "Transformers 5": (
        "{'loss': '0.5', 'epoch': '0.5'}\n{'eval_loss': '0.4', 'epoch': '1'}\n",
        [(1, {"loss": 0.5, "eval_loss": 0.4})],
    ),
    "Lightning": (
        "\rEpoch 0:   0%|          | 0/500 [00:00<?, ?it/s]"
        "\rEpoch 0:  50%|█████     | 250/500 [00:05<00:05, 46.1it/s, v_num=3, train_loss=0.5]"
        "\rEpoch 0: 100%|██████████| 500/500 [00:10<00:00, 46.1it/s, v_num=3, train_loss=0.3, val_acc=0.9]"
        "\rEpoch 1:   0%|          | 0/500 [00:00<?, ?it/s, v_num=3, train_loss=0.3, val_acc=0.9]\r",
        [(1, {"train_loss": 0.3, "val_acc": 0.9})],
    ),
    "a bar over epochs": (
        "\rEpochs:   0%|      | 0/3 [00:00<?, ?it/s]\rEpochs:  33%|██    | 1/3 [00:01<00:02,  1.0s/it, loss=0.5]"
        "\rEpochs: 100%|██████████| 3/3 [00:03<00:00,  1.0s/it, loss=0.2]\n",
        [(1, {"loss": 0.5}), (3, {"loss": 0.2})],
    ),
    "a bar in epochs": ("\r 33%|███▎      | 1/3 [00:01<00:02,  1.0s/epoch, loss=0.5]\n", [(1, {"loss": 0.5})]),
    "fastai": (
        "epoch     train_loss  valid_loss  accuracy  time    \n"
        "0         0.512345    0.412345    0.812345  00:12     \n"
        "1         0.4         0.3         0.9       00:12     \n",
        [
            (1, {"train_loss": 0.512345, "valid_loss": 0.412345, "accuracy": 0.812345}),
            (2, {"train_loss": 0.4, "valid_loss": 0.3, "accuracy": 0.9}),
        ],
    ),
    "a table with borders": (
        "| Epoch | Loss | Acc  |\n|-------|------|------|\n| 1 | 0.5 | 90% |\n",
        [(1, {"loss": 0.5, "acc": 0.9})],
    ),
    "printed CSV": ("epoch,loss,acc\n1,0.5,0.8\n", [(1, {"loss": 0.5, "acc": 0.8})]),
    "Ultralytics": (
        "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size\n"
        "\r        1/3      0.77G      1.222      1.682        201        640:  12%|█▎   | 1/8 [00:00<00:01,  6.6it/s]"
        "\r        1/3      0.77G      1.2        1.6        201        640: 100%|█████| 8/8 [00:01<00:00,  7.1it/s]\n",
        [(1, {"box_loss": 1.2, "cls_loss": 1.6, "instances": 201.0})],
    ),
    "a date": (
        "[07/21 12:30:45] Epoch 3 loss: 0.3\n07/22 08:00:00 val acc: 0.5\n",
        [(3, {"loss": 0.3}), (3, {"loss": 0.3, "val_acc": 0.5})],
    ),
    "the best so far": ("Epoch 12 acc=0.8 (best: 0.9 at epoch 7)\n", [(12, {"acc": 0.8, "best": 0.9})]),
    "both line ends": ("Epoch 1 loss: 0.5\r\nEpoch 2 loss: 0.4\r\n", [(1, {"loss": 0.5}), (2, {"loss": 0.4})]),
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_progress_is_found_as_people_print_it(output: str, opened: Any) -> None:
    text, reports = OUTPUTS[output]
    assert opened().feed(text.encode()) == reports


NO_PROGRESS = (
    "Namespace(epochs=10, lr=0.1, batch_size=32)",
    "Training for 10 epochs",
    "num_epochs: 10, max_epoch=5, warmup_epochs=2, loss=0.5",
    "best epoch: 7, best acc: 0.9",
    "Resuming from epoch 5",
    "loss: 0.5 accuracy: 0.9",  # of which epoch?
    "seconds per epoch: 12.5",
    "epoch time is longer than expected",
    "version 1.2.3, acc=1.2.3",
)


@pytest.mark.parametrize("line", NO_PROGRESS)
def test_what_only_looks_like_progress_is_none(line: str, opened: Any) -> None:
    reader = opened()
    assert reader.feed(f"{line}\n".encode()) == []
    assert reader.close(finished=True) == []


def test_after_an_epoch_only_what_is_called_like_a_metric_belongs_to_it(opened: Any) -> None:
    reader = opened()
    reader.feed(b"epoch 1 acc=0.5\n")
    assert reader.feed(b"seed=3 workers: 4 memory: 3.5 took 12 s\nuser: 17\n") == []
    assert reader.feed(b"mean IoU: 0.4\n") == [(1, {"acc": 0.5, "mean_iou": 0.4})]


def test_durations_and_units_are_no_metrics(opened: Any) -> None:
    assert opened().feed(b"epoch 1 took=12.5s speed=3it/s mem=3.5GB at=12:30 acc=0.5\n") == [(1, {"acc": 0.5})]


def test_values_that_are_not_finite_pass(opened: Any) -> None:
    ((epoch, metrics),) = opened().feed(b"epoch 1 loss=nan val_loss: -inf train loss inf\n")
    assert epoch == 1
    assert isnan(metrics["loss"])
    assert metrics["val_loss"] == -inf
    assert metrics["train_loss"] == inf


def test_another_word_may_count(opened: Any) -> None:
    """As in nanoGPT, which has no epochs."""
    reader = opened(epoch="step", epoch_length=250)
    text = (
        b"step 0: train loss 4.2, val loss 4.3\niter 10: loss 3.2, time 12ms\nstep 250: train loss 1.9, val loss 2.0\n"
    )
    assert dict(reader.feed(text)) == {
        0: {"train_loss": 4.2, "val_loss": 4.3, "loss": 3.2},
        1: {"train_loss": 1.9, "val_loss": 2.0},
    }


def test_the_first_epoch_is_known_after_the_attempt(opened: Any) -> None:
    reader = opened()
    assert reader.first_epoch is None
    reader.feed(b"epoch 0 acc=0.5\n")
    assert reader.first_epoch == 0
    assert opened(first_epoch=0).feed(b"epoch 5 acc=0.5\n") == [(6, {"acc": 0.5})]
