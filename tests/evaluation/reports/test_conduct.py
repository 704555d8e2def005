"""Study log of reports: participants, rules, exclusions and their effect, samples, and prompts."""

import io
import re
from uuid import uuid4

import openpyxl
import pytest
from django.utils import timezone

from annotation.exchange.judgment_import import import_judgments
from annotation.models import GoldDecision, Round
from annotation.quality.adjudication import adjudicate
from annotation.quality.exclusion import exclude_annotator, reinstate_annotator
from annotation.quality.limits import set_limits
from annotation.rounds.services import close_round, open_round
from evaluation.rendering.figures.report_figures import figures_of
from evaluation.reports.document import abridged, report_tables, tables_to_read
from evaluation.reports.files import DOCUMENT_FORMATS as FORMATS
from evaluation.reports.services import create_report
from kgharvest.events.chain import seal_all
from kgharvest.knowledge.curation import curate
from kgharvest.tables.formats import csv_text
from tests.factories import judge, judge_all, make_annotators, make_harvest, make_relation, make_round

pytestmark = pytest.mark.django_db

T, F, U = "true", "false", "unjudgeable"


def conduct_of(round: Round) -> dict:
    return create_report(round).document["conduct"]


def tables_of(round: Round) -> dict:
    return {table.name: table for table in report_tables(create_report(round).document)}


def step(tables: dict, section: str, name: str) -> tuple:
    [row] = [row.values for row in tables["flow"].rows if row.values[:2] == (section, name)]
    return row[2:4]


def test_every_report_format_contains_exclusion(researcher):
    round = make_round(30, name="pilot", by=researcher, batch_size=30)
    *_, guesser = judge_all(round, [T] * 30, [T, F] * 15, [F] * 30)
    exclude_annotator(guesser, "says False to everything", by=researcher)

    document = create_report(round).document

    [exclusion] = document["conduct"]["exclusions"]
    assert (exclusion["annotator"], exclusion["n_judgments"]) == (guesser.code, 30)
    assert (exclusion["reason"], exclusion["by"]) == ("says False to everything", "researcher")
    assert "1 annotator was excluded, with 30 judgments." in " ".join(document["notes"])
    files = {name: FORMATS[name].write(document) for name in ("html", "tex", "md", "json")}
    files["csv"] = "".join(map(csv_text, report_tables(document)))
    sheets = openpyxl.load_workbook(io.BytesIO(FORMATS["xlsx"].bytes_of(document)))
    files["xlsx"] = str([list(sheet.values) for sheet in sheets])
    for name, text in files.items():
        assert "says False to everything" in text, name
        assert guesser.code in text, name
        assert researcher.get_username() not in text, name


@pytest.mark.parametrize("options", [{}, {"third_only_if_split": True}, {"judgments_per_task": 2}])
def test_exclusion_effect_equals_report_difference(options):
    round = make_round(12, batch_size=12, **options)
    first, *_ = judge_all(round, [T, F, T, F] * 3, [T, T, F, F] * 3)
    judge_all(round, [T] * 12)
    before = create_report(round).document["totals"]

    exclude_annotator(first, "guesses")

    document = create_report(round).document
    [effect] = document["conduct"]["exclusions"][0]["effects"]
    assert effect["with"] == pytest.approx(before[0]["macro_accuracy"])
    without = document["totals"][0]["macro_accuracy"]
    assert effect["without"] == (None if without is None else pytest.approx(without))
    assert {"model": effect["model"], "setting": effect["setting"]} == {
        key: before[0][key] for key in ("model", "setting")
    }


def test_exclusion_effect_handles_pending_third_judgments():
    """Half of the statements are split and lack a third judgment when one annotator is excluded."""
    round = make_round(12, batch_size=12, third_only_if_split=True)
    first, _ = judge_all(round, [T, T, F, F] * 3, [T, F, F, T] * 3)
    [before] = create_report(round).document["totals"]

    exclude_annotator(first, "guesses")

    [effect] = conduct_of(round)["exclusions"][0]["effects"]
    assert effect["with"] == pytest.approx(before["macro_accuracy"])


def test_exclusion_effect_counts_replacement_judgments():
    """Labels T, T, and F, of which one T is excluded and replaced by F. All four labels together tie."""
    round = make_round(1)
    first, *_ = judge_all(round, [T], [T], [F])
    exclude_annotator(first, "guesses")
    judge_all(round, [F])

    [exclusion] = conduct_of(round)["exclusions"]

    assert [(effect["with"], effect["without"]) for effect in exclusion["effects"]] == [(0.0, 0.0)]
    assert conduct_of(round)["statements"]["rejected"] == 1


def test_reinstated_annotator_has_no_effect_and_both_dates():
    round = make_round(2)
    first, *_ = judge_all(round, [T, T], [F, T])
    exclude_annotator(first, "a mistake")
    reinstate_annotator(first)

    document = create_report(round).document

    [exclusion] = document["conduct"]["exclusions"]
    assert exclusion["effects"] == []
    assert exclusion["reinstated_at"] >= exclusion["at"]
    assert (exclusion["n_judgments"], exclusion["n_counted_again"]) == (2, 2)
    assert not any("excluded" in note for note in document["notes"])


def test_flow_counts_annotators_and_judgments_at_each_step():
    round = make_round(3, batch_size=3)
    first, _, third = judge_all(round, [T, T, F], [T, F, F], [F, F, F])
    make_annotators(round, 2)  # without judgments
    judge(first, round.tasks.get(position=0), F)  # changed label
    [late] = make_annotators(round, 1)
    late.judgments.create(
        client_uuid=uuid4(), task=round.tasks.first(), label=T, is_counted=False, judged_at=timezone.now()
    )
    exclude_annotator(third, "guesses")

    conduct, tables = conduct_of(round), tables_of(round)

    assert conduct["people"]["n_joined"] == 6
    assert conduct["judgments"] == {
        "n_given": 11, "n_superseded": 1, "n_gold": 0, "n_counted": 6, "n_excluded": 3, "n_late": 1,
        "n_skipped": 0, "n_reports": 0,
    }  # fmt: skip
    assert step(tables, "people", "joined") == (6, None)
    assert step(tables, "people", "judged") == (4, 2)
    assert step(tables, "people", "counted") == (2, 2)
    assert step(tables, "judgments", "current") == (10, 1)
    assert step(tables, "judgments", "in time") == (9, 1)
    assert step(tables, "judgments", "counted") == (6, 3)
    assert step(tables, "statements", "with a verdict") == (0, 3)


def test_flow_covers_harvest_to_verdicts(installation_owner):
    """Two harvests of ten tuples share one drawn tuple. One tuple is hidden, and a cut keeps eight tuples."""
    jobs = []
    for setting, names in (("human", "abcdefghij"), ("multi", "jklmnopqrs")):
        relation = jobs[0].relation if jobs else make_relation("r")
        model = {"language_model": jobs[0].language_model} if jobs else {}
        jobs.append(make_harvest([(name, "x") for name in names], relation=relation, setting=setting, **model))
    curate(jobs[0].tuples.get(rank=2).knowledge_tuple, "hide", "rubbish", by=installation_owner)
    cells = [{"job": jobs[0].pk, "n": 9}, {"job": jobs[1].pk, "n": None, "cut": "top:8"}]
    round = open_round({"name": "two", "cells": cells, "seed": 7})
    judge_all(round, *[[T] * 16] * 3)

    conduct, tables = conduct_of(round), tables_of(round)

    human, multi = conduct["cells"]
    sizes = ("harvested", "kept", "left_out", "hidden", "population", "drawn", "cut")
    assert [human[key] for key in sizes] == [10, 10, 1, 1, 9, 9, None]
    assert [multi[key] for key in sizes] == [10, 8, 0, 0, 8, 8, "top:8"]
    assert step(tables, "tuples", "harvested") == (20, None)
    assert step(tables, "tuples", "within the cuts") == (18, 2)
    assert step(tables, "tuples", "in the population") == (17, 1)
    assert step(tables, "tuples", "drawn") == (17, None)
    assert step(tables, "statements", "to judge") == (16, 1)
    assert step(tables, "statements", "with a verdict") == (16, None)
    assert tables["flow"].notes[0] == (
        "Of 20 harvested tuples, 18 were within the cuts and 17 remained after curation; all were drawn (seed 7). "
        "3 people joined, 3 judged, and 48 judgments by 3 of them count. Of 16 statements, 16 have a verdict."
    )
    assert [row.values[3:] for row in tables["sampling"].rows] == [(None, 10, 10, 1, 9, 9), ("top:8", 10, 8, 0, 8, 8)]
    assert "seed 7." in tables["sampling"].notes[0]


@pytest.mark.parametrize("hidden", [1, 5, 6])
def test_hidden_tuples_within_cut_are_counted_at_any_rank(hidden, installation_owner):
    """The hidden tuple is first, next to last, or last within the cut."""
    job = make_harvest([(f"head {n}", "tail") for n in range(1, 9)])
    curate(job.tuples.get(rank=hidden).knowledge_tuple, "hide", "rubbish", by=installation_owner)
    curate(job.tuples.get(rank=8).knowledge_tuple, "hide", "rubbish", by=installation_owner)  # outside the cut
    cell = {"job": job.pk, "n": None, "cut": "top:6", "strata": [1, 3]}
    round = open_round({"name": "cut", "cells": [cell]})

    [cell] = conduct_of(round)["cells"]

    assert [cell[key] for key in ("harvested", "kept", "left_out", "hidden", "population")] == [8, 6, 1, 1, 5]


@pytest.mark.parametrize(("include_sensitive", "expected"), [(False, [4, 2, 1, 1, 2]), (True, [4, 1, 1, 0, 3])])
def test_sensitive_tuples_are_counted_if_round_excludes_them(include_sensitive, expected, installation_owner):
    job = make_harvest([(f"head {n}", "tail") for n in range(4)])
    curate(job.tuples.get(rank=2).knowledge_tuple, "hide", "rubbish", by=installation_owner)
    job.relation.knowledge_tuples.filter(harvested_tuples__rank__in=[2, 3]).update(is_sensitive=True)
    cells = [{"job": job.pk, "n": None}]
    round = open_round({"name": "words", "cells": cells, "include_sensitive": include_sensitive})

    [cell] = conduct_of(round)["cells"]

    assert [cell[key] for key in ("kept", "left_out", "hidden", "sensitive", "population")] == expected


def test_study_log_contains_rules_gold_training_and_limits():
    relation = make_relation("r", seed_tuples=[[f"s{n}", f"t{n}"] for n in range(8)])
    for n in range(8):
        GoldDecision.objects.create(
            relation=relation, entities=[f"s{n}", "wrong"], key=f"s{n}\x1fwrong", seed=[f"s{n}", f"t{n}"], slot=1,
            is_confirmed=True,
        )  # fmt: skip
    job = make_harvest([(f"a{n}", "b") for n in range(6)], relation=relation)
    spec = {"gold_share": 0.25, "training_size": 2, "max_per_annotator": 100, "limits": {"gold_accuracy": 0.7}}
    round = open_round({"name": "full", "cells": [{"job": job.pk, "n": 6}], **spec})

    conduct, tables = conduct_of(round), tables_of(round)

    assert (conduct["gold"]["n_true"], conduct["gold"]["n_false"]) == (1, 1)
    assert conduct["limits"]["gold_accuracy"] == 0.7
    assert conduct["training"]["n_statements"] == 2
    design = dict(row.values for row in tables["design"].rows)
    assert design["gold"].startswith("25 % of an annotator's statements: 1 true (seed tuples), 1 false (corrupted seed")
    assert design["limits that pause an annotator"] == "gold accuracy below 0.7 after 10 gold statements"
    assert design["maximum statements per person"] == "100"
    assert [line["kind"] for line in conduct["timeline"]] == ["opened", "limits_set"]


def test_timeline_is_chronological_and_without_names(researcher):
    round = make_round(2, by=researcher)
    annotators = judge_all(round, [T, T], [T, F], [F, F])
    set_limits(round, by=researcher, median_seconds=2.0)
    exclude_annotator(annotators[0], "too fast", by=researcher)
    adjudicate(round.tasks.get(position=0), T, annotators[0].judgments.first().pk, by=researcher)
    close_round(round, by=researcher)
    round.refresh_from_db()

    conduct = conduct_of(round)

    assert [line["kind"] for line in conduct["timeline"]] == ["opened", "limits_set", "excluded", "closed"]
    assert {line["by"] for line in conduct["timeline"]} == {"researcher"}
    dates = conduct["dates"]
    order = [dates[key] for key in ("opened_at", "first_judgment_at", "last_judgment_at", "closed_at")]
    assert order == sorted(order)
    assert conduct["adjudications"] == {"n_statements": 1, "n_superseded": 0, "n_blind": 1, "n_experts": 1}


def test_import_entry_contains_file_rows_and_policy(tmp_path):
    path = tmp_path / "said.csv"
    rows = ['r,"[""a"", ""b""]",x,true', 'r,"[""a"", ""b""]",x,false', 'r,"[""a"", ""b""]",y,true']
    path.write_text("\n".join(["relation,entities,annotator,label", *rows]) + "\n")
    import_judgments(path, "imported", create=True, duplicates="last")
    round = Round.objects.get(name="imported")

    conduct, tables = conduct_of(round), tables_of(round)

    [imported] = conduct["imports"]
    assert {key: imported[key] for key in imported if key != "at"} == {
        "file": "said.csv", "n_rows": 3, "n_judgments": 2, "duplicates": "last", "n_duplicates": 1
    }  # fmt: skip
    assert conduct["cells"][0]["population"] is None
    assert ("tuples", "harvested") not in [row.values[:2] for row in tables["flow"].rows]
    assert step(tables, "statements", "with a verdict") == (1, None)


def test_harvest_entry_contains_lm_details_and_weighted_prompts():
    job = make_harvest([("a", "b")], payload={"dtype": "bfloat16", "device": "cuda"}, summary={"revision": "abc123"})
    for weight, text in ((0.7, "<ENT0> has <ENT1>"), (0.3, "<ENT1> of <ENT0>")):
        prompt = job.relation.known_prompts.create(text=text, origin="initial")
        job.job_prompts.create(prompt=prompt, weight=weight)
    round = open_round({"name": "r", "cells": [{"job": job.pk, "n": 1}]})

    [cell], tables = conduct_of(round)["cells"], tables_of(round)

    assert [cell[key] for key in ("revision", "dtype", "device")] == ["abc123", "bfloat16", "cuda"]
    assert cell["prompts"] == [
        {"text": "<ENT0> has <ENT1>", "origin": "initial", "weight": 0.7},
        {"text": "<ENT1> of <ENT0>", "origin": "initial", "weight": 0.3},
    ]
    assert [row.values[3:] for row in tables["prompts"].rows] == [(0.7, "<ENT0> has <ENT1>"), (0.3, "<ENT1> of <ENT0>")]
    [harvest] = tables["harvests"].rows
    assert harvest.values[2:7] == ("abc123", "bfloat16", "cuda", 1, 2)


def test_reports_without_study_log_still_open(researcher_client, researcher):
    report = create_report(make_round(1, by=researcher), by=researcher)
    report.document = {key: value for key, value in report.document.items() if key != "conduct"}
    report.save()

    assert researcher_client.get(f"/reports/{report.pk}/").status_code == 200
    names = [table.name for table in report_tables(report.document)]
    assert not {"flow", "exclusions", "design", "timeline", "sampling"} & set(names)
    for file_format in FORMATS.values():
        assert file_format.bytes_of(report.document)


def test_report_page_shows_study_log(researcher_client, researcher):
    round = make_round(2, by=researcher)
    [first, *_] = judge_all(round, [T, T], [T, F])
    exclude_annotator(first, "guesses <b>wildly</b>", by=researcher)
    report = create_report(round, by=researcher)

    page = researcher_client.get(f"/reports/{report.pk}/?all").text

    assert 'id="conduct"' in page
    assert "guesses &lt;b&gt;wildly&lt;/b&gt;" in page
    assert tables_to_read(abridged(report.document)) == tables_to_read(report.document)


def test_flow_figure_shows_excluded_judgments():
    round = make_round(5)
    first, *_ = judge_all(round, [T] * 5, [T] * 5, [F] * 5)
    exclude_annotator(first, "guesses")
    document = create_report(round).document

    [flow] = [figure for figure in figures_of(document) if figure.name == "flow"]
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", flow.render(document).decode())

    assert {"judgments given", "15", "judgments counted", "10", "− 5 of excluded annotators"} <= set(texts)
    assert "judgments current" not in texts  # steps without exclusions are in the table only
    assert flow.alt(document).endswith("from 15 judgments given to 10 judgments counted.")
    assert flow.render(document, "pdf") == flow.render(document, "pdf")


def test_study_log_query_count_is_constant(django_assert_max_num_queries):
    jobs = [make_harvest([("a", "b")]) for _ in range(6)]
    round = open_round({"name": "pilot", "cells": [{"job": job.pk, "n": 1} for job in jobs]})
    for annotator in judge_all(round, [T] * 6, [F] * 6, [T] * 6)[:2]:
        exclude_annotator(annotator, "guesses")
    seal_all()

    with django_assert_max_num_queries(58):
        create_report(round)
