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

    printed = output_of("open_round", spec_file(tmp_path, {"name": "pilot", "cells": [{"job": job.pk, "n": 1}]}))

    round = Round.objects.get()
    assert f"round {round.pk}: pilot, 1 statements" in printed
    assert f"http://127.0.0.1:8000/join/{round.join_token}/" in printed


def test_open_round_can_name_the_owner(tmp_path):
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
def test_open_round_refuses_in_one_sentence(tmp_path, content, message):
    with pytest.raises(CommandError, match=message):
        output_of("open_round", spec_file(tmp_path, content))


def test_open_round_plans_without_storing(tmp_path):
    job = make_harvest([(f"head {n}", "tail") for n in range(40)])
    spec = {"name": "pilot", "cells": [{"job": job.pk, "n": 20}], "judgments_per_task": 2}

    printed = output_of("open_round", spec_file(tmp_path, spec), "--plan")

    assert "statements: 20 (20 drawn, 0 of them shared between cells)" in printed
    assert "judgments: 40" in printed
    assert not Round.objects.exists()


def test_a_plan_counts_holm_the_fewest_relations_and_the_tuples_there_are(tmp_path):
    """Three settings of two relations, four of five tuples each: three comparisons of two relations."""
    lm, jobs = make_language_model("lm"), []
    for name in "pq":
        relation = make_relation(name)
        for setting in ("human", "top1", "multi"):
            tuples = [(f"{setting} {number}", name) for number in range(5)]
            jobs.append(make_harvest(tuples, relation=relation, setting=setting, language_model=lm))
    spec = {"name": "pilot", "cells": [{"job": job.pk, "n": 4} for job in jobs]}

    printed = output_of("open_round", spec_file(tmp_path, spec), "--plan")

    assert "4 of 5, +- " in printed
    assert "(to halve the width: 5)" in printed  # and not 16
    # Normal: (z(1 - .025 / 3) + z(.8)) sqrt(2 * 2 * .25 * (1 / 4 - 1 / 5)) / 2 = (2.394 + .842) * .1118.
    assert "lm: human and multi: 36.2 points, over 2 relations, by statements" in printed
    assert printed.count(", by statements") == 3
    assert "must be below .05 / 3. A test over relations requires at least 7 relations." in printed


def test_open_round_keeps_a_draft(tmp_path):
    spec = {"name": "pilot", "cells": [{"job": 1, "n": 20}]}

    assert "/projects/default/rounds/pilot/" in output_of("open_round", spec_file(tmp_path, spec), "--draft")
    assert Round.objects.get().status == Round.Status.DRAFT


def test_open_round_on_an_empty_harvest_says_so(tmp_path):
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


def test_export_as_json_lines():
    judge_all(make_round(1, name="pilot"), ["true"])

    [line] = output_of("export_judgments", "--round", "pilot", "--format", "jsonl").splitlines()

    assert json.loads(line)["label"] == "True"


def test_export_as_parquet(tmp_path):
    round = make_round([("=1+1", "@x")], name="pilot")
    [annotator] = make_annotators(round, 1)
    [task] = next_batch(annotator, timezone.now())
    judge(annotator, task, "unjudgeable", comment="-1?", seconds=2.5)
    path = tmp_path / "pilot.parquet"

    output_of("export_judgments", "--round", "pilot", "--format", "parquet", "--output", path)

    [row] = pq.read_table(path).to_pylist()
    assert (row["entities"], row["comment"], row["seconds"]) == (["=1+1", "@x"], "-1?", 2.5)  # texts as they are
    assert (row["label"], row["annotator"], row["is_gold"]) == ("Unjudgeable", annotator.code, False)
    assert row["judged_at"].tzinfo is not None


def test_parquet_of_many_rows_comes_in_groups():
    table = judgment_table(judge_all(make_round(1), ["true"])[0].round)

    pieces = list(parquet_pieces(replace(table, rows=list(table.rows) * 45_000)))

    assert pq.ParquetFile(io.BytesIO(b"".join(pieces))).metadata.num_row_groups == len(pieces) - 1 == 3


def test_an_export_can_be_imported(tmp_path):
    judge_all(make_round([("dog", "swim"), ("cat", "climb")], name="pilot"), ["true", "false"], ["true", "unjudgeable"])
    path = tmp_path / "pilot.csv"
    output_of("export_judgments", "--round", "pilot", "--output", path)

    printed = output_of("import_judgments", path, "--round", "copy", "--create")

    assert "copy, 4 judgments added" in printed
    labels = [sorted(row["label"] for row in judgment_table(round).records()) for round in Round.objects.order_by("pk")]
    assert labels[0] == labels[1]


def test_members_of_its_project_see_an_import(tmp_path):
    ada = make_researcher("ada", make_project("Animals"))
    judge_all(make_round([("dog", "swim")], name="pilot"), ["true"])
    path = tmp_path / "pilot.csv"
    output_of("export_judgments", "--round", "pilot", "--output", path)

    with pytest.raises(CommandError, match="animals, default"):
        output_of("import_judgments", path, "--round", "copy", "--create")
    output_of("import_judgments", path, "--round", "copy", "--create", "--project", "animals")
    output_of("import_judgments", path, "--round", "animals/second", "--create")

    assert set(Round.objects.visible_to(ada).values_list("name", flat=True)) == {"copy", "second"}


def test_an_import_into_a_project_that_is_not_there_is_refused(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text('relation,entities,annotator,label\ncan,"[""dog"", ""swim""]",ann,True\n')

    with pytest.raises(CommandError, match="'Zoo'"):
        output_of("import_judgments", path, "--round", "copy", "--create", "--project", "Zoo")


def test_no_exported_cell_starts_a_formula():
    round = make_round([("=1+1", "@x")], name="pilot")
    judge_all(round, ["true"])

    [row] = csv.DictReader(io.StringIO(output_of("export_judgments", "--round", "pilot")))

    assert row["statement"].startswith("'=1+1")


def test_an_empty_round_exports_its_heading():
    make_round(1, name="pilot")

    assert output_of("export_judgments", "--round", "pilot").startswith("source,relation,entities")


def test_export_of_an_unknown_round_names_those_there_are():
    make_round(1, name="pilot")

    with pytest.raises(CommandError, match="no round 'pilto'; choose one of default/pilot"):
        output_of("export_judgments", "--round", "pilto")
