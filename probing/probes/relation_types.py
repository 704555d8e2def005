"""What kind of relation it is: LAMA's 1-1, N-1 and N-M. Pure."""

from __future__ import annotations

from collections.abc import Collection

RELATION_TYPES = ("1-1", "N-1", "N-M")
MANY = 1.5  # so many on average count as many (Bordes et al. 2013, section 4.2)


def relation_type(pairs: Collection[tuple[str, str]]) -> str:
    """Return the type that `pairs` of subject and object, at least one, speak for.

    N-M if a subject has 1.5 objects or more on average, else N-1 if an object has as many subjects, else 1-1.
    """
    distinct = set(pairs)
    if len(distinct) / len({subject for subject, _ in distinct}) >= MANY:
        return "N-M"
    return "N-1" if len(distinct) / len({obj for _, obj in distinct}) >= MANY else "1-1"
