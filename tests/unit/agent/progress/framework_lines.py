"""Lines as frameworks print them, and what they say: formats as facts, with numbers of our own.

`PRINTED` is framework → (its output, what is read of it): for each epoch that is over, or each step, the metrics known of it
in the end. `NOTHING` has output of every day in which there is no progress.
"""
# ruff: noqa: E501 (lines stand as they are printed)

Counted = tuple[str, int]  # ("epoch", 3) or ("step", 250)

PRINTED: dict[str, tuple[str, dict[Counted, dict[str, float]]]] = {
    "nanoGPT": (
        "tokens per iteration will be: 491,520\nnumber of parameters: 123.59M\n"
        "step 0: train loss 10.9, val loss 10.95\niter 0: loss 10.97, time 12345.67ms, mfu -100.00%\n"
        "iter 10: loss 9.5, time 250.12ms, mfu 35.10%\nstep 250: train loss 2.1, val loss 2.2\n",
        {
            ("step", 0): {"train_loss": 10.9, "val_loss": 10.95, "loss": 10.97},
            ("step", 10): {"loss": 9.5},
            ("step", 250): {"train_loss": 2.1, "val_loss": 2.2},
        },
    ),
    "a plain loop": (
        "step 197 loss 0.0051\nstep 198 loss 0.0050\n",
        {("step", 197): {"loss": 0.0051}, ("step", 198): {"loss": 0.005}},
    ),
    "XGBoost": (
        "[0]\ttrain-rmse:0.51\teval-rmse:0.52\n[12]\ttrain-rmse:0.1\teval-rmse:0.2\n",
        {
            ("step", 0): {"train-rmse": 0.51, "eval-rmse": 0.52},
            ("step", 12): {"train-rmse": 0.1, "eval-rmse": 0.2},
        },
    ),
    "XGBoost's scikit-learn estimators": (
        "[99]\tvalidation_0-logloss:0.31\tvalidation_1-auc:0.9\n",
        {("step", 99): {"validation_0-logloss": 0.31, "validation_1-auc": 0.9}},
    ),
    "XGBoost with cross-validation": (
        "[5]\ttrain-mlogloss:0.31+0.002\ttest-mlogloss:0.41+0.003\n",
        {("step", 5): {"train-mlogloss": 0.31, "test-mlogloss": 0.41}},
    ),
    "LightGBM": (
        "[LightGBM] [Info] Total Bins 6143\n[LightGBM] [Info] Start training from score 0.119997\n"
        "[100]\ttraining's binary_logloss: 0.3\tvalid_0's auc: 0.9\tvalid_0's l2: 0.2\n",
        {("step", 100): {"training_binary_logloss": 0.3, "valid_0_auc": 0.9, "valid_0_l2": 0.2}},
    ),
    "LightGBM's command": (
        "[LightGBM] [Info] Iteration:64, valid_1 auc : 0.818\n[LightGBM] [Info] 286.95 seconds elapsed, finished iteration 64\n"
        "[LightGBM] [Info] Iteration:65, valid_1 auc : 0.82\n",
        {("step", 64): {"auc": 0.818}, ("step", 65): {"auc": 0.82}},
    ),
    "CatBoost": (
        "Learning rate set to 0.03\n"
        "0:\tlearn: 0.6931\ttest: 0.6940\tbest: 0.6940 (0)\ttotal: 50.1ms\tremaining: 50.1s\n"
        "100:\tlearn: 0.31\ttest: 0.4\tbest: 0.39 (97)\ttotal: 5.1s\tremaining: 45.2s\n",
        {
            ("step", 0): {"learn": 0.6931, "test": 0.694, "best": 0.694},
            ("step", 100): {"learn": 0.31, "test": 0.4, "best": 0.39},
        },
    ),
    "timm": (
        "Train: 0 [   0/1251 (  0%)]  Loss: 6.95 (6.95)  Time: 3.2s, 80.1/s  (3.2s, 80.1/s)  LR: 1.000e-06  Data: 2.1 (2.1)\n"
        "Train: 0 [1250/1251 (100%)]  Loss: 5.1 (5.2)  Time: 0.2s, 1280.5/s  (0.2s, 1200.1/s)  LR: 1.000e-06  Data: 0.1 (0.1)\n"
        "Test: [   0/48]  Time: 1.2 (1.2)  Loss:  1.10 ( 1.10)  Acc@1: 75.00 ( 75.00)  Acc@5: 92.00 ( 92.00)\n"
        "Test: [  48/48]  Time: 0.1 (0.2)  Loss:  1.20 ( 1.30)  Acc@1: 70.10 ( 71.20)  Acc@5: 90.00 ( 90.50)\n"
        "Train: 1 [   0/1251 (  0%)]  Loss: 5.0 (5.0)  Time: 3.2s, 80.1/s  (3.2s, 80.1/s)  LR: 1.000e-06  Data: 2.1 (2.1)\n",
        {
            ("epoch", 1): {
                "train_loss": 5.1, "train_lr": 1e-06, "train_data": 0.1,
                "test_loss": 1.3, "test_acc@1": 71.2, "test_acc@5": 90.5,
            },
        },
    ),
    "Ultralytics": (
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
        "\r      3/100      1.2G      1.222      1.682      1.3        201        640:  12%|█▎   | 1/8 [00:00<00:01]"
        "\r      3/100      1.2G      1.2        1.6        1.3        201        640: 100%|█████| 8/8 [00:01<00:00]\n"
        "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|██| 4/4 [00:01<00:00]\n"
        "                   all        128        929       0.64      0.537      0.605      0.446\n",
        {
            ("epoch", 3): {
                "box_loss": 1.2, "cls_loss": 1.6, "dfl_loss": 1.3, "instances": 201.0,
                "precision": 0.64, "recall": 0.537, "map50": 0.605, "map50-95": 0.446,
            },
        },
    ),
    "fastai": (
        "epoch     train_loss  valid_loss  accuracy  time    \n0         0.51        0.41        0.81      00:12     \n",
        {("epoch", 1): {"train_loss": 0.51, "valid_loss": 0.41, "accuracy": 0.81}},
    ),
    "PyTorch Lightning": (
        "\rEpoch 0:  50%|█████     | 250/500 [00:05<00:05, 46.1it/s, v_num=3, train_loss=0.5]"
        "\rEpoch 0: 100%|██████████| 500/500 [00:10<00:00, 46.1it/s, v_num=3, train_loss=0.3, val_acc=0.9]\n",
        {("epoch", 1): {"train_loss": 0.3, "val_acc": 0.9}},
    ),
    "Keras": (
        "Epoch 1/2\n\r  1/469 [....] - ETA: 2:01 - loss: 2.3 - accuracy: 0.1"
        "\r469/469 [====] - 2s 3ms/step - loss: 0.26 - accuracy: 0.92 - val_loss: 0.14 - val_accuracy: 0.95\nEpoch 2/2\n",
        {("epoch", 1): {"loss": 0.26, "accuracy": 0.92, "val_loss": 0.14, "val_accuracy": 0.95}},
    ),
    "Hugging Face Trainer, TRL, Axolotl": (
        "{'loss': 1.5, 'grad_norm': 1.2, 'learning_rate': 4e-05, 'mean_token_accuracy': 0.7, 'epoch': 0.5}\n"
        "{'eval_loss': 1.4, 'eval_runtime': 3.2, 'eval_samples_per_second': 30.1, 'epoch': 1.0}\n",
        {
            ("epoch", 1): {
                "loss": 1.5, "grad_norm": 1.2, "learning_rate": 4e-05, "mean_token_accuracy": 0.7, "eval_loss": 1.4,
                "eval_runtime": 3.2, "eval_samples_per_second": 30.1,
            },
        },
    ),
    "Detectron2": (
        "[07/21 12:30:45 d2.utils.events]:  eta: 0:10:00  iter: 19  total_loss: 1.9  loss_cls: 1.2  loss_box_reg: 0.3  "
        "time: 0.31  last_time: 0.30  data_time: 0.01  lr: 1.6e-05  max_mem: 2043M\n"
        "[07/21 12:35:45 d2.evaluation.testing]: copypaste: Task: bbox\n"
        "[07/21 12:35:45 d2.evaluation.testing]: copypaste: AP,AP50,AP75,APs,APm,APl\n"
        "[07/21 12:35:45 d2.evaluation.testing]: copypaste: 37.9,58.1,41.2,20.3,41.4,50.5\n",
        {
            ("step", 19): {
                "total_loss": 1.9, "loss_cls": 1.2, "loss_box_reg": 0.3, "last_time": 0.3, "data_time": 0.01, "lr": 1.6e-05,
                "ap": 37.9, "ap50": 58.1, "ap75": 41.2, "aps": 20.3, "apm": 41.4, "apl": 50.5,
            },
        },
    ),
    "MMDetection": (
        "2020-05-21 04:01:33,217 - mmdet - INFO - Epoch [1][19/678]\tlr: 0.0002, eta: 1 day, 16:44:26, time: 1.413, "
        "memory: 9581, loss_rpn_cls: 0.69, s0.acc: 92.1, loss: 3.0\n"
        "2020-05-21 05:01:33,217 - mmdet - INFO - Epoch(val) [1][678/678]\tbbox_mAP: 0.3, bbox_mAP_50: 0.5\n",
        {
            ("epoch", 1): {
                "lr": 0.0002, "memory": 9581.0, "loss_rpn_cls": 0.69, "s0.acc": 92.1, "loss": 3.0,
                "bbox_map": 0.3, "bbox_map_50": 0.5,
            },
        },
    ),
    "MMEngine by epochs": (
        "04/16 17:57:34 - mmengine - INFO - Epoch(train)  [1][8600/8930]  lr: 1.0e-02  eta: 2 days, 1:48:17  time: 0.82  "
        "data_time: 0.01  memory: 5493  loss: 0.32\n"
        "04/16 18:57:34 - mmengine - INFO - Epoch(val) [1][625/625]    coco/bbox_mAP: 0.3  coco/bbox_mAP_50: 0.5  time: 0.1\n",
        {
            ("epoch", 1): {
                "lr": 0.01, "data_time": 0.01, "memory": 5493.0, "loss": 0.32,
                "coco/bbox_map": 0.3, "coco/bbox_map_50": 0.5,
            },
        },
    ),
    "MMEngine by iterations": (
        "04/16 17:57:34 - mmengine - INFO - Iter(train) [   50/80000]  lr: 1.0e-02  eta: 1:48:17  time: 0.82  memory: 5493  "
        "loss: 0.32  decode.loss_ce: 0.2\n",
        {("step", 50): {"lr": 0.01, "memory": 5493.0, "loss": 0.32, "decode.loss_ce": 0.2}},
    ),
    "fairseq": (
        "2021-01-01 12:00:00 | INFO | train_inner | epoch 001:    100 / 1891 loss=11.5, nll_loss=10.8, ppl=1886.05, wps=52922, "
        "num_updates=100, lr=8.9e-05, gnorm=1.5\n"
        "2021-01-01 13:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | valid_loss 8.1 | valid_ppl 118.06 | "
        "num_updates 1891\n",
        {
            ("epoch", 1): {
                "loss": 11.5, "nll_loss": 10.8, "ppl": 1886.05, "wps": 52922.0, "lr": 8.9e-05, "gnorm": 1.5,
                "num_updates": 100.0, "valid_loss": 8.1, "valid_ppl": 118.06,
            },
        },
    ),
    "fairseq, newer": (
        "2023-01-01 13:00:00 | INFO | train | epoch 002 | loss 8.2 | ppl 100.5 | wps 1000 | num_updates 3000 | lr 0.0005\n"
        "2023-01-01 13:00:00 | INFO | valid | epoch 002 | valid on 'valid' subset | loss 7.1 | ppl 64.2 | num_updates 3000\n",
        {("epoch", 2): {"train_loss": 8.2, "train_ppl": 100.5, "valid_loss": 7.1, "valid_ppl": 64.2}},
    ),
    "ESPnet": (
        "[gpu01] 2020-11-11 16:39:00,000 (trainer:184) INFO: 7/20epoch started. Estimated time to finish: 23 minutes\n"
        "[gpu01] 2020-11-11 16:40:00,000 (trainer:486) INFO: 7epoch:train:376-750batch: iter_time=0.001, loss=1.6, acc=0.5\n"
        "[gpu01] 2020-11-11 16:41:00,000 (trainer:243) INFO: 7epoch results: [train] iter_time=0.001, loss=1.61, acc=0.51, "
        "time=1 minute and 44.19 seconds, total_count=52549, [valid] loss=1.85, acc=0.49, time=3.12 seconds\n"
        "[gpu01] 2020-11-11 16:41:00,000 (trainer:306) INFO: The model files were removed: exp/lm/6epoch.pth\n",
        {
            ("epoch", 7): {
                "train_iter_time": 0.001, "train_loss": 1.61, "train_acc": 0.51, "train_total_count": 52549.0, "valid_loss": 1.85, "valid_acc": 0.49,
            },
        },
    ),
    "OpenNMT-py": (
        "[2020-01-01 12:00:00,000 INFO] Step 50/100000; acc:   4.5; ppl: 1000.1; xent: 8.5; lr: 0.00001; "
        "5000/5100 tok/s;     10 sec;\n[2020-01-01 12:30:00,000 INFO] Validation perplexity: 10.1\n"
        "[2020-01-01 12:30:00,000 INFO] Validation accuracy: 55.1\n",
        {
            ("step", 50): {
                "acc": 4.5, "ppl": 1000.1, "xent": 8.5, "lr": 0.00001, "validation_perplexity": 10.1,
                "validation_accuracy": 55.1,
            },
        },
    ),
    "AllenNLP": (
        "2020-01-01 12:00:00 - INFO - allennlp.training.trainer - Epoch 0/9\n"
        "\raccuracy: 0.50, loss: 1.2 ||:  50%|#####     | 100/200 [00:10<00:10,  9.9it/s]"
        "\raccuracy: 0.85, loss: 0.4 ||: 100%|##########| 200/200 [00:20<00:00,  9.9it/s]\n",
        {("epoch", 1): {"accuracy": 0.85, "loss": 0.4}},
    ),
    "Megatron-LM": (
        " [2024-01-01 12:00:00] iteration       10/     100 | consumed samples:          160 | elapsed time per iteration "
        "(ms): 123.4 | learning rate: 1.0E-05 | global batch size:    16 | lm loss: 1.05E+01 | loss scale: 1.0 | grad norm: "
        "1.2 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        " validation loss at iteration 100 | lm loss value: 2.3E+00 | lm loss PPL: 9.9E+00 | \n",
        {
            ("step", 10): {"rate": 1e-05, "lm_loss": 10.5, "scale": 1.0, "norm": 1.2},
            ("step", 100): {"validation_lm_loss": 2.3, "validation_lm_ppl": 9.9},
        },
    ),
    "DeepSpeed": (
        "[2024-01-01 12:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.99)]\n"
        "steps: 10 loss: 2.3 iter time (s): 0.512 samples/sec: 31.2\n",
        {("step", 10): {"loss": 2.3, "samples/sec": 31.2}},
    ),
    "torchvision's references": (
        "Epoch: [0]  [   0/1251]  eta: 0:10:00  lr: 0.1  img/s: 200.1  loss: 6.9 (7.0)  acc1: 0.5 (0.1)  time: 0.5  data: 0.1\n"
        "Test:  Acc@1 70.100 Acc@5 89.900\n",
        {
            ("epoch", 1): {
                "lr": 0.1, "img/s": 200.1, "loss": 6.9, "acc1": 0.5, "data": 0.1, "test_acc@1": 70.1, "test_acc@5": 89.9,
            },
        },
    ),
    "PyTorch's MNIST example": (
        "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300039\nTrain Epoch: 1 [59520/60000 (99%)]\tLoss: 0.1\n\n"
        "Test set: Average loss: 0.0513, Accuracy: 9830/10000 (98%)\n\n",
        {("epoch", 1): {"train_loss": 0.1, "test_average_loss": 0.0513, "test_accuracy": 0.983}},
    ),
    "PyTorch's ImageNet example": (
        "Epoch: [0][   1/5005]\tTime  0.516 ( 6.521)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.39 (  0.20)\n"
        "Test: [ 97/98]\tTime  0.1 ( 0.2)\tLoss 6.1e+00 (6.2e+00)\tAcc@1  14.00 ( 15.11)\n *   Acc@1 15.110 Acc@5 35.040\n",
        {("epoch", 1): {"loss": 6.9, "acc@1": 15.11, "test_loss": 6.1, "test_acc@1": 15.11, "acc@5": 35.04}},
    ),
    "PyTorch's language model example": (
        "| epoch   1 |   200/ 2928 batches | lr 20.00 | ms/batch 3.25 | loss  7.63 | ppl  2062.92\n"
        "| end of epoch   1 | time: 10.03s | valid loss  5.46 | valid ppl   235.49\n",
        {("epoch", 1): {"loss": 7.63, "ppl": 2062.92, "valid_loss": 5.46, "valid_ppl": 235.49}},
    ),
    "PyTorch's CIFAR tutorial": (
        "[1,  2000] loss: 2.173\n[1, 12000] loss: 1.3\n[2,  2000] loss: 1.2\nFinished Training\n",
        {("epoch", 1): {"loss": 1.3}},
    ),
    "Stable-Baselines3": (
        "---------------------------------\n| rollout/           |          |\n|    ep_len_mean     | 22.2     |\n"
        "|    ep_rew_mean     | 21.5     |\n| time/              |          |\n|    fps             | 1000     |\n"
        "|    iterations      | 1        |\n|    total_timesteps | 2048     |\n| train/             |          |\n"
        "|    approx_kl       | 0.0031   |\n|    loss            | 6.9      |\n---------------------------------\n",
        {("step", 2048): {"ep_len_mean": 22.2, "ep_rew_mean": 21.5, "approx_kl": 0.0031, "loss": 6.9}},
    ),
    "RLlib": (
        "+-----------------------+----------+------------------+--------+------------------+--------+----------+\n"
        "| Trial name            | status   | loc              |   iter |   total time (s) |     ts |   reward |\n"
        "|-----------------------+----------+------------------+--------+------------------+--------+----------|\n"
        "| PPO_Env_9f072_00000   | RUNNING  | 10.0.0.20:579218 |    118 |          336.243 | 120832 | -551.48  |\n",
        {("step", 118): {"reward": -551.48}},
    ),
    "RLlib, newer": (
        "Trial name                    status      iter    total time (s)     ts    reward    episode_len_mean\n"
        "APPO_CartPole-v1_29116_00000  RUNNING        3           30.3035  46550    190.75              190.75\n",
        {("step", 3): {"reward": 190.75, "episode_len_mean": 190.75}},
    ),
    "spaCy": (
        "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE \n"
        "---  ------  ------------  --------  ------  ------  ------  ------\n"
        "  0       0          0.00     47.10    0.00    0.00    0.00    0.00\n"
        "  0     200         15.66   1500.51   60.00   61.00   59.00    0.60\n",
        {
            ("step", 0): {
                "loss_tok2vec": 0.0, "loss_ner": 47.1, "ents_f": 0.0, "ents_p": 0.0, "ents_r": 0.0, "score": 0.0,
            },
            ("step", 200): {
                "loss_tok2vec": 15.66, "loss_ner": 1500.51, "ents_f": 60.0, "ents_p": 61.0, "ents_r": 59.0, "score": 0.6,
            },
        },
    ),
    "scikit-learn's SGD": (
        "-- Epoch 1\nNorm: 12.3, NNZs: 20, Bias: -1.2, T: 300, Avg. loss: 0.5\nTotal training time: 0.01 seconds.\n-- Epoch 2\n",
        {("epoch", 1): {"loss": 0.5}},
    ),
    "scikit-learn's MLP": (
        "Iteration 1, loss = 2.3\nValidation score: 0.51\nIteration 2, loss = 0.4\nValidation score: 0.91\n",
        {
            ("step", 1): {"loss": 2.3, "validation_score": 0.51},
            ("step", 2): {"loss": 0.4, "validation_score": 0.91},
        },
    ),
    "scikit-learn's gradient boosting": (
        "      Iter       Train Loss   Remaining Time \n         1           1.2913            0.05s\n"
        "        10           1.1            0.04s\n",
        {("step", 1): {"train_loss": 1.2913}, ("step", 10): {"train_loss": 1.1}},
    ),
    "JAX with CLU": (
        "I0101 12:00:00.000000 140 logging_writer.py:48] [100] accuracy=0.9, loss=0.3\n",
        {("step", 100): {"accuracy": 0.9, "loss": 0.3}},
    ),
    "Flax's MNIST example": (
        "I0101 12:00:00.000000 140 train.py:1] epoch:  1, train_loss: 0.2, train_accuracy: 93.1, test_loss: 0.1\n",
        {("epoch", 1): {"train_loss": 0.2, "train_accuracy": 93.1, "test_loss": 0.1}},
    ),
    "Llama recipes": (
        "\rTraining Epoch: 1/3, step 10/100 completed (loss: 1.2)\n"
        "Epoch 1: train_perplexity=3.2, train_epoch_loss=1.1, epoch time 100.5s\n",
        {("epoch", 1): {"train_loss": 1.2, "train_perplexity": 3.2, "train_epoch_loss": 1.1}},
    ),
    "a bar over steps": (
        "\r 10%|█         | 300/3000 [00:10<01:30, 30.0it/s, loss=0.9]\r 33%|███▎      | 1000/3000 [00:33<01:06, 30.0it/s, loss=0.5]\n",
        {("step", 1000): {"loss": 0.5}},
    ),
    "objects": (
        '{"step": 100, "loss": 0.5, "lr": 0.001}\n{"global_step": 200, "loss": 0.4}\n',
        {("step", 100): {"loss": 0.5, "lr": 0.001}, ("step", 200): {"loss": 0.4}},
    ),
}  # fmt: skip

NOTHING = (
    "2026-11-17 10:15:32,123 INFO worker 3 started",
    "[2026-11-17 10:15:32] [12] connected to 10.0.0.5:6379",
    "Python 3.11.7 (main, Dec  4 2023, 18:10:11) [GCC 12.2.0] on linux",
    "torch==2.1.0+cu121 torchvision==0.16.0",
    "Collecting torch>=2.0 (from -r requirements.txt (line 3))",
    "  Downloading torch-2.1.0-cp311-cp311-manylinux1_x86_64.whl (670.2 MB)",
    "\r     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 670.2/670.2 MB 1.2 MB/s eta 0:00:00",
    "\rDownloading model.safetensors:  45%|████▌     | 2.10G/4.66G [00:30<00:36, 70.1MB/s]",
    "\rMap (num_proc=8): 100%|██████████| 50000/50000 [00:12<00:00, 4012.3 examples/s]",
    "\rLoading checkpoint shards: 100%|██████████| 3/3 [00:05<00:00,  1.7s/it]",
    "Step 3/7 : RUN pip install -r requirements.txt",
    "Step 3/7: error: 2 packages failed",
    "[2] Error: 3 files were not found",
    "iteration order is undefined",
    "max_steps: 1000, loss_weight: 0.5, batch_size=32",
    "total steps = 1000, warmup_steps = 100, base loss 0.5",
    "Resuming from step 500 with loss 0.3",
    "best loss 0.3 at step 500",
    "Namespace(steps=1000, lr=0.1, loss='l2', batch_size=32)",
    "Traceback (most recent call last):",
    '  File "train.py", line 100, in step',
    "    loss = criterion(model(x), y)  # step 3",
    "ValueError: step 3 returned: 0",
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.65 GiB total capacity)",
    "WARNING: accuracy is not computed on rank 1",
    "UserWarning: lr_scheduler.step() was called before optimizer.step(), loss may be wrong",
    "loss: 0.5 accuracy: 0.9",
    "wandb: Run data is saved locally in ./wandb/run-20261117_101532-1a2b3c",
    "tensor([0.1, 0.2, 0.3])",
    "input shape: (32, 3, 224, 224), params: 25.6M, accuracy: not known",
    "|  0 | model     | ResNet           | 25.6 M |",
    "| loss | function | mse |",
    "Tue Nov 17 10:15:32 2026       | NVIDIA-SMI 535.104    Driver Version: 535.104    CUDA Version: 12.2     |",
    "http://localhost:6006/?step=3&loss=0.5",
    "saved to runs/step_500/loss_0.3.pt",
)
