"""Precision and recall of scores on known facts and negative samples, as in Figures 4 and 5 of the paper."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evaluation.rendering.figures import drawing
from evaluation.rendering.figures.drawing import DASHES, LINE, N_HUES, Drawing, Off, Shape, Sheet, hue, text
from kgharvest.pages.number_format import share, share_tick

MOST_POINTS = 60  # maximum number of marks of a curve on a page


def names_of(scores: Mapping[str, Any]) -> list[str]:
    """Return the names of scorers with their average precisions.

    Three digits are shown, because good scorers differ only in the third.
    """
    return [f"{scorer['scorer']} ({share(scorer['average_precision'], 3)})" for scorer in scores["scorers"]]


def thinned(curve: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return at most MOST_POINTS points of a curve, evenly spaced and including both ends."""
    if len(curve) <= MOST_POINTS:
        return curve
    step = (len(curve) - 1) / (MOST_POINTS - 1)
    return [curve[round(number * step)] for number in range(MOST_POINTS)]


def draw(scores: Mapping[str, Any], width: float | None = None, off: Off = ()) -> Drawing:
    """Draw a line per scorer over all relations, and the share of facts as the baseline of random scores.

    Marks link to the table of scorers, because there are no statements to link to.
    """
    is_file, width = width is None, width or drawing.paper_width(3.4)
    scorers = [(number, scorer) for number, scorer in enumerate(scores["scorers"]) if number not in set(off)]
    [panel], bottom = drawing.grid(1, width, least=width, height=min(420, 0.7 * width))
    dashes = [DASHES[(number + number // N_HUES) % len(DASHES)] for number in range(len(scores["scorers"]))]
    samples = (drawing.sample_line(hue(number), dash) for number, dash in enumerate(dashes))
    entries = zip(names_of(scores), samples, strict=True) if is_file else ()
    key, height = drawing.legend(entries, width, bottom + LINE)

    def shapes() -> Iterator[Shape]:
        yield text(0, LINE - 4, "precision", fill="ink-soft")
        yield from panel.x_axis(share_tick, "recall")
        yield panel.y_axis()
        chance = scores["n_positive"] / (scores["n_positive"] + scores["n_negative"])
        ends = [(panel.x(end), panel.y(chance)) for end in (0, 1)]
        yield drawing.line(ends, "ink-soft", 1.2, "2 3")
        yield text(panel.left + 6, panel.y(chance) + LINE - 2, f"random order {share(chance)}", fill="ink-soft")
        for row, (number, scorer) in enumerate(scorers):
            places = [(panel.x(point["recall"]), panel.y(point["precision"])) for point in scorer["curve"]]
            yield drawing.line(places, hue(number), 2, dashes[number])
            for column, point in enumerate(() if is_file else thinned(scorer["curve"])):
                x, y = panel.x(point["recall"]), panel.y(point["precision"])
                words = f"recall {share(point['recall'])}, precision {share(point['precision'])}"
                dot = drawing.target(x - 8, y - 8, 16, 16), drawing.circle(x, y, 2, hue(number))
                yield drawing.mark((row, column), scorer["scorer"], words, "#scorers", *dot)
        if is_file:
            yield text(0, bottom + 8, "scores (average precision)", fill="ink-soft")
        yield from key

    return [Sheet(width, height if is_file else bottom, shapes())]
