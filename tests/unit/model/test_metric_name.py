import pytest

from hocket.model.metric_name import less_is_better, more_is_better


@pytest.mark.parametrize("metric", ["val_loss", "valLoss", "eval/WER", "top5err", "test error", "RMSE", "score_loss"])
def test_of_an_error_less_is_better(metric):
    assert (less_is_better(metric), more_is_better(metric)) == (True, False)


@pytest.mark.parametrize("metric", ["acc", "val_acc", "top1_accuracy", "F1", "evalReward", "mAP", "ROC-AUC"])
def test_of_an_accuracy_a_score_or_a_reward_more_is_better(metric):
    assert (less_is_better(metric), more_is_better(metric)) == (False, True)


@pytest.mark.parametrize("metric", ["power", "lower_bound", "officers", "value", "x", ""])
def test_other_names_tell_nothing(metric):
    assert (less_is_better(metric), more_is_better(metric)) == (False, False)
