"""Figures on pages: every mark has a text label and a link to its evidence."""

import re
from xml.etree import ElementTree

import pytest

from evaluation.rendering.figures import forest, heat_map, precision_recall
from evaluation.rendering.figures.drawing import DARK, LIGHT, clipped, text_width, ticks, to_page
from tests.evaluation.report_documents import TWO_SETTINGS, make_comparison, make_document
from tests.test_architecture import ROOT


def elements(drawing) -> ElementTree.Element:
    return ElementTree.fromstring(f"<page>{to_page(drawing, 'A figure')}</page>")


def marks(drawing) -> dict[str, ElementTree.Element]:
    """Return the link elements by accessible name."""
    return {mark.get("aria-label"): mark for mark in elements(drawing).iter("a")}


def test_forest_plot_links_each_lm_and_setting_to_tuples():
    links = marks(forest.draw_averages(make_document(TWO_SETTINGS), 800))

    assert list(links) == [
        "big · human: .25, 2 relations, 20 statements",
        "big · multi: .60, 2 relations, 20 statements",
    ]
    assert links["big · multi: .60, 2 relations, 20 statements"].get("href") == "tuples/?model=big&setting=multi"


def test_difference_mark_links_to_its_comparison():
    document = make_document(TWO_SETTINGS, comparisons=[make_comparison()])

    [(label, mark)] = marks(forest.draw_differences(document, 800)).items()

    assert label == "big: human − multi: −35.0, 2 relations, p (Holm) .50"
    assert mark.get("href") == "comparisons/1/"
    assert mark.find("circle").get("fill") == "var(--paper)"  # not significant
    assert all(marks(forest.draw_differences(document, 800, {side})) == {} for side in (0, 1))


def test_marks_are_positioned_at_their_values():
    svg = elements(forest.draw_averages(make_document(TWO_SETTINGS), 800))

    low, high = (
        float(line.get("d")[1:].split(",")[0])
        for line in svg.findall(".//g/path")[:: len(svg.findall(".//g/path")) - 1]
    )
    places = [float(circle.get("cx")) for circle in svg.iter("circle")]

    assert [(place - low) / (high - low) for place in places] == pytest.approx([0.25, 0.6], abs=1e-3)


def test_heat_map_contains_all_cells_with_averages_last():
    cells = {**TWO_SETTINGS, ("t", "big", "multi"): (0, 0, 0, 2)}

    links = marks(heat_map.draw(make_document(cells), 800))

    by_name = {label[: int(mark.get("data-name"))]: (label, mark) for label, mark in links.items()}
    label, mark = by_name["r, big · multi"]
    assert mark.find("text").text == ".80"
    assert label.endswith("n = 10: 8 accepted, 2 rejected")
    assert mark.get("href") == "tuples/?relation=r&model=big&setting=multi"
    assert [name for name in by_name if name.startswith("t, ")] == []  # not sampled or without a verdict
    assert by_name["average, big · multi"][1].get("href") == "tuples/?model=big&setting=multi"
    assert list(by_name)[-1] == "average, big · multi"


def test_heat_map_columns_can_be_hidden():
    document = make_document(TWO_SETTINGS)

    every, one = heat_map.draw(document, 800), heat_map.draw(document, 800, {0})

    assert one[0].width < every[0].width
    assert all(", big · multi" in label for label in marks(one))


def test_large_heat_map_is_split_into_row_blocks():
    cells = {(f"relation {number:03}", "big", "multi"): (5, 3, 1, 0) for number in range(100)}

    svgs = elements(heat_map.draw(make_document(cells), 800)).findall("svg")

    assert [svg.get("aria-label") for svg in svgs[1:]] == [
        "Relations 1 to 40",
        "Relations 41 to 80",
        "Relations 81 to 101",
    ]
    assert [mark.get("data-row") for svg in svgs for mark in svg.iter("a")] == [str(row) for row in range(101)]


def test_thinned_precision_recall_curve_keeps_both_ends():
    curve = [{"recall": number / 999, "precision": 1 - number / 1998} for number in range(1000)]
    scores = {
        "n_positive": 10,
        "n_negative": 30,
        "scorers": [{"scorer": "multi", "average_precision": 0.85, "curve": curve}],
    }

    svg = elements(precision_recall.draw(scores, 400))

    labels = [mark.get("aria-label") for mark in svg.iter("a")]
    assert len(labels) == 60
    assert (labels[0], labels[-1]) == ("multi: recall .00, precision 1.00", "multi: recall 1.00, precision .50")
    assert precision_recall.names_of(scores) == ["multi (.850)"]
    assert "random order .25" in [text.text for text in svg.iter("text")]


@pytest.mark.parametrize("width", [280, 800])
def test_page_drawing_has_no_inline_style_and_only_theme_colors(width):
    page = to_page(forest.draw_averages(make_document(TWO_SETTINGS), width), "Averages")

    assert not re.search(r"style|<script|\son\w+=", page)
    assert set(re.findall(r'(?:fill|stroke)="([^"]*)"', page)) <= {
        "none", "var(--paper)", "var(--ink)", "var(--ink-soft)", "var(--line)", "var(--series-0)", "var(--series-1)",
    }  # fmt: skip


def test_names_in_drawings_are_escaped():
    document = make_document({("<b>&r", 'a"b', "multi"): (1, 1, 0, 0)})

    [_, cell, *_] = ["", *marks(heat_map.draw(document, 800))]

    assert cell.startswith('<b>&r, a"b · multi: ')


@pytest.mark.parametrize("number", range(8))
def test_page_colors_match_file_colors(number):
    css = (ROOT / "kgharvest/static/kgharvest/site.css").read_text()

    [hues] = re.findall(rf"--series-{number}: light-dark\((#\w+), (#\w+)\)", css)

    assert hues == (LIGHT[f"series-{number}"], DARK[f"series-{number}"])


# Scales and text


@pytest.mark.parametrize(
    ("low", "high", "n", "expected"),
    [
        (0, 1, 10, [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]),
        (0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 1, 2, [0, 0.5, 1]),
        (0, 10, 3, [0, 5, 10]),
        (-7.1, -3.9, 3, [-7, -6, -5, -4]),
        (-0.083, 0.235, 6, [-0.05, 0, 0.05, 0.1, 0.15, 0.2]),
        (0, 900, 6, [0, 200, 400, 600, 800]),
        (-0.02, 0.02, 4, [-0.02, -0.01, 0, 0.01, 0.02]),
        (0.5, 0.5, 4, [0.5]),
    ],
)
def test_ticks_are_multiples_of_one_two_or_five(low, high, n, expected):
    assert ticks(low, high, n) == expected


def test_text_is_clipped_to_its_width():
    assert clipped("place_for", 200) == "place_for"
    assert clipped("a very long name of a relation", 80).endswith("…")
    assert text_width(clipped("a very long name of a relation", 80)) <= 80
    assert text_width("中文") == 2 * 13
