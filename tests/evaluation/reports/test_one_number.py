"""Consistency: each quantity has the same value on every page, in every file, and in the API, for all round kinds."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections import defaultdict
from html import unescape
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone
from openpyxl import load_workbook

from annotation.exchange.judgment_import import import_judgments
from annotation.judging.assignment import next_batch
from annotation.models import Round
from annotation.quality.exclusion import exclude_annotator, exclusion_effect
from annotation.rounds.services import close_round, open_round
from evaluation.models import Report
from evaluation.rendering.documents import lm_and_setting
from evaluation.rendering.evidence_page import write_evidence_page
from evaluation.rendering.figures.forest import averages
from evaluation.reports.document import finding
from evaluation.reports.evidence_rows import gather_rows
from kgharvest.models import HarvestedTuple, HarvestJob, KnowledgeTuple
from kgharvest.pages.number_format import DASH, interval, share, share_with_interval
from tests import factories

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

LABELS = ("true", "true", "true", "false", "false", "unjudgeable")
N_TUPLES = 40
TOLERANCE = 1.001e-6  # documents are rounded to six decimals; pages compute some numbers anew
CELL_KEYS = ("n", "incomplete", "accuracy", "accuracy_low", "accuracy_high", "rejection")


def harvests() -> list[HarvestJob]:
    """Create harvests of two relations in two settings of an LM. The settings share every other tuple."""
    language_model = factories.make_language_model("lm")
    relation_set = factories.make_relation_set()
    jobs = []
    for name in ("prevent", "cause"):
        relation = factories.make_relation(name, relation_set=relation_set)
        for setting, step in (("human", 1), ("multi", 2)):
            tuples = [(f"head {step * number}", f"tail {step * number}") for number in range(N_TUPLES)]
            jobs.append(
                factories.make_harvest(tuples, relation=relation, setting=setting, language_model=language_model)
            )
    return jobs


def open_walked_round(by, jobs=None, *, strata=None, **options) -> Round:
    cells = [{"job": job.pk, "n": 12, "strata": strata} for job in jobs or harvests()]
    return open_round({"name": "walked", "cells": cells, "seed": 3, **options}, by)


def judge_randomly(round: Round, n_annotators: int = 4, share_answered: float = 1.0) -> Round:
    """Judge with random labels. The first annotator always answers True."""
    rng = random.Random(5)
    annotators = factories.make_annotators(round, n_annotators)
    for number, annotator in enumerate(annotators * 3):
        for task in next_batch(annotator, timezone.now()):
            if rng.random() < share_answered:
                factories.judge(annotator, task, "true" if number % n_annotators == 0 else rng.choice(LABELS))
    return round


def simple(by, tmp_path) -> Round:
    return judge_randomly(open_walked_round(by))


def stratified(by, tmp_path) -> Round:
    return judge_randomly(open_walked_round(by, strata=[1, 8]))


def interim(by, tmp_path) -> Round:
    return judge_randomly(open_walked_round(by, strata=[1, 8]), share_answered=0.7)


def third_only_if_split(by, tmp_path) -> Round:
    return judge_randomly(open_walked_round(by, third_only_if_split=True), share_answered=0.9)


def excluded(by, tmp_path) -> Round:
    round = judge_randomly(open_walked_round(by, third_only_if_split=True))
    close_round(round)
    exclude_annotator(round.annotators.order_by("pk").first(), "always says True")
    return round


def with_hidden_tuples(by, tmp_path) -> Round:
    jobs = harvests()
    hidden = HarvestedTuple.objects.filter(job=jobs[0], rank__in=[2, 5, 11])
    KnowledgeTuple.objects.filter(pk__in=hidden.values("knowledge_tuple")).update(curation="hidden")
    return judge_randomly(open_walked_round(by, jobs, strata=2))


def with_judge(by, tmp_path) -> Round:
    """Add a judge run with an answer for every tuple."""
    round = judge_randomly(open_walked_round(by))
    run = factories.make_judge_run(round, "lm-judge")
    for number, knowledge_tuple in enumerate(KnowledgeTuple.objects.order_by("pk")):
        factories.make_judge_answer(run, knowledge_tuple, ("true", "false", "true", "false", "")[number % 5])
    return round


def imported(by, tmp_path) -> Round:
    """Import judgments by three to five people per statement and exclude one person."""
    rng = random.Random(7)
    rows = [
        [
            relation,
            json.dumps([f"{setting} {number}", f"t{number}"]),
            f"person {person}",
            rng.choice(LABELS),
            "lm",
            setting,
        ]
        for relation in ("prevent", "cause")
        for setting in ("human", "multi")
        for number in range(12)
        for person in range(3 + number % 3)
    ]
    path = tmp_path / "judgments.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["relation", "entities", "annotator", "label", "model", "setting"], *rows])
    round = import_judgments(path, "walked", create=True, by=by).round
    exclude_annotator(round.annotators.order_by("pk").first(), "guesses")
    return round


def clustered(by, tmp_path) -> Round:
    """Judge a round of clusters, with strata of ranks and the answers of a judge for every tuple."""
    language_model, relation = factories.make_language_model("lm"), factories.make_relation("prevent")
    jobs = [
        factories.make_harvest(
            [(f"head {step * number // 3}", f"tail {number}") for number in range(N_TUPLES)],
            relation=relation,
            setting=setting,
            language_model=language_model,
        )
        for setting, step in (("human", 1), ("multi", 2))
    ]
    round = judge_randomly(open_walked_round(by, jobs, strata=2, cluster_size=3))
    run = factories.make_judge_run(round, "lm-judge")
    for number, knowledge_tuple in enumerate(KnowledgeTuple.objects.order_by("pk")):
        factories.make_judge_answer(run, knowledge_tuple, ("true", "false", "true")[number % 3])
    return round


KINDS = (excluded, with_hidden_tuples, with_judge, imported, clustered)
FURTHER_KINDS = (simple, stratified, interim, third_only_if_split)


class Numbers:
    """Values of each quantity by source."""

    def __init__(self) -> None:
        self.values: defaultdict[tuple, dict[str, Any]] = defaultdict(dict)

    def add(self, source: str, value: Any, *quantity: str | None) -> None:
        self.values[quantity][source] = value

    def assert_alike(self) -> None:
        for quantity, by_source in self.values.items():
            first = next(iter(by_source.values()))
            for source, value in by_source.items():
                assert value == (first if first is None else pytest.approx(first, abs=TOLERANCE)), (
                    quantity,
                    source,
                    by_source,
                )


def side_of(entry) -> tuple[str | None, str | None]:
    return entry["model"], entry["setting"]


def cell_of(entry) -> tuple[str, str, str]:
    return entry["relation"], (entry["model"] or "").rpartition("/")[2], entry["setting"]


def add_document(numbers: Numbers, source: str, document) -> None:
    for key in ("n_tasks", "n_complete", "n_judgments", "percent_agreement"):
        numbers.add(source, document[key], key)
    numbers.add(source, document["alpha"]["value"], "alpha")
    for cell in document["cells"]:
        for key in CELL_KEYS:
            numbers.add(source, cell[key], key, *cell_of(cell))
    for cell in document["sensitivity"]["cells"]:
        numbers.add(f"{source}, sensitivity", cell["accuracy"][0], "accuracy", *cell_of(cell))
    add_averages(numbers, source, document)
    for curve in document["curves"]:
        if curve["sizes"] and curve["sizes"][-1]["share"] == 1:
            quantity = ("accuracy", *cell_of(curve)) if curve["relation"] else ("weighted", *side_of(curve))
            numbers.add(f"{source}, curve", curve["sizes"][-1]["accuracy"], *quantity)


JUDGE_KEYS = {"accuracy": "Acc", "accuracy_low": "low", "accuracy_high": "high"}  # values: columns of the judge table


def add_judge(numbers: Numbers, source: str, document) -> None:
    """Add judge-assisted cells and averages, including the end points of curves and cuts."""
    for cell in document["cells"]:
        for key in JUDGE_KEYS:
            numbers.add(source, cell["judge"][key], "judge", key, *cell_of(cell))
    for curve in (curve for curve in document["curves"] if curve["sizes"][-1]["share"] == 1):
        quantity = cell_of(curve) if curve["relation"] else ("weighted", *side_of(curve))
        for key in JUDGE_KEYS:
            numbers.add(f"{source}, curve", curve["sizes"][-1]["judge"][key], "judge", key, *quantity)
    for total in document["totals"]:
        accuracies = [cell["judge"]["accuracy"] for cell in document["cells"] if side_of(cell) == side_of(total)]
        numbers.add(f"{source}, totals", total["judge"]["accuracy"], "judge", "macro", *side_of(total))
        numbers.add(f"{source}, mean of cells", sum(accuracies) / len(accuracies), "judge", "macro", *side_of(total))
        for key in JUDGE_KEYS:
            numbers.add(
                f"{source}, totals", total["judge"][f"weighted_{key}"], "judge", key, "weighted", *side_of(total)
            )
    for cut in (cut for cut in document["cuts"] if cut["cut"] == "all"):
        for key in JUDGE_KEYS:
            numbers.add(f"{source}, cuts", cut["judge"][key], "judge", key, "weighted", *side_of(cut))


def add_judge_comparisons(numbers: Numbers, source: str, document) -> None:
    for compared in document["comparisons"]:
        numbers.add(f"{source}, comparisons", compared["these_low"], "these low", compared["a"], compared["b"])
    for compared in document["judge"]["comparisons"]:
        numbers.add(f"{source}, with judge", compared["people"]["low"], "these low", compared["a"], compared["b"])


def add_judge_files(numbers: Numbers, client, report: Report, sheets: bytes) -> None:
    address = reverse("evaluation:table_file", args=[report.pk, "assisted"])
    header, *rows = csv.reader(io.StringIO(client.get(address).getvalue().decode()))
    start = header.index("with the judge: Acc")
    of_sheet = list(load_workbook(io.BytesIO(sheets), read_only=True)["assisted"].iter_rows(values_only=True))
    for source, row in [*(("CSV of the judge", row) for row in rows), *(("XLSX", row) for row in of_sheet)]:
        if row and row[0] in {"prevent", "cause"}:
            for column, key in enumerate(JUDGE_KEYS, start):
                numbers.add(source, float(row[column]), "judge", key, row[0], row[1].rpartition("/")[2], row[2])


def add_averages(numbers: Numbers, source: str, document) -> None:
    for total in document["totals"]:
        accuracies = [cell["accuracy"] for cell in document["cells"] if side_of(cell) == side_of(total)]
        defined = [accuracy for accuracy in accuracies if accuracy is not None]
        numbers.add(f"{source}, totals", total["macro_accuracy"], "macro", *side_of(total))
        numbers.add(f"{source}, mean of cells", sum(defined) / len(defined), "macro", *side_of(total))
        numbers.add(f"{source}, totals", total["weighted_accuracy"], "weighted", *side_of(total))
        numbers.add(f"{source}, totals", total["weighted_accuracy_low"], "weighted low", *side_of(total))
    for total in document["sensitivity"]["totals"]:
        numbers.add(f"{source}, sensitivity", total["macro_accuracy"][0], "macro", *side_of(total))
    for cut in (cut for cut in document["cuts"] if cut["cut"] == "all"):
        numbers.add(f"{source}, cuts", cut["accuracy"], "weighted", *side_of(cut))
        numbers.add(f"{source}, cuts", cut["low"], "weighted low", *side_of(cut))
    for exclusion in document["conduct"]["exclusions"]:
        for effect in exclusion["effects"]:
            numbers.add(f"{source}, exclusions", effect["without"], "macro", *side_of(effect))


HEADLINE = ("macro_accuracy", "macro_accuracy_low", "macro_accuracy_high", "n")


def add_headline(numbers: Numbers, document, csv_of) -> None:
    """Add the averages of these relations with their intervals. csv_of: returns the text of a table's CSV file."""
    for total in document["totals"]:
        for key in HEADLINE:
            numbers.add("JSON", total[key], "headline", key, *side_of(total))
    for total, estimate in zip(document["totals"], averages(document), strict=True):
        for key, value in zip(HEADLINE, (estimate.value, estimate.low, estimate.high), strict=False):
            numbers.add("forest plot", value, "headline", key, *side_of(total))
    *_, average = csv.reader(io.StringIO(csv_of("relations")))
    assert average[0] == "average"
    for number, total in enumerate(document["totals"]):
        accepted, _, low, high, n = average[1 + 5 * number : 6 + 5 * number]
        for key, value in zip(HEADLINE, (accepted, low, high, n), strict=True):
            numbers.add("CSV of relations", float(value), "headline", key, *side_of(total))
    for row in csv.DictReader(io.StringIO(csv_of("settings"))):
        [total] = [total for total in document["totals"] if side_of(total) == (row["LM"].rstrip("*"), row["setting"])]
        for key, column in zip(HEADLINE, ("Acc", "low", "high", "statements"), strict=True):
            numbers.add("CSV of settings", float(row[column]), "headline", key, *side_of(total))


def assert_printed(document, finding_text: str, *texts: str) -> None:
    """Check that every text shows each cell and average with its interval and n, to the printed digit."""
    for entry in (*document["cells"], *document["totals"]):
        name = "accuracy" if "relation" in entry else "macro_accuracy"
        value, *limits = (entry[f"{name}{end}"] for end in ("", "_low", "_high"))
        for text in texts:
            assert value is None or f"{share(value)} / " in text
            assert value is None or f"({interval(*limits)}, n = {entry['n']:,})" in text
    for total in document["totals"]:
        rate = share_with_interval(*(total[key] for key in HEADLINE[:3]))
        assert lm_and_setting(total) not in finding_text or rate in finding_text


def assert_evidence_page(document, page: str) -> None:
    """Check that the evidence page prints cells and averages like the tables, and the finding of the report."""
    assert finding(document) in unescape(page)
    text = " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())  # without tags
    for cell in document["cells"]:
        limits = interval(cell["accuracy_low"], cell["accuracy_high"]) or DASH
        mark = " †" if cell["incomplete"] else ""
        shares = f"{share(cell['accuracy'])} / {share(cell['rejection'])}{mark}"
        assert f"{shares} {limits}, n = {cell['n']}" in text
    for total in document["totals"]:
        limits = interval(total["macro_accuracy_low"], total["macro_accuracy_high"]) or DASH
        rates = share(total["macro_accuracy"]), f"{total['n']:,}", limits, share(total["macro_rejection"])
        assert f"{total['setting']} {' '.join(rates)}" in text


def add_sheets(numbers: Numbers, content: bytes) -> None:
    header, *rows = load_workbook(io.BytesIO(content), read_only=True)["cells"].iter_rows(values_only=True)
    for row in rows:
        cell = dict(zip(header, row, strict=False))
        for key in CELL_KEYS:
            numbers.add("XLSX", cell[key], key, *cell_of(cell))


def add_csv(numbers: Numbers, content: str) -> None:
    for cell in csv.DictReader(io.StringIO(content)):
        for key in CELL_KEYS:
            numbers.add("CSV", float(cell[key]) if cell[key] else None, key, *cell_of(cell))


def add_progress(numbers: Numbers, source: str, progress) -> None:
    for key, quantity in (("n_tasks", "n_tasks"), ("complete", "n_complete"), ("n_judgments", "n_judgments")):
        numbers.add(source, progress[key], quantity)
    for key in ("percent_agreement", "alpha"):
        numbers.add(source, progress[key], key)


def add_exclusion_previews(numbers: Numbers, round: Round) -> None:
    """Add the preview's values before an exclusion, and compare its predicted values with a report after it."""
    annotator = round.annotators.exclude(status="excluded").order_by("pk").last()
    effect = exclusion_effect(annotator)
    for cell in effect["cells"]:
        before = cell["before"]
        numbers.add("exclusion preview", before["accuracy"], "accuracy", *cell_of(cell))
        numbers.add("exclusion preview", before["n"], "n", *cell_of(cell))
        numbers.add("exclusion preview", before["n_incomplete"], "incomplete", *cell_of(cell))
    for key in ("percent_agreement", "alpha"):
        numbers.add("exclusion preview", effect["agreement"]["before"][key], key)
    exclude_annotator(annotator, "as foretold")
    after = Numbers()
    for cell in effect["cells"]:
        after.add("exclusion preview", cell["after"]["accuracy"], "accuracy", *cell_of(cell))
    for cell in run_report(round)["cells"]:
        after.add("report after", cell["accuracy"], "accuracy", *cell_of(cell))
    after.assert_alike()


def add_overlaps(numbers: Numbers, client, round: Round) -> None:
    """Add overlap rates. Compared with a disjoint harvest, all tuples are found by one harvest only."""
    for job in HarvestJob.objects.filter(strata__round=round).distinct():
        other = factories.make_harvest([("x", "y")], relation=job.relation, setting="top1")
        context = client.get(reverse("evaluation:compare_harvests"), {"a": job.pk, "b": other.pk}).context
        [part] = [part for part in context["parts"] if part["name"] == "only_a"]
        cell = job.relation.name, job.language_model.short_name, job.setting
        for key, value in zip(("accuracy", "accuracy_low", "accuracy_high"), part["judged"].accuracy[:3], strict=True):
            numbers.add("overlap page", value, key, *cell)


def run_report(round: Round) -> Any:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    judge = [option for run in round.judge_runs.all() for option in ("--judge", run.name)]
    call_command("report", "--round", round.name, *judge, stdout=out)
    return json.loads(out.buffer.getvalue())


@pytest.mark.parametrize(
    "make",
    [*KINDS, *(pytest.param(make, marks=pytest.mark.exhaustive) for make in FURTHER_KINDS)],
    ids=lambda make: make.__name__,
)
def test_quantities_are_equal_in_all_sources(researcher_client, researcher, tmp_path, make):
    round = make(researcher, tmp_path)
    numbers = Numbers()

    add_document(numbers, "command", run_report(round))
    options = {"judge": "lm-judge"} if round.judge_runs.exists() else {}
    researcher_client.post(reverse("evaluation:report_new", args=[round.path]), options)
    report = Report.objects.latest("pk")
    files = {
        file_format: researcher_client.get(reverse("evaluation:report_file", args=[report.pk, file_format])).getvalue()
        for file_format in ("json", "csv", "xlsx", "md", "tex", "html")
    }
    add_document(numbers, "JSON", json.loads(files["json"]))
    add_csv(numbers, files["csv"].decode())
    add_sheets(numbers, files["xlsx"])
    if options:
        add_judge(numbers, "JSON", report.document)
        add_judge(numbers, "file", json.loads(files["json"]))
        add_judge_comparisons(numbers, "JSON", report.document)
        add_judge_files(numbers, researcher_client, report, files["xlsx"])
    page = researcher_client.get(round.get_absolute_url())
    add_progress(numbers, "round page", page.context["progress"])
    add_overlaps(numbers, researcher_client, round)
    html = researcher_client.get(reverse("evaluation:report", args=[report.pk])).content.decode()
    add_headline(
        numbers,
        report.document,
        lambda name: researcher_client.get(
            reverse("evaluation:table_file", args=[report.pk, name])
        ).getvalue().decode(),
    )  # fmt: skip
    printed = [files[name].decode() for name in ("md", "tex", "html")]
    assert_printed(report.document, finding(report.document), *printed)
    assert_evidence_page(report.document, write_evidence_page(report.document, gather_rows(report)))
    for text in (html, files["md"].decode(), files["tex"].decode()):
        figures = set(re.findall(r"\d?\.\d\d", text))
        for cell in report.document["cells"]:
            assert cell["accuracy"] is None or share(cell["accuracy"]) in figures
    add_exclusion_previews(numbers, round)

    numbers.assert_alike()
    assert any(len(by_source) > 5 for by_source in numbers.values.values())
