import csv
import io
import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from annotation.exchange.judgment_export import judgment_table
from annotation.judging.assignment import next_batch
from annotation.models import Round
from kgharvest.tables.formats import parquet_pieces
from tests.factories import (
    judge,
    judge_all,
    make_annotators,
    make_harvest,
    make_language_model,
    make_project,
    make_relation,
    make_researcher,
    make_round,
)

pytestmark = pytest.mark.django_db


def output_of(*arguments) -> str:
    out = io.StringIO()
    call_command(*map(str, arguments), stdout=out)
    return out.getvalue()


def spec_file(tmp_path, content) -> str:
    path = tmp_path / "spec.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_open_round_prints_number_and_join_link(tmp_path):
    job = make_harvest([("dog", "swim"), ("cat", "climb")])

    printed_text = output_of("open_round", spec_file(tmp_path, {"name": "pilot", "cells": [{"job": job.pk, "n": 1}]}))

    round = Round.objects.get()
    assert f"round {round.pk}: pilot, 1 statements" in printed_text
    assert f"http://127.0.0.1:8000/join/{round.join_token}/" in printed_text


def test_open_round_accepts_the_creator(tmp_path):
    job, ada = make_harvest([("dog", "swim")]), make_researcher("ada")
    spec = {"name": "pilot", "cells": [{"job": job.pk, "n": 1}]}

    output_of("open_round", spec_file(tmp_path, spec), "--by", "ada")

    assert Round.objects.get().created_by == ada


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"name": ', r"spec\.json, line 1, column 10"),
        ({"name": "pilot"}, "cells is missing"),
        ({"name": "pilot", "cells": [{"job": 5, "n": 1}]}, r"No finished harvest for cells\[0\]"),
    ],
)
def test_open_round_reports_invalid_specs(tmp_path, content, message):
    with pytest.raises(CommandError, match=message):
        output_of("open_round", spec_file(tmp_path, content))


def test_open_round_plan_stores_nothing(tmp_path):
    job = make_harvest([(f"head {n}", "tail") for n in range(40)])
    spec = {"name": "pilot", "cells": [{"job": job.pk, "n": 20}], "judgments_per_task": 2}

    printed_text = output_of("open_round", spec_file(tmp_path, spec), "--plan")

    assert "statements: 20 (20 drawn, 0 of them shared between cells)" in printed_text
    assert "judgments: 40" in printed_text
    assert not Round.objects.exists()


def test_plan_applies_holm_minimum_relations_and_population_limit(tmp_path):
    """Plan three settings of two relations with four of five tuples each: three comparisons of two relations."""
    lm, jobs = make_language_model("lm"), []
    for name in "pq":
        relation = make_relation(name)
        for setting in ("human", "top1", "multi"):
            tuples = [(f"{setting} {number}", name) for number in range(5)]
            jobs.append(make_harvest(tuples, relation=relation, setting=setting, language_model=lm))
    spec = {"name": "pilot", "cells": [{"job": job.pk, "n": 4} for job in jobs]}

    printed_text = output_of("open_round", spec_file(tmp_path, spec), "--plan")

    assert "4 of 5, +- " in printed_text
    assert "(to halve the width: 5)" in printed_text  # not 16, as only five tuples exist
    # Normal: (z(1 - .025 / 3) + z(.8)) sqrt(2 * 2 * .25 * (1 / 4 - 1 / 5)) / 2 = (2.394 + .842) * .1118.
    assert "lm: human and multi: 36.2 points, over 2 relations, by statements" in printed_text
    assert printed_text.count(", by statements") == 3
    assert "must be below .05 / 3. A test over relations requires at least 7 relations." in printed_text


def test_open_round_with_draft_option_creates_draft(tmp_path):
    spec = {"name": "pilot", "cells": [{"job": 1, "n": 20}]}

    assert "/projects/default/rounds/pilot/" in output_of("open_round", spec_file(tmp_path, spec), "--draft")
    assert Round.objects.get().status == Round.Status.DRAFT


def test_open_round_on_empty_harvest_reports_error(tmp_path):
    job = make_harvest([])

    with pytest.raises(CommandError, match=r"cells\[0\] .* has no tuples in its harvest"):
        output_of("open_round", spec_file(tmp_path, {"name": "pilot", "cells": [{"job": job.pk, "n": 5}]}))


def test_export_has_one_row_per_judgment_and_no_names():
    round = make_round(2, name="pilot")
    annotators = judge_all(round, ["true", "false"], ["true", "unjudgeable"])

    rows = list(csv.DictReader(io.StringIO(output_of("export_judgments", "--round", "pilot"))))

    assert len(rows) == 4
    assert {row["annotator"] for row in rows} == {annotator.code for annotator in annotators}
    assert [row["label"] for row in rows[:2]] == ["True", "True"]
    assert json.loads(rows[0]["entities"])
    assert not any(annotator.user.username in str(rows) for annotator in annotators)


def test_export_writes_json_lines():
    judge_all(make_round(1, name="pilot"), ["true"])

    [line] = output_of("export_judgments", "--round", "pilot", "--format", "jsonl").splitlines()

    assert json.loads(line)["label"] == "True"


def test_export_writes_parquet(tmp_path):
    round = make_round([("=1+1", "@x")], name="pilot")
    [annotator] = make_annotators(round, 1)
    [task] = next_batch(annotator, timezone.now())
    judge(annotator, task, "unjudgeable", comment="-1?", seconds=2.5)
    path = tmp_path / "pilot.parquet"

    output_of("export_judgments", "--round", "pilot", "--format", "parquet", "--output", path)

    [row] = pq.read_table(path).to_pylist()
    # No formula escaping in Parquet.
    assert (row["entities"], row["comment"], row["seconds"]) == (["=1+1", "@x"], "-1?", 2.5)
    assert (row["label"], row["annotator"], row["is_gold"]) == ("Unjudgeable", annotator.code, False)
    assert row["judged_at"].tzinfo is not None


def test_large_parquet_export_has_several_row_groups():
    table = judgment_table(judge_all(make_round(1), ["true"])[0].round)

    pieces = list(parquet_pieces(replace(table, rows=list(table.rows) * 45_000)))

    assert pq.ParquetFile(io.BytesIO(b"".join(pieces))).metadata.num_row_groups == len(pieces) - 1 == 3


def test_export_can_be_imported(tmp_path):
    judge_all(make_round([("dog", "swim"), ("cat", "climb")], name="pilot"), ["true", "false"], ["true", "unjudgeable"])
    path = tmp_path / "pilot.csv"
    output_of("export_judgments", "--round", "pilot", "--output", path)

    printed_text = output_of("import_judgments", path, "--round", "copy", "--create")

    assert "copy, 4 judgments added" in printed_text
    labels = [sorted(row["label"] for row in judgment_table(round).records()) for round in Round.objects.order_by("pk")]
    assert labels[0] == labels[1]


def test_import_is_visible_to_members_of_its_project(tmp_path):
    ada = make_researcher("ada", make_project("Animals"))
    judge_all(make_round([("dog", "swim")], name="pilot"), ["true"])
    path = tmp_path / "pilot.csv"
    output_of("export_judgments", "--round", "pilot", "--output", path)

    with pytest.raises(CommandError, match="animals, default"):
        output_of("import_judgments", path, "--round", "copy", "--create")
    output_of("import_judgments", path, "--round", "copy", "--create", "--project", "animals")
    output_of("import_judgments", path, "--round", "animals/second", "--create")

    assert set(Round.objects.visible_to(ada).values_list("name", flat=True)) == {"copy", "second"}


def test_import_into_unknown_project_is_rejected(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text('relation,entities,annotator,label\ncan,"[""dog"", ""swim""]",ann,True\n')

    with pytest.raises(CommandError, match="'Zoo'"):
        output_of("import_judgments", path, "--round", "copy", "--create", "--project", "Zoo")


def test_exported_csv_cells_are_escaped_against_formulas():
    round = make_round([("=1+1", "@x")], name="pilot")
    judge_all(round, ["true"])

    [row] = csv.DictReader(io.StringIO(output_of("export_judgments", "--round", "pilot")))

    assert row["statement"].startswith("'=1+1")


def test_empty_round_exports_the_header():
    make_round(1, name="pilot")

    assert output_of("export_judgments", "--round", "pilot").startswith("source,relation,entities")


def test_export_of_unknown_round_lists_available_rounds():
    make_round(1, name="pilot")

    with pytest.raises(CommandError, match="no round 'pilto'; choose one of default/pilot"):
        output_of("export_judgments", "--round", "pilto")
