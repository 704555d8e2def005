"""Query parameters of lists."""

import pytest
from django.http import QueryDict

from kgharvest.bulk.pagination import LARGEST_ID, ROWS_PER_PAGE, Filtered, keyset_page, number_in
from kgharvest.models import KnowledgeTuple
from tests.factories import make_harvest

pytestmark = pytest.mark.django_db

NO_NUMBERS = [None, "", "a", "-1", "+1", "1.0", "1_0", " 1", "1\n", "²", "٣", "a\x00b", "1\x00", "9" * 19, "9" * 5_000]
NO_CURSORS = ["a\x00b", "-1.0,1\x00", "-1.0", "-1.0,", ",1", "nan,1", "1e999,1", "-1.0,-1", f"-1.0,{'9' * 5_000}", ",,"]


def test_only_valid_row_ids_are_parsed():
    assert [number_in(text) for text in NO_NUMBERS] == [None] * len(NO_NUMBERS)
    assert [number_in(text) for text in ("0", "007", str(LARGEST_ID))] == [0, 7, LARGEST_ID]
    assert number_in(str(LARGEST_ID + 1)) is None


def test_an_invalid_cursor_shows_the_first_page():
    make_harvest([(f"head {number}", "tail") for number in range(3)])
    tuples = Filtered(KnowledgeTuple.objects.all())
    first = keyset_page(tuples, "-best_score", QueryDict(), 2)

    for name in ("after", "before"):
        for cursor in NO_CURSORS:
            query = QueryDict(mutable=True)
            query[name] = cursor
            assert keyset_page(tuples, "-best_score", query, 2) == first


def test_a_cursor_after_the_last_row_shows_an_empty_page():
    make_harvest([("head", "tail")])
    query = QueryDict(f"after=-1e308,{LARGEST_ID}")

    assert keyset_page(Filtered(KnowledgeTuple.objects.all()), "-best_score", query, ROWS_PER_PAGE).rows == []


@pytest.mark.parametrize("value", ["9" * 19, "9" * 5_000, "1e999", "٣", "²", "-1", "1.0,1"])
@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("/knowledge/", ("after", "before", "relation", "model", "slot", "score_from", "sort")),
        ("/relations/new/", ("copy",)),
        ("/rounds/", ("page", "sort", "status")),
        ("/reports/", ("page", "sort")),
        ("/rounds/gold/", ("page", "q")),
        ("/harvests/", ("page", "status", "model")),
    ],
)
def test_invalid_query_parameters_are_ignored(researcher_client, address, names, value):
    assert researcher_client.get(address, dict.fromkeys(names, value)).status_code == 200
