"""The rule for labels and entities of imported files."""

import pytest

from kgharvest.bulk.file_values import BadValue, read_entities, read_label


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("True", "true"),
        (" true ", "true"),
        ("TRUE", "true"),
        ("t", "true"),
        (True, "true"),
        ("\tFalse\n", "false"),
        ("F", "false"),
        (False, "false"),
        ("Unjudgeable", "unjudgeable"),
        ("u", "unjudgeable"),
    ],
)
def test_labels_are_read_in_any_case_with_spaces_and_abbreviated(text, label):
    assert read_label(text) == label


@pytest.mark.parametrize("value", ["", " ", "yes", "1", 1, 0, None, 1.0, ["true"], "truee"])
def test_other_labels_are_refused_with_the_accepted_ones(value):
    with pytest.raises(BadValue, match="True, False, or Unjudgeable"):
        read_label(value)


@pytest.mark.parametrize("value", [[" dog ", "swim"], '["dog", " swim"]', ' [ "dog" ,"swim\\t"] '])
def test_entities_are_a_list_or_a_json_list_without_spaces(value):
    if "\\t" in str(value):
        with pytest.raises(BadValue, match="control character"):
            read_entities(value)
        return
    assert read_entities(value) == ("dog", "swim")
    assert read_entities(value, 2) == ("dog", "swim")
    with pytest.raises(BadValue, match="list of 3"):
        read_entities(value, 3)


@pytest.mark.parametrize(
    "value", ["dog", "[1, 2]", [], ["dog"], ["dog", " "], ["dog", "x" * 201], None, {"a": 1}, "{}"]
)
def test_other_entities_are_refused(value):
    with pytest.raises(BadValue):
        read_entities(value)
