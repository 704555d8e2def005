"""Figures of a report, computed from its document."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

from evaluation.rendering.documents import Document, side_name
from evaluation.rendering.figures import accuracy_curves, flow, forest, heat_map
from evaluation.rendering.figures.drawing import LIGHT, PAPER_SCALE, DrawFigure, Theme, paper_box, render
from evaluation.reports.sections.conduct import flow_steps
from evaluation.reports.sections.rates import (
    calibration_curves,
    calibration_left_out,
    calibration_table,
    side_curves,
    size_curve_table,
)
from kgharvest.pages.number_format import points, share, share_with_interval
from kgharvest.tables.table import Table


class ReportFigure(NamedTuple):
    """A figure, shown in reports that contain its data.

    shows: returns the figure's data. If it is empty, the report does not show the figure. alt: returns the text
    description. draw: called as `draw(document, width=None, off=())`; without a width, the drawing is as wide as in
    files. table: the report's table with the figure's numbers. numbers: the part of this table that is drawn; None if
    the page shows the table anyway. left_out: text about cells that are not drawn; readers can select these cells by
    relation. is_interactive: pages replace the image with a drawing.
    """

    name: str
    title: str
    caption: Callable[[Document], str]
    table: str
    shows: Callable[[Document], list[Any]]
    alt: Callable[[Document], str]
    draw: DrawFigure
    numbers: Callable[[Document], Table] | None = None
    left_out: Callable[[Document], str] = lambda document: ""
    is_interactive: bool = True

    def image(self, document: Document) -> dict[str, Any]:
        """Return the name, texts, and size in CSS pixels. The size avoids layout shifts when the image loads."""
        width, height = (round(PAPER_SCALE * size) for size in paper_box(self.draw(document), document)[:2])
        return {
            "name": self.name,
            "title": self.title,
            "caption": self.caption(document),
            "alt_text": self.alt(document),
            "is_interactive": self.is_interactive,
            "width": width,
            "height": height,
            "table": self.table,
            "left_out": self.left_out(document),
        }

    def data_url(self, document: Document, theme: Theme = LIGHT) -> str:
        return f"data:image/svg+xml;base64,{b64encode(self.render(document, theme=theme)).decode()}"

    def render(self, document: Document, file_format: str = "svg", theme: Theme = LIGHT) -> bytes:
        return render(self.draw(document), document, file_format, theme)


BY_RELATION = ("calibration",)  # figures with many panels, filtered by relation


def figures_of(document: Document) -> list[ReportFigure]:
    return [figure for figure in FIGURES if figure.shows(document)]


def figure_named(name: str, document: Document) -> ReportFigure | None:
    """Return the figure with this name, or None if it is unknown or the document lacks its data."""
    return next((figure for figure in FIGURES if figure.name == name and figure.shows(document)), None)


def averages_in_words(document: Document) -> str:
    parts = [
        f"{estimate.name} {share_with_interval(estimate.value, estimate.low, estimate.high)}"
        for estimate in forest.averages(document)
    ]
    return f"Accuracy, mean over relations: {'; '.join(parts)}."


def averages_caption(document: Document) -> str:
    has_interval = any(estimate.low is not None for estimate in forest.averages(document))
    return "Mean over these relations with its 95 % interval." if has_interval else "Mean over these relations."


def differences_in_words(document: Document) -> str:
    parts = [f"{estimate.name} {points(estimate.value)}" for estimate in forest.differences(document)]
    return f"Differences in percentage points: {'; '.join(parts)}."


def curves_in_words(document: Document) -> str:
    parts = [
        f"{side_name(curve)} from {share(curve['sizes'][0]['accuracy'])} to {share(curve['sizes'][-1]['accuracy'])}"
        for curve in side_curves(document)
    ]
    return f"Accuracy from the top-ranked tuples to the whole harvest: {'; '.join(parts)}."


def calibration_in_words(document: Document) -> str:
    parts = [
        f"{curve['relation']}, {side_name(curve)}: {share(curve['scores'][0]['accuracy'])} at the lowest scores, "
        f"{share(curve['scores'][-1]['accuracy'])} at the highest"
        for curve in calibration_curves(document)
    ]
    return f"Accuracy by score. {'; '.join(parts)}."


FIGURES = (
    ReportFigure(
        "heat-map",
        "Accuracy per relation",
        lambda document: "The table above as a heat map. Stronger color means higher accuracy.",
        "relations",
        lambda document: [cell for cell in document["cells"] if cell["accuracy"] is not None],
        lambda document: f"Heat map of accuracy by relation, LM, and setting. {averages_in_words(document)}",
        heat_map.draw,
    ),
    ReportFigure(
        "averages",
        "Averages with intervals",
        averages_caption,
        "settings",
        forest.averages,
        averages_in_words,
        forest.draw_averages,
    ),
    ReportFigure(
        "differences",
        "Differences with intervals",
        lambda document: (
            "Differences are paired by relation. If an interval contains 0, either side may be more accurate."
        ),
        "comparisons",
        forest.differences,
        differences_in_words,
        forest.draw_differences,
    ),
    ReportFigure(
        "sizes",
        "Accuracy by size of the KG",
        lambda document: (
            "Accuracy by number of top-ranked tuples with a 95 % band, from one sample. "
            "The marks show the cuts of the paper."
        ),
        "size-curves",
        side_curves,
        curves_in_words,
        accuracy_curves.draw_size_curves,
        lambda document: size_curve_table({**document, "curves": side_curves(document)}),
    ),
    ReportFigure(
        "calibration",
        "Accuracy by score",
        lambda document: (
            "Accuracy in bins with equal numbers of judged tuples, with 95 % intervals. Scores of different relations "
            "or LMs are not comparable. The dashed line marks the cut precision:0.8: .8 of the tuples with higher "
            "scores are true."
        ),
        "calibration",
        calibration_curves,
        calibration_in_words,
        accuracy_curves.draw_calibration,
        lambda document: calibration_table({**document, "curves": calibration_curves(document)}),
        calibration_left_out,
    ),
    ReportFigure(
        "flow",
        "Flow of tuples, people, and judgments",
        lambda document: (
            "From harvested tuples and annotators to the evidence of the report. Arrows show the exclusions."
        ),
        "flow",
        flow_steps,
        lambda document: f"Flow diagram: {flow.in_words(document)}.",
        flow.draw,
        is_interactive=False,
    ),
)
