"""Labels of LM judges: parsed from an answer, and per tuple by majority over repeats."""

from __future__ import annotations

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
    """A run whose answers come from different prompts or LMs, which no estimate may take for one judge."""


def label_of(raw: str) -> str:
    """Return the label that the text of an answer names, UNPARSABLE if it names none or several.

    A line that is nothing but a label, perhaps after "Answer:", is the answer, the last one of several; else a label
    that begins the text and is set apart, as in "False: ..."; else the text must name one label only. What an LM
    thinks aloud between <think> tags is left out.
    """
    text = THOUGHTS.sub("", raw)
    lines = [match[1].lower() for line in text.splitlines() if (match := ANSWER_LINE.match(line.strip()))]
    alone = [label for word in lines if (label := _label_of_word(word))]
    if alone:
        return alone[-1]
    if begin := LABEL_FIRST.match(text):
        return _label_of_word(begin[1].lower())
    named = {_label_of_word(word.lower()) for word in LABEL_WORDS.findall(text)}
    return named.pop() if len(named) == 1 else UNPARSABLE


def _label_of_word(word: str) -> str:
    return Label.UNJUDGEABLE if word == "unjudgable" else (word if word in Label.values else UNPARSABLE)


def most_frequent(votes: Mapping[str, int]) -> str:
    """Return the label with most votes, UNPARSABLE for a tie or if nobody voted. Votes for UNPARSABLE do not count."""
    (first, n_first), (_, n_second) = [*Counter({**votes, UNPARSABLE: 0}).most_common(2), ("", 0)][:2]
    return first if n_first > n_second else UNPARSABLE


def judge_labels(run: JudgeRun) -> dict[int, str]:
    """Return the label of each tuple that the run has an answer for, by the tuple's id: that of most repeats.

    UNPARSABLE where repeats tie or none can be read. Tuples without an answer yet are left out.
    """
    if run.repeats == 1:  # of a million tuples, votes would take a gigabyte
        return dict(run.answers.order_by().values_list("knowledge_tuple", "label").iterator())
    votes: dict[int, dict[str, int]] = defaultdict(dict)
    rows = run.answers.order_by().values_list("knowledge_tuple", "label").annotate(n=Count("pk"))
    for tuple_id, label, n in rows.iterator():
        votes[tuple_id][label] = n
    return {tuple_id: most_frequent(counts) for tuple_id, counts in votes.items()}


def check_one_judge(run: JudgeRun) -> None:
    """Raise SeveralJudges if answers of the run came from different prompts or LMs.

    An answer that could not be read and came without the LM's name says nothing about which LM it was.
    """
    rows = run.answers.order_by().values_list("prompt_sha256", "model_reported").distinct()
    judges = set(rows.exclude(label=UNPARSABLE, model_reported=""))
    if len({prompt for prompt, _ in judges}) > 1:
        raise SeveralJudges(
            f"The judge run {run.name} was asked with different prompts; no estimate may rest on it. Start a new run."
        )
    if len(judges) > 1:
        models = " and by ".join(sorted(model or "an LM without a name" for _, model in judges))
        raise SeveralJudges(
            f"The judge run {run.name} was answered by {models}; no estimate may take "
            "them for one judge. Start a new run with one LM."
        )


def label_counts(run: JudgeRun) -> dict[str, int]:
    """Return how many tuples have each label by `judge_labels`, those without one under UNPARSABLE."""
    if run.repeats == 1:  # pages ask again and again while a run goes on
        counts = Counter(dict(run.answers.order_by().values_list("label").annotate(n=Count("pk"))))
    else:
        counts = Counter(judge_labels(run).values())
    return {label: counts[label] for label in (*Label.values, UNPARSABLE)}


def n_flipped(run: JudgeRun) -> int:
    """Return of how many tuples the run's repeats gave different labels; what could not be read is none."""
    if run.repeats == 1:
        return 0
    labels = run.answers.exclude(label=UNPARSABLE).order_by().values("knowledge_tuple")
    return labels.annotate(n_labels=Count("label", distinct=True)).filter(n_labels__gt=1).count()
