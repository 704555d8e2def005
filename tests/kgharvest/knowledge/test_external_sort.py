"""External sort of tuples."""

from kgharvest.knowledge.tuple_files import ExternalSort
from kgharvest.knowledge.tuple_store import TupleRow


def row(text: str, score: float) -> TupleRow:
    return TupleRow((text.casefold(), "x"), (text, "X"), score, None)


def test_the_best_duplicate_is_kept_and_ties_keep_file_order():
    with ExternalSort() as rows:
        n_rows = rows.add([row("a", -2.0), row("b", -1.0), row("A", -0.5), row("c", -1.0), row("a", -3.0)])

        assert (n_rows, rows.size_of()) == (5, 3)
        assert [(kept.surface[0], kept.score) for kept in rows.rows_of()] == [("A", -0.5), ("b", -1.0), ("c", -1.0)]
