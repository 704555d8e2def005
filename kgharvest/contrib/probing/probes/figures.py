"""Figures of a probe: P@1 of methods with intervals, and differences from the manual prompts."""

from evaluation.rendering.documents import Document
from evaluation.rendering.figures.drawing import Drawing, Off
from evaluation.rendering.figures.forest import DIFFERENCES_AXIS, Estimate, draw
from evaluation.rendering.figures.report_figures import ReportFigure
from kgharvest.contrib.probing.probes.tables import CONTROL
from kgharvest.pages.number_format import points, points_with_interval, share_with_interval


def methods(document: Document) -> list[Estimate]:
    """Return P@1 of the methods, then P@1 of the methods on the control, which is drawn as hollow marks."""
    estimates = []
    for is_control, rows in ((False, document["summary"]), (True, document["control"])):
        for row in rows:
            name, interval = row["method"], (row["p1"], row["p1_low"], row["p1_high"])
            text = share_with_interval(*interval)
            estimates.append(Estimate(f"{name}, {CONTROL}" if is_control else name, *interval, text, not is_control))
    return estimates


def differences(document: Document) -> list[Estimate]:
    estimates = []
    for row in document["summary"]:
        interval = row["difference"], row["difference_low"], row["difference_high"]
        if row["difference"] is not None:
            text = points_with_interval(*interval)
            estimates.append(Estimate(row["method"], *interval, text, row["p_holm"] < 0.05))
    return estimates


def draw_methods(document: Document, width: float | None = None, off: Off = ()) -> Drawing:
    axis = f"P@1, mean over relations, 95 % interval; hollow: {CONTROL}"
    n_above = len(document["summary"]) if document["control"] else 0
    return draw(methods(document), axis, width, off, line_below=n_above)


def draw_differences(document: Document, width: float | None = None, off: Off = ()) -> Drawing:
    return draw(differences(document), DIFFERENCES_AXIS, width, off, is_difference=True)


PROBE_FIGURES = (
    ReportFigure(
        "methods",
        "P@1 of each method",
        lambda document: (
            "Mean over relations, with Student's 95 % interval. Below the line: the same methods on the same LM with "
            f"{CONTROL}. Its correct answers were learned from the facts, because this LM has no knowledge."
        ),
        "summary",
        methods,
        lambda document: f"P@1: {'; '.join(f'{estimate.name} {estimate.text}' for estimate in methods(document))}.",
        draw_methods,
    ),
    ReportFigure(
        "differences",
        "Differences from the manual prompts",
        lambda document: (
            "Paired by relation. An interval that spans 0 shows no clear difference. There is no interval if the "
            "relations are too few or too similar."
        ),
        "differences",
        differences,
        lambda document: (
            "Percentage points: "
            + "; ".join(f"{estimate.name} {points(estimate.value)}" for estimate in differences(document))
            + "."
        ),
        draw_differences,
    ),
)
