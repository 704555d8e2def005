"""The evidence page: a report and the rows behind its numbers as one self-contained HTML file without network access.

The rows are JSON in an inert script element. Every number links to a fragment that selects its rows, so that a URL
restores the view. The content security policy allows only the page's own script and style, by hash.
"""

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from annotation.rounds.instructions import statement_parts
from evaluation.rendering.documents import Document, demonstrator_mark, key_numbers, made_at, name_of
from evaluation.rendering.figures.drawing import THEMES
from evaluation.rendering.figures.report_figures import figure_named
from evaluation.reports.document import finding, tables_to_read
from evaluation.reports.sections.comparisons import common_key, common_of, rank_in_words, ranks_of, ties_in_words
from evaluation.reports.sections.rates import cells_by_relation, interval_of_average
from kgharvest.pages.number_format import interval, points_with_interval
from kgharvest.statistics.arrays import VERDICTS

FILES = Path(__file__).resolve().parent.parent / "static" / "evaluation" / "evidence_page"
# Characters that can end or start an element inside a script element.
ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
FIGURE = "averages"
N_EXAMPLES, SLOTS = 3, "XYZUVW"


def write_evidence_page(document: Document, rows: Mapping[str, Any], with_annotators: bool = True) -> str:
    """Return the page. rows: from evaluation.reports.evidence_rows.gather_rows. with_annotators: see tables_to_read."""
    style, script = _file("evidence.css"), _file("evidence.js")
    context = {
        "document": document,
        "made_at": made_at(document),
        "finding": finding(document),
        "key_numbers": [(*number, "#verdict=") for number in islice(key_numbers(document), 3)],
        "figure": _figure(document),
        "totals": list(_totals(document)),
        "comparisons": list(_comparisons(document)),
        "sides": [_side(document, total) for total in document["totals"]],
        "relations": cells_by_relation(document),
        "examples": sorted(_examples(rows).items()),
        "tables": tables_to_read(document, with_annotators),
        "has_incomplete": any(cell["incomplete"] for cell in document["cells"]),
        "n_hidden": sum(statement is None for statement in rows["tasks"]["statement"]),
        "has_codes": any(rows["annotators"]),
        "judge": rows["judge"],
        "style": SafeString(style),
        "script": SafeString(script),
        "policy": policy(style, script),
        "rows": embedded(rows),
    }
    return str(render_to_string("evaluation/reports/evidence_page.html", context))


def _examples(rows: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the statement template and the N_EXAMPLES statements with the highest scores per verdict, by relation.

    In templates, X, Y, Z, ... stand for the entities in reading order. Statements of hidden tuples are omitted.
    """
    draws, tasks = rows["draws"], rows["tasks"]
    columns = zip(draws["score"], draws["rank"], draws["task"], draws["cell"], strict=True)
    examples: dict[str, dict[str, Any]] = {}
    for *_, task, cell in sorted(columns, key=lambda row: (row[0] is None, -(row[0] or 0), row[1] or inf, row[2])):
        text, spans = tasks["statement"][task], tasks["spans"][task]
        if text is None:
            continue
        parts = statement_parts(text, list(zip(spans[::2], spans[1::2], strict=True)))
        relation = rows["cells"][cell]["relation"]
        if relation not in examples:
            names: dict[str, str] = {}
            template = "".join(
                names.setdefault(part, SLOTS[len(names) % len(SLOTS)]) if is_slot else part for part, is_slot in parts
            )
            examples[relation] = {"template": template, **{verdict: {} for verdict in VERDICTS}}
        of_verdict = examples[relation][VERDICTS[tasks["verdict"][task]]]
        if len(of_verdict) < N_EXAMPLES:
            of_verdict[task] = parts
    return examples


@cache
def _file(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


def policy(style: str, script: str = "") -> str:
    """Return a content security policy that allows only the page's style and script, and embedded images."""
    scripts = f"script-src '{_digest(script)}'; " if script else ""
    return (
        f"default-src 'none'; {scripts}style-src '{_digest(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(rows: Mapping[str, Any]) -> SafeString:
    """Return JSON that is safe inside a script element."""
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return SafeString(text.translate(ESCAPED))


def address(*, verdict: str = "", **part: Any) -> str:
    """Return the URL fragment that selects rows.

    part: `relation`, `model`, and `setting`; None means that rows are not filtered by it.
    """
    query = {key: value or "" for key, value in part.items()} | ({"verdict": verdict} if verdict else {})
    return "#" + urlencode(query, doseq=True)


def _figure(document: Document) -> dict[str, Any] | None:
    """Return the forest plot of the averages as embedded images, or None. For one LM and setting, it has one point."""
    figure = figure_named(FIGURE, document) if len(document["totals"]) > 1 else None
    if figure is None:
        return None
    return figure.image(document) | {name: figure.data_url(document, theme) for name, theme in THEMES.items()}


def _side(document: Document, total: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": demonstrator_mark(document, total["model"]), "setting": name_of(total["setting"])}


def _totals(document: Document) -> Iterator[dict[str, Any]]:
    ranks = ranks_of(document)["sides"]
    by_side = {(side["model"], side["setting"]): side for side in ranks}
    for total in document["totals"]:
        ranked = by_side.get((total["model"], total["setting"]))
        yield {
            **total,
            **_side(document, total),
            "interval": interval(*interval_of_average(total)),
            "rank": rank_in_words(ranked) if ranked else "",
            "tied": ties_in_words(ranked, len(ranks)) if ranked else "",
        }


def _comparisons(document: Document) -> Iterator[dict[str, Any]]:
    for compared in document["comparisons"]:
        differs = "setting" if compared["kind"] == "settings" else "model"
        sides = {common_key(compared): compared.get(common_key(compared)), differs: [compared["a"], compared["b"]]}
        difference = points_with_interval(compared["difference"], compared["low"], compared["high"])
        yield {**compared, "common": common_of(compared), "difference": difference, "rows": address(**sides)}
