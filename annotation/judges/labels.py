"""Labels of LM judges: parsing of answers, and the majority label of each tuple across repeats."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from django.db.models import Count

from annotation.judges.models import JudgeRun
from annotation.models import Label
from kgharvest.errors import DomainError

UNPARSABLE = ""
THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)
LABEL_WORDS = re.compile(r"\b(not\s+true|not\s+false|true|false|unjudg(?:e)?able)\b", re.IGNORECASE)
LABEL_FIRST = re.compile(r"\W*(true|false|unjudg(?:e)?able)\W*?[.,:;!)*\u2013\u2014-]", re.IGNORECASE)
ANSWER_LINE = re.compile(r"^\W*(?:(?:final\s+)?(?:answer|label|verdict|judg(?:e)?ment)\W+)?(\w+)\W*$", re.IGNORECASE)


class SeveralJudges(DomainError):
    """Raised if a run has answers from different prompts or LMs. Estimates must not treat such a run as one judge."""


def label_of(raw: str) -> str:
    """Return the label that an answer names, or UNPARSABLE if the answer names no label or several labels.

    In order of precedence: the last line that is only a label, optionally after "Answer:"; a label at the start of the
    text that is followed by punctuation, as in "False: ..."; the only label in the text. Text between <think> tags is
    ignored.
    """
    text = THOUGHTS.sub("", raw)
    lines = [match[1].lower() for line in text.splitlines() if (match := ANSWER_LINE.match(line.strip()))]
    line_labels = [label for word in lines if (label := _label_of_word(word))]
    if line_labels:
        return line_labels[-1]
    if first_word := LABEL_FIRST.match(text):
        return _label_of_word(first_word[1].lower())
    labels = {_label_of_word(word.lower()) for word in LABEL_WORDS.findall(text)}
    return labels.pop() if len(labels) == 1 else UNPARSABLE


def _label_of_word(word: str) -> str:
    return Label.UNJUDGEABLE if word == "unjudgable" else (word if word in Label.values else UNPARSABLE)


def most_frequent(votes: Mapping[str, int]) -> str:
    """Return the label with the most votes, or UNPARSABLE for a tie or no votes. Votes for UNPARSABLE do not count."""
    (first, n_first), (_, n_second) = [*Counter({**votes, UNPARSABLE: 0}).most_common(2), ("", 0)][:2]
    return first if n_first > n_second else UNPARSABLE


def judge_labels(run: JudgeRun) -> dict[int, str]:
    """Return the majority label across repeats by tuple id.

    The label is UNPARSABLE for a tie or if no repeat can be parsed. The result does not contain tuples without an
    answer.
    """
    if run.repeats == 1:  # avoid counting votes, which takes a gigabyte for a million tuples
        return dict(run.answers.order_by().values_list("knowledge_tuple", "label").iterator())
    votes: dict[int, dict[str, int]] = defaultdict(dict)
    rows = run.answers.order_by().values_list("knowledge_tuple", "label").annotate(n=Count("pk"))
    for tuple_id, label, n in rows.iterator():
        votes[tuple_id][label] = n
    return {tuple_id: most_frequent(counts) for tuple_id, counts in votes.items()}


def check_one_judge(run: JudgeRun) -> None:
    """Raise SeveralJudges if the answers came from different prompts or LMs.

    Unparsable answers without an LM name are ignored.
    """
    rows = run.answers.order_by().values_list("prompt_sha256", "model_reported").distinct()
    judges = set(rows.exclude(label=UNPARSABLE, model_reported=""))
    if len({prompt for prompt, _ in judges}) > 1:
        raise SeveralJudges(
            f"Judge run {run.name} has answers to different prompts and cannot be used for estimates. Start a new run."
        )
    if len(judges) > 1:
        models = " and by ".join(sorted(model or "an LM without a name" for _, model in judges))
        raise SeveralJudges(
            f"Judge run {run.name} was answered by {models} and cannot be used for estimates. Start a new run with one "
            "LM."
        )


def label_counts(run: JudgeRun) -> dict[str, int]:
    """Return the number of tuples by majority label (see `judge_labels`), including UNPARSABLE."""
    if run.repeats == 1:  # fast path: pages poll running judge runs
        counts = Counter(dict(run.answers.order_by().values_list("label").annotate(n=Count("pk"))))
    else:
        counts = Counter(judge_labels(run).values())
    return {label: counts[label] for label in (*Label.values, UNPARSABLE)}


def n_flipped(run: JudgeRun) -> int:
    """Return the number of tuples with different labels across repeats, ignoring unparsable answers."""
    if run.repeats == 1:
        return 0
    labels = run.answers.exclude(label=UNPARSABLE).order_by().values("knowledge_tuple")
    return labels.annotate(n_labels=Count("label", distinct=True)).filter(n_labels__gt=1).count()
