"""Figures of a probe: P@1 of methods with intervals, and differences from the manual prompts."""

from collections.abc import Mapping
from typing import Any

from evaluation.rendering.documents import Document
from evaluation.rendering.figures.drawing import FONT_SIZE, LINE, Drawing, Off, Sheet, hue, text, text_width
from evaluation.rendering.figures.forest import DIFFERENCES_AXIS, Estimate, draw
from evaluation.rendering.figures.report_figures import ReportFigure
from kgharvest.contrib.probing.probes.tables import CONTROL
from kgharvest.pages.number_format import points, points_with_interval, share_with_interval

WEIGHT_WIDTH, GAP = 60, 10  # pixels
LEAST_OPACITY = 0.5  # keeps improbable words readable


def methods(document: Document) -> list[Estimate]:
    """Return P@1 of the methods on the LM, then P@1 of the methods on the control. The latter have hollow marks."""
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


def draw_words(entry: Document, width: float | None = None, off: Off = ()) -> Drawing:
    """Draw the heaviest prompts: soft words above their original words, as in Figure 1 of Qin & Eisner (2021).

    Probable words are opaque. The size of a soft word is its norm ratio.
    """
    shapes, x_end, top = [], 0.0, 0.0
    words = [part for prompt in entry["prompts"] for part in _words(prompt)]
    most = max((part[key] for part in words for key in ("p", "original_p")), default=1)
    for prompt in entry["prompts"]:
        size = FONT_SIZE * max((part["norm_ratio"] for part in _words(prompt)), default=1)
        soft_line = top + 1.2 * size
        shapes.append(text(0, soft_line, f"[{prompt['weight']:.3f}]", fill="ink-soft"))
        x = WEIGHT_WIDTH
        for part in prompt["parts"]:
            if isinstance(part, int):
                slot = "xy"[part]
                shapes += [text(x, line, slot, **{"font-style": "italic"}) for line in (soft_line, soft_line + LINE)]
                x += text_width(slot) + GAP
                continue
            p, original_p = (max(LEAST_OPACITY, part[key] / most) for key in ("p", "original_p"))
            look = {"fill": hue(0), "fill-opacity": p, "font-size": FONT_SIZE * part["norm_ratio"]}
            shapes.append(text(x, soft_line, part["word"], **look))
            look = {"fill": hue(1), "fill-opacity": original_p}
            shapes.append(text(x, soft_line + LINE, part["original"], **look))
            x += max(part["norm_ratio"] * text_width(part["word"]), text_width(part["original"])) + GAP
        x_end, top = max(x_end, x), soft_line + LINE + GAP
    return [Sheet(x_end, top, shapes)]


def _words(prompt: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [part for part in prompt["parts"] if not isinstance(part, int)]


def word_figures(document: Document, relation: str | None = None) -> list[ReportFigure]:
    """Return one figure per method and relation with learned words. relation: only figures of this relation."""
    return [
        ReportFigure(
            f"words-{number}",
            f"Soft words of {entry['method']} for {entry['relation']}",
            lambda document: (
                "The prompts with the largest weights, in brackets. Blue: the most probable word w of each learned "
                "vector v; its opacity grows with p(w | v), and its size is the norm of v divided by the norm of the "
                "original vector. Orange: the original words w0; their opacity grows with p(w0 | v0)."
            ),
            "statistics",
            lambda document: document["learned_words"],
            lambda document, entry=entry: "; ".join(
                f"{prompt['weight']:.3f}: "
                + " ".join("xy"[part] if isinstance(part, int) else part["word"] for part in prompt["parts"])
                for prompt in entry["prompts"]
            ),
            lambda document, width=None, off=(), entry=entry: draw_words(entry, width, off),
        )
        for number, entry in enumerate(document.get("learned_words", ()), start=1)
        if relation in (None, entry["relation"])
    ]


def probe_figures(document: Document) -> list[ReportFigure]:
    return [figure for figure in (*PROBE_FIGURES, *word_figures(document)) if figure.shows(document)]


PROBE_FIGURES = (
    ReportFigure(
        "methods",
        "P@1 of each method",
        lambda document: (
            "Mean over relations, with Student's 95 % interval. Below the line: the same methods on the same LM with "
            f"{CONTROL}. Such an LM has no knowledge: its correct answers were learned from the training facts."
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
