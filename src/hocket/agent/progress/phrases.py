"""Progress as people print it, found without being told how.

An epoch is named as in `epoch 3`, `Epoch 3/10`, `Epoch [3/10]`, `epoch: 3 |`, `Epoch: [3][ 10/500]`, `'epoch': 1.5`, or
counted by a bar over epochs (`Epochs:  30%|███ | 3/10`). Its metrics are what stands as `name=value`, `name: value` or,
for losses, accuracies and the like, `name value`; in the same line, or in later ones that name no epoch, of which only
what is called like a metric is taken. Names come out in lower case with `_` for spaces, and a line that begins with
`train`, `val`, `test`, `eval` or `dev` gives that to its metrics: `val Loss: 0.2 Acc: 0.9` is `val_loss` and `val_acc`.
Percentages and `9830/10000` become fractions. Tables whose header begins with `epoch` are read, too.

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
    number,
    percentage,
)
from hocket.agent.progress.reader import Report
from hocket.agent.progress.stdout import Finder

# These look at lower case, and never try twice what they took once (`++`, `*+`): no line makes them slow.
_COUNTED = (
    rb"(?<![a-z0-9_.\-]%b)['\"]?[\s:=#\[(|\-]{0,6}+['\"]?(\d{1,12}+(?:\.\d{1,12}+)?+)(?!\d|\.\d|\s?%%)"
    rb"(?:\s?(?:/|of)\s{0,4}+\d{1,12}+)?+"
)  # behind the word for an epoch
_NOT_THE_PRESENT = re.compile(rb"best|(?:from|per|max|total|every|each|last|num)[\s_:\-]*+$")  # stands before `epoch`
_BAR = re.compile(rb"\d%\|[^|]*+\|\s*+(\d{1,12}+)/(\d{1,12}+)")
_ENDED = re.compile(rb"\b(?:done|finished|completed?|ended)\b|\bend of epoch")
_PHASE = re.compile(
    rb"\W{0,8}+(?:(train)(?:ing)?|(val)(?:id(?:ation)?)?|(test)(?:ing)?|(eval)(?:uat(?:ion|ing))?|(dev))(?![a-z0-9_])"
)
_PAIR = re.compile(
    rb"(?<![a-z0-9_@./\\\-])("
    rb"(?:(?:train(?:ing)?|valid(?:ation)?|val|test|eval(?:uation)?|dev|average|avg|mean|best|running|total|top-?\d)"
    rb"[ _\-])*+"
    rb"[a-z_][a-z0-9_@./\-]*+)['\")\]]{0,2}+"  # 1: its name
    rb"(\s{0,3}+(?:[:=]|[\-=]>)\s{0,4}+|\s{1,4}+)"  # 2: what stands between
    rb"['\"]?+(?:tensor\(|np\.float(?:16|32|64)\()?+"
    rb"([-+]?(?:\d{1,40}+(?:\.\d*+)?+|\.\d++)(?:e[-+]?\d{1,4}+)?+|[-+]?inf(?:inity)?+|nan)"  # 3: its value
    rb"(?![a-z0-9_]|\.\d|:\d)"  # no unit, version or time
    rb"(?:\s?(%)|\s?/\s?(\d{1,12}+)(?![.\d]))?"  # 4: of a hundred; 5: of so many
)
_COUNT = re.compile(rb"(?<![a-z0-9_./:\-])(\d{1,12}+)\s?/\s{0,4}+(\d{1,12}+)(?![a-z0-9_./\-]|\s+\d+:\d)")  # no date
_METRIC = re.compile(
    r"loss|(?:^|[_./@\-])(?:acc|auc|roc|f1|f_?score|bleu|rouge|perplexity|ppl|err|mse|mae|rmse|m?iou|map|precision|recall"
    r"|score|reward|return|wer|cer|psnr|ssim|dice|r2|kappa|mcc|ndcg|mrr|nll|elbo|fid|bpc|bpb|top-?\d|hits@|likelihood)"
)
_NO_METRICS = STEPS | {
    "epoch", "epochs", "time", "eta", "elapsed", "duration", "runtime", "seconds", "sec", "ms", "rank", "local_rank",
    "seed", "pid", "gpu", "gpus", "device", "cuda", "worker", "workers", "num_workers", "node", "port", "batch_size",
    "size", "version", "v_num", "samples", "speed",
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
_ROW_HINT = re.compile(rb"\n[\r \t|]{0,40}\d")


class Phrases(Finder):
    """Finds what people print by the words they use."""

    def __init__(self, epochs: EpochCounter, counter: str) -> None:
        super().__init__(epochs)
        self._counter = counter
        self._word = counter.encode()
        self._epoch = re.compile(self._word + _COUNTED % self._word)
        self._word_hint = re.compile(self._word)
        self._columns: list[str] | None = None  # of the table that is being printed
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
        hints = _HINTS
        if self._columns or self._word in text:
            text = b"\n" + text
            hints = (*_HINTS, self._word_hint, _ROW_HINT)
        reports: list[Report] = []
        end = -1
        for spot in sorted([found.end() - 1 for hint in hints for found in hint.finditer(text)]):
            if spot > end:
                start, end = text.rfind(b"\n", 0, spot) + 1, text.find(b"\n", spot)
                reports += self._line(text[start:end])
        return reports

    def _line(self, line: bytes) -> list[Report]:
        transient = line.startswith(TRANSIENT)
        if self._word in line:
            named = self._epoch.search(line)
            if named and not _NOT_THE_PRESENT.search(line, 0, named.start()):
                metrics, within = self._facts(line, named.end(), is_named=True)
                if within is None:
                    within = not metrics and not _ENDED.search(line)
                return self.epochs.said(float(named[1]), metrics, within or transient)
            if not named and (bar := _BAR.search(line)):
                return self.epochs.done(int(bar[1]), self._facts(line, 0, is_named=True)[0])
            if not named and (columns := table_header(line, self._word)) and any(map(_METRIC.search, columns)):
                self._columns = columns
                return []
        elif self._columns and (row := table_row(self._columns, line)):
            metrics = {name: value for name, value in row[1].items() if name not in _NO_METRICS}
            bar = _BAR.search(line)
            return self.epochs.said(row[0], metrics, transient or (bar is not None and int(bar[1]) < int(bar[2])))
        if self.epochs.current is None:
            return []
        metrics, within = self._facts(line, 0, is_named=False)
        return self.epochs.said(self.epochs.current, metrics, within or transient) if metrics else []

    def _facts(self, line: bytes, counts_from: int, is_named: bool) -> tuple[dict[str, float], bool | None]:
        """The metrics of a line, and whether it stands within an epoch; None if it does not tell.

        In a line that does not name an epoch, only what is called like a metric is one.
        """
        metrics: dict[str, float] = {}
        values_at = set()
        names_step = False
        begins = _PHASE.match(line)
        phase = f"{(begins[begins.lastindex or 0]).decode()}_" if begins else ""
        for pair in _PAIR.finditer(line):
            name = self._names.get(pair[1]) or self._learn(pair[1])
            if name.is_step:
                names_step = True
            elif name.is_metric or (is_named and name.may_be_metric and pair[5] is None and not pair[2].isspace()):
                values_at.add(pair.start(3))
                if len(metrics) < MOST_METRICS:
                    metrics[name.known_as if name.has_phase else (phase + name.known_as)[:MAX_NAME]] = _value(pair)
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
        self.may_be_metric = bool(self.known_as) and name not in _NO_METRICS and not is_counter
        self.is_metric = self.may_be_metric and _METRIC.search(name) is not None


def _value(pair: re.Match[bytes]) -> float:
    text, percent, whole = pair[3].decode(), pair[4], pair[5]
    if whole and text.isdigit() and int(whole):
        return int(text) / int(whole)
    return percentage(text) if percent else float(text)


_BETWEEN = re.compile(rb"[\s|,;]+")
_TITLE = re.compile(rb"[a-z_][a-z0-9_@./%()\-]*")
_EPOCH_CELL = re.compile(rb"(\d{1,12})(?:/\d{1,12})?")


def table_header(line: bytes, counter: bytes) -> list[str] | None:
    """The columns, if this line (in lower case) is the header of such a table."""
    titles = _cells(line)
    if len(titles) < 2 or titles[0] != counter or not all(_TITLE.fullmatch(title) for title in titles):
        return None
    return [title.decode() for title in titles]


def table_row(columns: list[str], line: bytes) -> tuple[int, dict[str, float]] | None:
    """The epoch and the numbers of a row; None if it is none. What stands behind the last column is left alone."""
    cells = _cells(line)
    epoch = _EPOCH_CELL.fullmatch(cells[0]) if len(cells) >= len(columns) else None
    if epoch is None:
        return None
    values = {
        title: number(cell.decode("ascii", "replace")) for title, cell in zip(columns[1:], cells[1:], strict=False)
    }
    numbers = {title: value for title, value in values.items() if value is not None}
    return (int(epoch[1]), numbers) if numbers else None


def _cells(line: bytes) -> list[bytes]:
    return [cell for cell in _BETWEEN.split(line) if cell]
