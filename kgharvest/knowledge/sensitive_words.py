"""The installation's list of sensitive words, and the sensitivity flag of knowledge tuples.

The flag is set when a tuple is stored. When the list changes, a job updates the flag. Both operations lock the
relation's row, so no tuple is stored with a flag from an outdated list.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from django.db import transaction

from kgharvest.access import Action, check_may
from kgharvest.engine.types import Progress
from kgharvest.errors import DomainError
from kgharvest.jobs import ledger
from kgharvest.models import Job, KnowledgeTuple, Relation, SensitiveWord

DEFAULT_LIST = Path(__file__).resolve().parent / "sensitive_words.txt"
LONGEST_WORD = 100  # maximum number of characters
MOST_WORDS = 5000
ROWS_AT_ONCE = 5000


def read_words(text: str) -> list[str]:
    """Return the distinct case-folded entries, one per line. Blank lines and lines starting with # are ignored."""
    lines = (" ".join(line.casefold().split()) for line in text.splitlines())
    return sorted({line for line in lines if line and not line.startswith("#")})


def default_words() -> list[str]:
    return read_words(DEFAULT_LIST.read_text(encoding="utf-8"))


def current_words() -> list[str]:
    return list(SensitiveWord.objects.values_list("word", flat=True))


def matcher(words: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that returns True if an entity in a tuple's key contains one of `words` as a whole word."""
    alternatives = "|".join(re.escape(word) for word in words)
    if not alternatives:
        return lambda key: False
    search = re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)").search
    return lambda key: search(key) is not None


def replace_words(words: Sequence[str], by=None) -> Job | None:
    """Replace the list, and queue a job that updates all tuples. Return the job, or None if the list does not change.

    Raises BadWordList or NotAllowed. The job's payload contains the added and removed words.
    """
    check_may(by, Action.MANAGE, None)
    if len(words) > MOST_WORDS:
        raise DomainError("BadWordList", f"The list has {len(words):,} entries. The maximum is {MOST_WORDS:,}.")
    if too_long := next((word for word in words if len(word) > LONGEST_WORD), None):
        raise DomainError(
            "BadWordList", f"{too_long[:40]!r}... has more than {LONGEST_WORD} characters. Shorten the entry."
        )
    with transaction.atomic():
        old_words = set(current_words())
        if set(words) == old_words:
            return None
        SensitiveWord.objects.exclude(word__in=words).delete()
        SensitiveWord.objects.bulk_create((SensitiveWord(word=word) for word in words), ignore_conflicts=True)
        changes = {"added": sorted(set(words) - old_words), "removed": sorted(old_words - set(words))}
        job = Job.objects.create(kind="mark_sensitive", created_by=by, payload=changes)
        ledger.enqueue(job)
    return job


def mark_sensitive(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Run a job that updates the sensitivity flags of all tuples in batches, using the current list."""
    total = KnowledgeTuple.objects.count()
    done = 0
    heartbeat(Progress("marking", done, total))
    for relation_id in Relation.objects.order_by("pk").values_list("pk", flat=True):
        for n in _mark_relation(relation_id):
            done += n
            heartbeat(Progress("marking", done, max(done, total)))
    return lambda: None


def _mark_relation(relation_id: int) -> Iterator[int]:
    """Update a relation's tuples, ROWS_AT_ONCE per transaction, and yield the number of checked tuples."""
    last_key = ""
    while True:
        with transaction.atomic():
            Relation.objects.lock(relation_id)
            tuples = KnowledgeTuple.objects.filter(relation=relation_id, key__gt=last_key).order_by("key")
            rows = list(tuples.values_list("pk", "key", "is_sensitive")[:ROWS_AT_ONCE])
            is_sensitive = matcher(current_words())
            for flag in (True, False):
                changed = [pk for pk, key, old_flag in rows if old_flag != flag and is_sensitive(key) == flag]
                KnowledgeTuple.objects.filter(pk__in=changed).update(is_sensitive=flag)
        if not rows:
            return
        yield len(rows)
        last_key = rows[-1][1]
