"""What interactive figures draw: JSON from the document alone, with the numbers in words and where each leads."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from evaluation.rendering.figures import forest, heat_map, precision_recall
from evaluation.rendering.figures.canvas import DARK, LIGHT
from tests.evaluation.report_documents import TWO_SETTINGS, make_comparison, make_document

ROOT = Path(__file__).resolve().parents[3]
VENDOR = ROOT / "evaluation/static/evaluation/vendor"


def test_a_forest_has_every_lm_and_setting_with_what_is_behind_it():
    plot = forest.plot_averages(make_document(TWO_SETTINGS))

    human, multi = plot["rows"]
    assert plot["series"][0] == {"name": "big · human", "query": "model=big&setting=human"}
    assert (human["value"], human["series"], human["text"]) == (0.25, (0,), ".25")
    assert multi["address"] == "../tuples/?model=big&setting=multi"
    assert multi["basis"] == "2 relations, 20 statements"


def test_a_difference_is_of_two_sides_and_leads_to_its_comparison():
    [row] = forest.plot_differences(make_document(TWO_SETTINGS, comparisons=[make_comparison()]))["rows"]

    assert list(row["series"]) == [0, 1]
    assert row["address"] == "../comparisons/1/"
    assert not row["is_firm"]
    assert "p (Holm) .50" in row["basis"]


def test_a_heat_map_has_every_cell_and_the_averages_last():
    cells = {**TWO_SETTINGS, ("t", "big", "multi"): (0, 0, 0, 2)}

    plot = heat_map.plot(make_document(cells))

    r, _, t, average = plot["rows"]
    share, printed, words = r["cells"][1]
    assert (share, printed) == (0.8, ".80")
    assert words.endswith("n = 10: 8 accepted, 2 rejected")
    assert t["cells"] == [None, None]  # not sampled, and without a verdict
    assert (average["query"], average["cells"][1][:2]) == ("", [0.6, ".60"])
    assert plot["columns"] == [["big", "human"], ["big", "multi"]]


def test_a_plot_of_hundreds_of_relations_is_small():
    cells = {(f"relation {number}", model, "multi"): (5, 3, 1, 0) for number in range(487) for model in "abcdefgh"}

    content = json.dumps(heat_map.plot(make_document(cells)))

    assert len(content) < 500_000


def test_precision_and_recall_keep_both_ends_of_a_long_curve():
    curve = [{"recall": number / 999, "precision": 1 - number / 1998} for number in range(1000)]
    scores = {
        "n_positive": 10,
        "n_negative": 30,
        "scorers": [{"scorer": "multi", "average_precision": 0.85, "curve": curve}],
    }

    plot = precision_recall.plot(scores)

    points = plot["curves"][0]["points"]
    assert (points[0]["x"], points[-1]["x"], len(points)) == (0, 1, 60)
    assert points[-1]["text"] == "recall 1.00, precision .50"
    assert plot["series"][0]["name"] == "multi (.850)"
    assert plot["chance"]["value"] == 0.25


@pytest.mark.parametrize("number", range(8))
def test_the_hues_of_pages_are_those_of_files(number):
    css = (ROOT / "kgharvest/static/kgharvest/site.css").read_text()

    [hues] = re.findall(rf"--series-{number}: light-dark\((#\w+), (#\w+)\)", css)

    assert hues == (LIGHT.hues[number], DARK.hues[number])


def test_vendored_files_are_those_of_their_packages():
    vendored = json.loads((VENDOR / "vendored.json").read_text())

    for name, package in vendored.items():
        digest = hashlib.sha512((VENDOR / name).read_bytes()).digest()
        assert package["file_integrity"] == f"sha512-{base64.b64encode(digest).decode()}"
        assert (VENDOR / f"{package['name']}.LICENSE").exists()
    assert set(vendored) == {path.name for path in VENDOR.glob("*.js")}
