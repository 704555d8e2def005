"""Report figures: deterministic output, computed only from the document, with numbers as text."""

import re

import pytest

from evaluation.rendering.figures import precision_recall
from evaluation.rendering.figures.drawing import DARK, LIGHT, render
from evaluation.rendering.figures.report_figures import figure_named, figures_of
from evaluation.reports.document import abridged
from evaluation.reports.sections.rates import scores_by_relation, setting_table
from tests.evaluation.rendering.test_plots import marks
from tests.evaluation.report_documents import TWO_SETTINGS, make_comparison, make_document
from tests.test_architecture import loaded_by


def make_report(**fields) -> dict:
    """Return a document with data for every figure."""
    rate = {"n": 5, "accuracy": 0.75, "low": 0.5, "high": 0.9}
    sizes = [{"size": None, "share": 0.5, **rate}, {"size": None, "share": 1.0, **rate, "accuracy": 0.55}]
    scores = [{"score_low": -9.0, "score_high": -5.0, "accepted": 3, **rate}]
    side = {"model": "big", "setting": "multi", "population": 200}
    document = make_document(TWO_SETTINGS, comparisons=[make_comparison()], **fields)
    document["totals"][1]["population"] = 200
    return document | {
        "curves": [
            {"relation": None, **side, "sizes": sizes, "scores": []},
            {"relation": "r", **side, "sizes": sizes, "scores": scores},
        ],
        "cuts": [{**side, "cut": "base:10", "size": 40, "n_relations": 2, **rate}],
    }


def texts(svg: bytes) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.decode())


def figure(name: str, document: dict):
    return next(figure for figure in figures_of(document) if figure.name == name)


@pytest.mark.parametrize("file_format", ["svg", "pdf"])
@pytest.mark.parametrize("name", ["heat-map", "averages", "differences", "sizes", "calibration"])
def test_figure_rendering_is_deterministic(name, file_format):
    document = make_report()

    first, second = (figure(name, document).render(document, file_format) for _ in range(2))

    assert first == second


def test_averages_show_interval_for_these_relations():
    document = make_document(TWO_SETTINGS)
    these = {"macro_accuracy_these_low": 0.1, "macro_accuracy_these_high": 0.9}
    document["totals"] = [total | these for total in document["totals"]]

    shown = figure("averages", document)

    assert "these relations" in shown.caption(document)
    assert shown.alt(document).count("(.10 to .90)") == len(document["totals"])
    assert [row.values[3:5] for row in setting_table(document).rows] == [(0.1, 0.9)] * len(document["totals"])


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("heat-map", {"r", ".20", ".80", ".25", ".60", "average"}),
        ("averages", {"big · human", ".25", ".60"}),
        ("differences", {"big: human − multi", "−35.0"}),
        ("sizes", {"big · multi", "base-10"}),
        ("calibration", {"big · multi", "score (nats, higher is better)"}),
    ],
)
def test_svg_figure_contains_numbers_as_text_in_system_font(name, numbers):
    document = make_report()

    svg = figure(name, document).render(document)

    shown = set(texts(svg))
    assert {number for number in numbers if not any(text.startswith(number) for text in shown)} == set()
    assert b"DejaVu" not in svg
    assert b"system-ui" in svg


def test_dark_figure_differs_only_in_color():
    document = make_report()

    light, dark = (figure("averages", document).render(document, theme=theme) for theme in (LIGHT, DARK))

    assert light != dark
    assert texts(light) == texts(dark)


def test_figures_of_simulated_judgments_are_labeled():
    document = make_report(source="simulated")

    assert all("simulated, not people" in texts(figure.render(document)) for figure in figures_of(document))


def test_figure_has_alternative_text():
    document = make_report()

    assert figure("averages", document).alt(document) == (
        "Accuracy, mean over relations: big · human .25; big · multi .60."
    )


def test_report_without_judgments_has_no_figures():
    unjudged = make_document({("r", "big", "multi"): (0, 0, 0, 3)})

    assert figures_of(unjudged) == []


def test_heat_map_of_many_relations_fits_one_page():
    cells = {(f"r{number}", "big", "multi"): (1, 1, 0, 0) for number in range(487)}
    document = make_document(cells)

    height = figure("heat-map", document).image(document)["height"]

    assert height < 20 * 96
    assert "487 relations and their average" in texts(figure("heat-map", document).render(document))


def test_precision_recall_figure_shows_average_precision():
    curve = [{"recall": 0.5, "precision": 1.0}, {"recall": 1.0, "precision": 0.7}]
    scores = {
        "n_positive": 10,
        "n_negative": 10,
        "scorers": [{"scorer": "multi", "average_precision": 0.85, "curve": curve}],
    }

    shown = texts(render(precision_recall.draw(scores), scores, "svg"))

    assert "multi (.850)" in shown


def test_matplotlib_is_not_imported_at_startup():
    modules = "kgharvest.urls, evaluation.rendering.figures.report_figures, evaluation.reports.views"
    start = f"import django; django.setup(); import {modules}"

    assert loaded_by(start, "matplotlib") == []


# Images


@pytest.mark.django_db
def test_report_page_shows_figure_images_in_both_themes(researcher_client, researcher):
    from annotation.rounds.services import open_round
    from evaluation.reports.services import create_report
    from tests.factories import judge_all, make_harvest, make_relation

    relation, tuples = make_relation(), [("head 0", "tail 0"), ("head 1", "tail 1")]
    jobs = [make_harvest(tuples, relation=relation) for _ in range(2)]  # of two LMs
    round = open_round({"name": "pilot", "cells": [{"job": job.pk, "n": None} for job in jobs]}, researcher)
    judge_all(round, ["true", "false"], ["true", "false"], ["true", "true"])
    report = create_report(round)

    page = researcher_client.get(f"/reports/{report.pk}/").text
    image = researcher_client.get(f"/reports/{report.pk}/figures/averages.svg?theme=dark")
    cached = researcher_client.get(image.request["PATH_INFO"] + "?theme=dark", headers={"if-none-match": image["ETag"]})
    pdf = researcher_client.get(f"/reports/{report.pk}/figures/averages.pdf")

    assert page.count(f'src="/reports/{report.pk}/figures/averages.svg?theme=') == 2
    assert 'alt="Accuracy, mean over relations: ' in page
    assert image["Content-Type"] == "image/svg+xml"
    assert cached.status_code == 304
    assert pdf.content.startswith(b"%PDF")
    assert 'filename="pilot-averages.pdf"' in pdf["Content-Disposition"]
    assert researcher_client.get(f"/reports/{report.pk}/figures/nothing.svg").status_code == 404


def test_ticks_of_small_difference_have_distinct_labels():
    document = make_document(TWO_SETTINGS, comparisons=[make_comparison(difference=0.021)])
    [figure] = [figure for figure in figures_of(document) if figure.name == "differences"]

    ticks = re.findall(r">(−?[\d.]+)</text>", figure.render(document).decode())

    assert len(ticks) > 3
    assert len(set(ticks)) == len(ticks)


# Omitted data


def make_many(n_settings: int, n_relations: int = 1) -> dict:
    """Return a document with a curve for each setting and a scored cell for each relation and setting."""
    rate = {"n": 5, "accuracy": 0.75, "low": 0.5, "high": 0.9}
    settings, relations = (
        [f"{name}{n}" for n in range(size)] for name, size in (("s", n_settings), ("r", n_relations))
    )
    sizes = [{"size": None, "share": share, **rate} for share in (0.5, 1.0)]
    scores = [{"score_low": -9.0, "score_high": -5.0, "accepted": 3, **rate}]
    cells = {(relation, "big", setting): (3, 1, 0, 0) for relation in relations for setting in settings}
    curves = [
        {"relation": None, "model": "big", "setting": setting, "sizes": sizes, "scores": []} for setting in settings
    ]
    curves += [
        {**dict(zip(("relation", "model", "setting"), key, strict=True)), "sizes": sizes, "scores": scores}
        for key in cells
    ]
    return make_document(cells) | {"curves": curves}


def test_more_curves_than_colors_get_separate_panels():
    document = make_many(9)

    shown = texts(figure("sizes", document).render(document))

    assert {f"big · s{n}" for n in range(9)} <= set(shown)


def test_figure_of_many_cells_states_number_shown():
    document = make_many(3, n_relations=5)
    shortened = abridged(document)

    for version in (document, shortened):
        calibration = figure("calibration", version)
        assert calibration.left_out(version) == "12 of 15 cells shown"
        assert any("12 of 15 cells shown" in text for text in texts(calibration.render(version)))


def test_relation_figure_shows_all_cells():
    document = scores_by_relation(make_many(13, n_relations=2))["r1"]
    calibration = figure_named("calibration", document)

    shown = texts(calibration.render(document))

    assert calibration.left_out(document) == ""
    assert [text for text in shown if text.startswith("big")] == [f"big · s{n}" for n in range(13)]


def test_curve_points_link_to_their_tuples():
    document = make_report()

    sizes, calibration = (marks(figure(name, document).draw(document, 800)) for name in ("sizes", "calibration"))

    half = sizes["big · multi, top 50 %, 100 tuples: .75 (.50 to .90), n = 5"]
    assert half.get("href") == "tuples/?model=big&setting=multi&best=0.5"
    cut = sizes["big · multi, cut base-10, 40 tuples: .75 (.50 to .90), n = 5"]
    assert cut.get("href") == "tuples/?model=big&setting=multi&cut=base%3A10"
    [bin_of_scores] = calibration.values()
    assert bin_of_scores.get("href").endswith("relation=r&model=big&setting=multi&score_from=-9.0&score_to=-5.0")
