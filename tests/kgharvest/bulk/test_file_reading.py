"""Reading of uploaded and imported files."""

import json

import pytest

from kgharvest.bulk.file_reading import Line, read_json_array
from kgharvest.errors import BadEntry


@pytest.mark.parametrize(
    "text",
    [
        ' [ [["a, ]", "b\\n\\""], 0.25], \n\n[["c", "d"],\n 1e-3] , 12345 ]\n ', "[]", "[1 2]", "[1] x",
        "[[1]", '["a', "[", "[1,\n\n 2, }", '[{"a": [1, {"b": 2}]}, "\u00e9\U0001f994", null]', '["a\nb"]',
    ],
)  # fmt: skip
def test_a_json_array_is_parsed_from_chunks_of_any_size(text):
    whole = list(read_json_array([text]))

    for size in range(1, 12):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        assert list(read_json_array(pieces)) == whole
    if all(isinstance(line, Line) for line in whole):
        assert [line.value for line in whole] == json.loads(text)
    else:
        with pytest.raises(json.JSONDecodeError) as broken:
            json.loads(text)
        assert whole[-1].where == f"line {broken.value.lineno}, column {broken.value.colno}"


@pytest.mark.parametrize("text", ["[" * 100_000, "[" + "9" * 5000 + "]", '["' + "x" * 2_000_000 + '"]'])
def test_invalid_json_is_rejected_with_its_location(text):
    [fault] = read_json_array(text[start : start + 65_536] for start in range(0, len(text), 65_536))

    assert isinstance(fault, BadEntry)
    assert fault.where.startswith("line 1, column ")
