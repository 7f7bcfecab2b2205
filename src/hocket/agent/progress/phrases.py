"""Progress as people print it, found without being told how.

An epoch is named as in `epoch 3`, `Epoch 3/10`, `Epoch [3/10]`, `epoch: 3 |`, `Epoch: [3][ 10/500]`, `'epoch': 1.5`, or
counted by a bar over epochs (`Epochs:  30%|███ | 3/10`). Its metrics are what stands as `name=value`, `name: value` or,
for losses, accuracies and the like, `name value`; in the same line, or in later ones that name no epoch, of which only
what is called like a metric is taken. Names come out in lower case with `_` for spaces, and a line that begins with
`train`, `val`, `test`, `eval` or `dev` gives that to its metrics: `val Loss: 0.2 Acc: 0.9` is `val_loss` and `val_acc`.
Percentages and `9830/10000` become fractions. Tables are read, too (`tables.py`).

A job that names no epoch may name steps: as in `step 250: train loss 2.1`, `iter: 19  total_loss: 1.9`, `Iteration 3,
loss = 0.4`, `[12] train-rmse:0.5`, or by a bar with a metric behind it. Such a line must have a metric, so that
`Step 3/7` of an installation is none. Lines without a step belong to the last one.

A line stands within its epoch if it counts something that is not full (`[640/60000 (1%)]`, `45%|███`) or names a step
and nothing of an evaluation; otherwise it reports the epoch's end. An epoch named alone has just begun.
"""

from __future__ import annotations

import re

from hocket.agent.progress.epoch_counter import EpochCounter
from hocket.agent.progress.lines import TRANSIENT
from hocket.agent.progress.metrics import (
    MAX_NAME,
    MOST_METRICS,
    STEPS,
    has_phase,
    is_evaluation,
    metric_name,
    percentage,
)
from hocket.agent.progress.reader import Report
from hocket.agent.progress.stdout import Finder
from hocket.agent.progress.tables import StepFields, StepTable, step_table, table_header, table_row

# These look at lower case, and never try twice what they took once (`++`, `*+`, `(?>…)`): no line makes them slow.
# What may give back a part of what it took is `(?>(?:…)*)`: in `(?:…)*+` Python before 3.11.5 loses its place.
_COUNTED = (
    rb"(?<![a-z0-9_.\-]%b)(?>(?:\((?:train|val|test)\))?)['\"]?[\s:=#\[(|\-]{0,6}+['\"]?(\d{1,12}+(?:\.\d{1,12}+)?+)(?!\d|\.\d|\s?%%)"
    rb"(?>(?:\s?(?:/|of)\s{0,4}+\d{1,12}+)?)"
)  # behind the word for an epoch
_COUNTED_FIRST = rb"(?<![a-z0-9_./])(\d{1,9}+)(?:/\d{1,9}+)?+%b(?::|\s(?:results|started)\b)"  # ESPnet: `3epoch:train:`
_UNNAMED = re.compile(
    rb"(?:^|\s)train:\s{1,6}+(\d{1,9}+)(?>(?:/\d{1,9}+(?:\s\(\s{0,3}+\d{1,3}+%\))?)?)\s{1,4}+\[\s{0,9}+\d{1,12}+/\s{0,9}+\d"
    rb"|^[\s\r]{0,4}+\[(\d{1,9}+),\s{1,6}+\d{1,12}+\]\s{1,4}+[a-z]"
)  # an epoch without the word: timm's `Train: 3 [ 100/1251 (  8%)]`, PyTorch's tutorial `[1,  2000] loss: 2.1`
_STEP = re.compile(
    rb"(?<![a-z0-9_./?&\-])(?>(?:(?:global|training|train)[_ ])?)"
    rb"(?:iteration|iter|step|update|timestep|round|minibatch|batch_idx|batch|it)s?+"
    rb"(?>(?:\((?:train|val|test)\))?)['\"]?[\s:=#\[(|\-]{0,12}+['\"]?(\d{1,12}+)(?!\.\d|[a-z_%]|:\d|-\d|\s%)"
)
_BRACKETED = re.compile(rb"(?:^|\])[\s\r]{0,4}+\[(\d{1,12}+)\]\s")  # XGBoost, LightGBM, CLU
_CATBOOST = re.compile(rb"[\s\r]{0,4}+(\d{1,12}+):\t(?=learn:|test)")
_COCO = re.compile(rb"copypaste: ([\d.]+),([\d.]+),([\d.]+),([\d.]+),([\d.]+),([\d.]+)")  # Detectron2
_COCO_NAMES = ("ap", "ap50", "ap75", "aps", "apm", "apl")
_YOLO = re.compile(rb"\s*+all\s++\d++\s++\d++\s++([\d.]++)\s++([\d.]++)\s++([\d.]++)\s++([\d.]++)\s*+$")
_YOLO_NAMES = ("precision", "recall", "map50", "map50-95")
_WHOLE = re.compile(rb"[-+]?\d+")
_SURELY = re.compile(r"loss|(?:^|_)(?:acc|accuracy|auc|ppl|reward|rmse|mse|mae)$")  # a metric, also as a whole number
_SPELLINGS = (
    (b"'s ", b"_"),  # LightGBM: `valid_0's auc`
    (b"lm loss value:", b"validation lm loss:"),  # Megatron
    (b"lm loss ppl:", b"validation lm ppl:"),
)
_NOT_THE_PRESENT = re.compile(rb"best|(?:from|per|max|total|every|each|last|num)[\s_:\-]*+$")  # stands before `epoch`
_BAR = re.compile(rb"\d%\|[^|]*+\|\s*+(\d{1,12}+)/(\d{1,12}+)")
_ENDED = re.compile(rb"\b(?:done|finished|completed?|ended)\b|\bend of epoch")
_PHASE = re.compile(
    rb"\W{0,8}+(?:(train)(?:ing)?|(val)(?:id(?:ation)?)?|(test)(?:ing)?|(eval)(?:uat(?:ion|ing))?|(dev))(?![a-z0-9_])"
)
_PHASE_MARK = re.compile(rb"(?:\[|\| )(train|valid)(?:\]| \|| on ')")  # ESPnet and fairseq
_PAIR = re.compile(
    rb"(?<![a-z0-9_@./\\\-])("
    rb"(?>(?:(?:train(?:ing)?|valid(?:ation)?|val|test|eval(?:uation)?|dev|average|avg|mean|best|running|total|lm|top-?\d)"
    rb"[ _\-](?=[a-z_]))*)"
    rb"[a-z_][a-z0-9_@./\-]*+)['\")\]]{0,2}+"  # 1: its name
    rb"(\s{0,3}+(?:[:=]|[\-=]>)\s{0,4}+|\s{1,4}+)"  # 2: what stands between
    rb"['\"]?+(?>(?:tensor\(|np\.float(?:16|32|64)\()?)"
    rb"([-+]?(?:\d{1,40}+(?:\.\d*+)?+|\.\d++)(?>(?:e[-+]?\d{1,4}+)?)|[-+]?inf(?:inity)?+|nan)"  # 3: its value
    rb"(?![a-z0-9_]|\.\d|:\d|-\d)"  # no unit, version, time or range
    rb"(?:\s?(%)|\s?/\s?(\d{1,12}+)(?![.\d])|\s{1,2}\(\s{0,4}+(\d{1,12}+\.\d{1,12}+)\s?\))?"
)  # 4: of a hundred; 5: of so many; 6: its mean so far
_COUNT = re.compile(rb"(?<![a-z0-9_./:\-])(\d{1,12}+)\s?/\s{0,4}+(\d{1,12}+)(?![a-z0-9_./\-]|\s+\d+:\d)")  # no date
_METRIC = re.compile(
    r"loss|(?:^|[_./@\-])(?:acc|auc|roc|f1|m?ap(?=\d|$|[_@-])|rew(?=_)|loglik|xent|merr|f_?score|bleu|rouge|perplexity|ppl|err|mse|mae|rmse|m?iou|map|precision|recall"
    r"|score|reward|return|wer|cer|psnr|ssim|dice|r2|kappa|mcc|ndcg|mrr|nll|elbo|fid|bpc|bpb|top-?\d|hits@|likelihood)"
)
_NO_METRICS = STEPS | {
    "epoch", "epochs", "time", "eta", "elapsed", "duration", "runtime", "seconds", "sec", "ms", "rank", "local_rank",
    "seed", "pid", "gpu", "gpus", "device", "cuda", "worker", "workers", "num_workers", "node", "port", "batch_size",
    "size", "version", "v_num", "samples", "speed", "s", "fps", "total", "remaining", "time_elapsed",
}  # fmt: skip

# Lines in which none of these is found are never looked at. Each begins with one certain byte: a search for one of
# several would be too slow for whole logs.
_HINTS = tuple(
    re.compile(pattern)
    for pattern in (
        rb"=[ \t]{0,4}['\"]?[-+.\dint]",
        rb": [ \t]{0,3}['\"]?[-+.\dint]",
        rb":(?<!\d:)[\t]{0,4}['\"]?[-+.\dint]",  # no time of day
        rb"loss[ \t]{1,4}[-+.\din]",
        rb"acc(?:uracy)?(?:@\d+)?[ \t]{1,4}[-+.\din]",
    )
)
_MOST_NAMES = 1000  # remembered
_MOST_TABLES = 8  # that begin in one piece of output; of more, rows may be overlooked
_ROW_HINT = re.compile(rb"\n[\r \t|]{0,40}\d")
_WORDY_ROW_HINT = re.compile(rb"\n[\r \t|]{0,40}[a-z]")
# Of steps, while no epoch was named.
_STEP_HINTS = (
    *_HINTS,
    *(re.compile(pattern) for pattern in (rb"step", rb"iter", rb"\n\|", rb"\n---", rb"e    #", rb"copypaste: \d")),
)


class Phrases(Finder):
    """Finds what people print by the words they use."""

    def __init__(self, epochs: EpochCounter, counter: str) -> None:
        super().__init__(epochs)
        self._counter = counter
        self._word = counter.encode()
        self._epoch = re.compile(self._word + _COUNTED % self._word)
        self._word_hint = re.compile(self._word)
        self._counted_first = re.compile(_COUNTED_FIRST % self._word)
        self._columns: list[str] | None = None  # of the table that is being printed
        self._table: StepTable | None = None  # of steps
        self._fields = StepFields()
        self._knows_steps = counter == "epoch"  # Else the user has said what counts.
        self._names: dict[bytes, _Name] = {}  # as they are printed

    def epoch_of(self, state: bytes) -> object:
        """The number as text, be it an epoch's name or how many are done."""
        state = state.lower()
        if self._word in state and (found := self._epoch.search(state) or _BAR.search(state)):
            return found[1]
        if self._columns and (row := table_row(self._columns, state)):
            return row[0]
        return None

    def read(self, text: bytes) -> list[Report]:
        """What whole lines report."""
        text = text.lower()
        reports, rest = self._read_on(text, to_table=True)
        tables = 1
        while rest:  # Rows of the table that begins here are looked at, too.
            found, rest = self._read_on(rest, to_table=tables < _MOST_TABLES)
            reports += found
            tables += 1
        return reports

    def _read_on(self, text: bytes, to_table: bool) -> tuple[list[Report], bytes]:
        """What lines report, and the text that is left: behind the header of another table, if only up `to_table`."""
        hints = _HINTS
        columns, table = self._columns, self._table
        if columns or self.epochs.current is None or self._word in text:
            text = b"\n" + text
            hints = self._more_hints(text)
        reports: list[Report] = []
        end = -1
        for spot in sorted([found.end() - 1 for hint in hints for found in hint.finditer(text)]):
            if spot > end:
                start, end = text.rfind(b"\n", 0, spot) + 1, text.find(b"\n", spot)
                reports += self._line(text[start:end])
                if to_table and (self._table is not table or self._columns is not columns):
                    return reports, text[end + 1 :]
        return reports, b""

    def _more_hints(self, text: bytes) -> tuple[re.Pattern[bytes], ...]:
        """Where to look in a text: what names an epoch or a step, and rows of tables that were begun."""
        hints = _HINTS
        if self._knows_steps and self.epochs.current is None:
            hints = _STEP_HINTS
            if self._table:
                hints = (*hints, _ROW_HINT if self._table.begins_with_numbers else _WORDY_ROW_HINT)
        if self._columns or self._word in text:
            hints = (*hints, self._word_hint, _ROW_HINT)
            if self._columns and "instances" in self._columns:
                hints = (*hints, _WORDY_ROW_HINT)
        return hints

    def _line(self, line: bytes) -> list[Report]:
        transient = line.startswith(TRANSIENT)
        if self._word in line:
            named = self._epoch.search(line)
            if named and not _NOT_THE_PRESENT.search(line, 0, named.start()):
                metrics, within = self._facts(line, named.end(), is_named=True)
                if within is None:
                    within = not metrics and not _ENDED.search(line)
                reports = self.epochs.said(float(named[1]), metrics, within or transient)
                step = _STEP.search(line) if self.epochs.counts_steps else None
                return reports + self.epochs.at_step(int(step[1]), {}) if step else reports
            if not named and (first := self._counted_first.search(line)):
                results = first[0].endswith(b"results")
                told = results or first[0].endswith(b":")
                metrics = self._facts(line[first.end() :], 0, is_named=True)[0] if told else {}
                return self.epochs.said(int(first[1]), metrics, within=not results)
            if not named and (bar := _BAR.search(line)):
                return self.epochs.done(int(bar[1]), self._facts(line, 0, is_named=True)[0])
            if not named and (columns := table_header(line, self._word)) and any(map(_METRIC.search, columns)):
                self._columns = self._columns if columns == self._columns else columns
                return []
        elif self._columns and (row := table_row(self._columns, line)):
            metrics = {name: value for name, value in row[1].items() if name not in _NO_METRICS}
            bar = _BAR.search(line)
            return self.epochs.said(row[0], metrics, transient or (bar is not None and int(bar[1]) < int(bar[2])))
        if self._knows_steps and (unnamed := _UNNAMED.search(line)):
            metrics, within = self._facts(line, unnamed.start(unnamed.lastindex or 0), is_named=True)
            metrics.pop("train", None)  # That is the epoch.
            if not metrics:
                return []
            return self.epochs.said(int(unnamed[1] or unnamed[2]), metrics, within or bool(unnamed[2]))
        if self.epochs.current is None:
            return self._step_line(line) if self._knows_steps else []
        if self._columns and (measured := _YOLO.match(line)):
            values = {name: float(text) for name, text in zip(_YOLO_NAMES, measured.groups(), strict=True)}
            return self.epochs.said(self.epochs.current, values)
        metrics, within = self._facts(line, 0, is_named=False)
        return self.epochs.said(self.epochs.current, metrics, within or transient) if metrics else []

    def _step_line(self, line: bytes) -> list[Report]:
        """What a line says of a job that has named no epoch so far."""
        if self._table and (row := self._table.row(line)):
            return self.epochs.at_step(*row)
        if line.startswith((b"|", b"---")) and (fields := self._fields.line(line)):
            step_done, values = fields
            values = {name: value for name, value in values.items() if name not in _NO_METRICS}
            return self.epochs.at_step(step_done, values) if values else []
        for printed, known_as in _SPELLINGS:
            if printed in line:
                line = line.replace(printed, known_as)
        step = _STEP.search(line) or _BRACKETED.search(line) or _BAR.search(line)
        if (trees := _CATBOOST.match(line)) or (step and not _NOT_THE_PRESENT.search(line, 0, step.start())):
            metrics, _within = self._facts(line, 0, is_named=True)
            if metrics and (trees or self._is_measured(line)):
                return self.epochs.at_step(int((trees or step)[1]), metrics)  # type: ignore[index]
        if (table := step_table(line, _METRIC.search)) is not None:
            if self._table is None or table.columns != self._table.columns:
                self._table = table
            return []
        if self.epochs.step is None:
            return []
        if measured := _COCO.search(line):
            metrics = {name: float(text) for name, text in zip(_COCO_NAMES, measured.groups(), strict=True)}
        else:
            metrics, _within = self._facts(line, 0, is_named=False)
        return self.epochs.at_step(self.epochs.step, metrics) if metrics else []

    def _is_measured(self, line: bytes) -> bool:
        """Whether one of its values is called like a metric, and looks like one: not as `error: 3`."""
        for pair in _PAIR.finditer(line):
            name = self._names.get(pair[1]) or self._learn(pair[1])
            is_sure = _SURELY.search(name.known_as) or pair[4] or not _WHOLE.fullmatch(pair[3])
            if is_sure and not name.is_step and (name.is_metric or (name.has_phase and name.may_be_metric)):
                return True
        return False

    def _facts(self, line: bytes, counts_from: int, is_named: bool) -> tuple[dict[str, float], bool | None]:
        """The metrics of a line, and whether it stands within an epoch; None if it does not tell.

        In a line that does not name an epoch, only what is called like a metric is one.
        """
        metrics: dict[str, float] = {}
        values_at = set()
        names_step = False
        begins = _PHASE.match(line)
        phase = f"{(begins[begins.lastindex or 0]).decode()}_" if begins else ""
        marks = list(_PHASE_MARK.finditer(line)) if is_named and (b"| " in line or b"] " in line) else []
        for pair in _PAIR.finditer(line):
            name = self._names.get(pair[1]) or self._learn(pair[1])
            if name.is_step:
                names_step = True
            elif name.is_metric or (is_named and name.may_be_metric and pair[5] is None and not pair[2].isspace()):
                values_at.add(pair.start(3))
                while marks and marks[0].start() < pair.start():
                    phase = f"{marks.pop(0)[1].decode()}_"
                if len(metrics) < MOST_METRICS:
                    value = float(pair[6]) if pair[6] and is_evaluation(phase) else _value(pair)
                    metrics[name.known_as if name.has_phase else (phase + name.known_as)[:MAX_NAME]] = value
        if b"/" in line:
            counts = [(int(c[1]), int(c[2])) for c in _COUNT.finditer(line, counts_from) if c.start() not in values_at]
            if counts:
                return metrics, any(so_far < whole for so_far, whole in counts)
        if names_step:
            return metrics, not any(map(is_evaluation, metrics))
        return metrics, None

    def _learn(self, printed: bytes) -> _Name:
        name = _Name(printed.decode(), self._counter)
        if len(self._names) < _MOST_NAMES:
            self._names[printed] = name
        return name


class _Name:
    """What a word before a number means."""

    __slots__ = ("has_phase", "is_metric", "is_step", "known_as", "may_be_metric")

    def __init__(self, printed: str, counter: str) -> None:
        name = printed.replace(" ", "_")
        is_counter = name.rpartition("_")[2].removesuffix("s") == counter  # `best_epoch` too
        self.known_as = metric_name(name)
        self.has_phase = has_phase(name)
        self.is_step = name in STEPS and not is_counter
        is_source = name.endswith((".py", ".cc", ".cpp"))  # `train.py:48` in a log
        self.may_be_metric = bool(self.known_as) and name not in _NO_METRICS and not is_counter and not is_source
        self.is_metric = self.may_be_metric and _METRIC.search(name) is not None


def _value(pair: re.Match[bytes]) -> float:
    text, percent, whole = pair[3].decode(), pair[4], pair[5]
    if whole and text.isdigit() and int(whole):
        return int(text) / int(whole)
    return percentage(text) if percent else float(text)
