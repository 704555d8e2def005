"""What differs between two documents of a report, by the paths of their values, and how many numbers were compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isclose
from typing import Any, NamedTuple

# Libraries of linear algebra add in different orders on different machines.
RELATIVE, ABSOLUTE = 1e-9, 1e-12


class _Missing:
    """What a document lacks: equal to no value of JSON, a text that says "missing" among them."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


class Difference(NamedTuple):
    """path: in the document, such as cells[3].accuracy."""

    path: str
    packed: Any
    recomputed: Any

    def __str__(self) -> str:
        return f"{self.path}: packed {_shown(self.packed)}, recomputed {_shown(self.recomputed)}"


def _shown(value: Any) -> str:
    return f"{value!r:.80}"


class DocumentComparison:
    """differences; n_numbers: numbers compared and recomputed; n_repeated: numbers under `repeated` paths."""

    def __init__(self, packed: Any, recomputed: Any, repeated: Collection[str] = ()) -> None:
        self.differences: list[Difference] = []
        self.n_numbers = self.n_repeated = 0
        self._repeated = frozenset(repeated)
        self._compare("", packed, recomputed, is_repeated=False)

    def _compare(self, path: str, packed: Any, recomputed: Any, is_repeated: bool) -> None:
        is_repeated = is_repeated or path in self._repeated
        if isinstance(packed, Mapping) and isinstance(recomputed, Mapping):
            for key in dict.fromkeys((*packed, *recomputed)):
                values = packed.get(key, MISSING), recomputed.get(key, MISSING)
                self._compare(f"{path}.{key}" if path else str(key), *values, is_repeated)
        elif isinstance(packed, list) and isinstance(recomputed, list):
            if len(packed) != len(recomputed):
                self.differences.append(Difference(f"{path} (entries)", len(packed), len(recomputed)))
            for number, values in enumerate(zip(packed, recomputed, strict=False)):
                self._compare(f"{path}[{number}]", *values, is_repeated)
        else:
            self._compare_values(path, packed, recomputed, is_repeated)

    def _compare_values(self, path: str, packed: Any, recomputed: Any, is_repeated: bool) -> None:
        if not _are_equal(packed, recomputed):
            self.differences.append(Difference(path, packed, recomputed))
        if _is_number(packed) or _is_number(recomputed):
            self.n_repeated += is_repeated
            self.n_numbers += not is_repeated


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_equal(packed: Any, recomputed: Any) -> bool:
    if (isinstance(packed, float) and _is_number(recomputed)) or (isinstance(recomputed, float) and _is_number(packed)):
        return _are_close(packed, recomputed)
    return type(packed) is type(recomputed) and bool(packed == recomputed)


def _are_close(packed: float, recomputed: float) -> bool:
    try:
        return isclose(packed, recomputed, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    except OverflowError:  # an integer that is larger than any float
        return False
