"""The installation's list of sensitive words, and which knowledge tuples have one in an entity.

Whether a tuple is sensitive is a column, set when a job stores it and set anew by a job when the list changes. Whoever
sets it holds the relation's row, so that no tuple is stored by an old list behind the back of a new one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from django.db import transaction

from kgharvest.access import Action, check_may
from kgharvest.engine.types import Progress
from kgharvest.errors import DomainError
from kgharvest.jobs import ledger
from kgharvest.models import Job, KnowledgeTuple, Relation, SensitiveWord

SHIPPED = Path(__file__).resolve().parent / "sensitive_words.txt"
LONGEST_WORD = 100  # characters
MOST_WORDS = 5000
ROWS_AT_ONCE = 5000


def read_words(text: str) -> list[str]:
    """Return the case-folded entries of a list, one a line, each once; blank lines and those with # are no entries."""
    lines = (" ".join(line.casefold().split()) for line in text.splitlines())
    return sorted({line for line in lines if line and not line.startswith("#")})


def shipped_words() -> list[str]:
    return read_words(SHIPPED.read_text(encoding="utf-8"))


def matcher(words: Iterable[str]) -> Callable[[str], bool]:
    """Return the test whether a tuple's key has one of `words` as a whole word in an entity."""
    alternatives = "|".join(re.escape(word) for word in words)
    if not alternatives:
        return lambda key: False
    search = re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)").search
    return lambda key: search(key) is not None


def sensitivity_test() -> Callable[[str], bool]:
    """Return the test of this installation's list for the keys of tuples."""
    return matcher(SensitiveWord.objects.values_list("word", flat=True))


def replace_words(words: Sequence[str], by=None) -> Job | None:
    """Make `words` the list and queue the job that marks the tuples anew; None if it is the list already.

    Raises BadWordList, NotAllowed. The job says what became of the list and who changed it.
    """
    check_may(by, Action.MANAGE, None)
    if len(words) > MOST_WORDS:
        raise DomainError("BadWordList", f"The list has {len(words):,} entries; {MOST_WORDS:,} are the most.")
    if too_long := next((word for word in words if len(word) > LONGEST_WORD), None):
        raise DomainError(
            "BadWordList",
            f"{too_long[:40]!r}... has more than {LONGEST_WORD} characters; list words and short phrases.",
        )
    with transaction.atomic():
        before = set(SensitiveWord.objects.values_list("word", flat=True))
        if set(words) == before:
            return None
        SensitiveWord.objects.exclude(word__in=words).delete()
        SensitiveWord.objects.bulk_create((SensitiveWord(word=word) for word in words), ignore_conflicts=True)
        changed = {"added": sorted(set(words) - before), "removed": sorted(before - set(words))}
        job = Job.objects.create(kind="mark_sensitive", created_by=by, payload=changed)
        ledger.enqueue(job)
    return job


# -- marking, in a worker ----------------------------------------------------------------------------------------------


def mark_sensitive(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Set the column of all tuples by the list as it is now, a bounded number at a time. Runner of its kind of job."""
    total = KnowledgeTuple.objects.count()
    done = 0
    heartbeat(Progress("marking", done, total))
    for relation_id in Relation.objects.order_by("pk").values_list("pk", flat=True):
        for n in _mark_relation(relation_id):
            done += n
            heartbeat(Progress("marking", done, max(done, total)))
    return lambda: None


def _mark_relation(relation_id: int) -> Iterator[int]:
    """Mark a relation's tuples, ROWS_AT_ONCE in one transaction; yield how many were looked at each time."""
    last_key = ""
    while True:
        with transaction.atomic():
            Relation.objects.lock(relation_id)
            tuples = KnowledgeTuple.objects.filter(relation=relation_id, key__gt=last_key).order_by("key")
            rows = list(tuples.values_list("pk", "key", "is_sensitive")[:ROWS_AT_ONCE])
            is_sensitive = sensitivity_test()
            for mark in (True, False):
                changed = [pk for pk, key, is_marked in rows if is_marked != mark and is_sensitive(key) == mark]
                KnowledgeTuple.objects.filter(pk__in=changed).update(is_sensitive=mark)
        if not rows:
            return
        yield len(rows)
        last_key = rows[-1][1]
