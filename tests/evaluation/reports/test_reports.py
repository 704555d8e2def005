"""Reports from judgments in the database, checked against hand-calculated numbers."""

import json
import re
from contextlib import nullcontext
from uuid import uuid4

import pytest
from django.utils import timezone

from annotation.models import Judgment
from annotation.quality.adjudication import adjudicate
from annotation.rounds.services import open_round
from evaluation.evidence.rows import gather_evidence
from evaluation.reports import services
from evaluation.reports.files import DOCUMENT_FORMATS as FORMATS
from evaluation.reports.services import create_report
from kgharvest.events.chain import seal_all
from tests.factories import (
    judge,
    judge_all,
    make_harvest,
    make_language_model,
    make_relation,
    make_relation_set,
    make_round,
)

pytestmark = pytest.mark.django_db

T, F, U = "true", "false", "unjudgeable"


def document_of(round) -> dict:
    return create_report(round).document


def verdicts(cell: dict) -> tuple[int, int, int, int]:
    return cell["accepted"], cell["rejected"], cell["undecided"], cell["incomplete"]


def test_report_counts_verdicts_and_judgments():
    round = make_round(4)
    judge_all(round, [T, F, T, U], [T, F, F, U], [T, T, U, F])

    document = document_of(round)

    assert (document["n_tasks"], document["n_complete"], document["n_judgments"]) == (4, 4, 12)
    [cell] = document["cells"]
    assert verdicts(cell) == (1, 1, 2, 0)
    assert (cell["n"], cell["accuracy"], cell["rejection"]) == (4, 0.25, 0.25)


def test_document_has_documented_keys():
    round = make_round(1)
    judge_all(round, [T], [T], [F])

    document = document_of(round)

    alpha_keys = {"value", "low", "high", "n_units", "reason", "annotators"}
    cell_keys = {"n", "accepted", "rejected", "undecided", "accuracy", "accuracy_low", "accuracy_high", "rejection"}
    assert document.keys() >= {"round", "n_tasks", "n_complete", "n_judgments", "percent_agreement", "comparisons"}
    assert document["alpha"].keys() == document["alpha_without_unjudgeable"].keys() == alpha_keys
    assert document["cells"][0].keys() >= cell_keys | {"relation", "model", "setting"}
    assert document["totals"][0].keys() >= cell_keys | {
        "model", "setting", "macro_accuracy", "macro_rejection", "n_relations"
    }  # fmt: skip


def test_last_adjudication_affects_only_adjudicated_rule(researcher):
    round = make_round(2)
    judge_all(round, [T, T], [F, T], [U, T])
    for label in (F, T):
        adjudicate(round.tasks.first(), label, uuid4(), by=researcher)

    document = document_of(round)

    assert verdicts(document["cells"][0]) == (1, 0, 1, 0)
    [rule] = [rule for rule in document["sensitivity"]["rules"] if rule["rule"] == "adjudicated"]
    assert (rule["accepted"], rule["rejected"], rule["undecided"]) == (2, 0, 0)
    assert document["n_adjudicated"] == 1


def test_third_judgment_is_unaffected_by_later_changes():
    round = make_round(1, third_only_if_split=True)
    _, second, third = judge_all(round, [T], [F], [T])
    task = round.tasks.get()

    judge(second, task, U)

    evidence = gather_evidence(round)
    assert evidence.annotators[evidence.third[0]] == third.code
    assert evidence.first_two.counts.tolist() == [[1, 0, 1]]


def test_report_files_contain_no_names():
    round = make_round(3, gold_share=0)
    annotators = judge_all(round, [T, F, T], [T, T, F], [F, F, T])
    names = [annotator.user.username for annotator in annotators if annotator.user]
    document = document_of(round)

    assert len(names) == 3
    assert [annotator["annotator"] for annotator in document["sensitivity"]["left_out"]] == sorted(
        annotator.code for annotator in annotators
    )
    for file_format in ("json", "csv", "md", "tex", "html"):
        assert not [name for name in names if name in FORMATS[file_format].write(document)]


def test_cell_uses_only_its_own_draws():
    relation = make_relation()
    human = make_harvest([("dog", "swim"), ("cat", "climb")], relation=relation, setting="human")
    multi = make_harvest([("dog", "swim")], relation=relation, language_model=human.language_model, setting="multi")
    round = open_round({"name": "pilot", "cells": [{"job": job.pk, "n": None} for job in (human, multi)]})
    labels = {task.position: T if task.entities[0] == "dog" else F for task in round.tasks.all()}
    judge_all(round, *[[labels[0], labels[1]]] * 3)

    document = document_of(round)

    assert document["n_tasks"] == 2
    accuracies = {cell["setting"]: (cell["n"], cell["accuracy"]) for cell in document["cells"]}
    assert accuracies == {"human": (2, 0.5), "multi": (1, 1.0)}


def test_totals_pool_statements_and_average_relations():
    language_model = make_language_model("lm")
    jobs = [
        make_harvest([(f"a{n}", "b") for n in range(size)], language_model=language_model, relation=make_relation(name))
        for name, size in (("small", 1), ("large", 3))
    ]
    round = open_round({"name": "pilot", "cells": [{"job": job.pk, "n": None} for job in jobs]})
    small = round.tasks.get(knowledge_tuple__relation__name="small").position
    labels = [T if position == small else F for position in range(4)]
    judge_all(round, labels, labels, labels)

    [total] = document_of(round)["totals"]

    assert (total["n"], total["accuracy"]) == (4, 0.25)
    assert (total["macro_accuracy"], total["macro_rejection"], total["n_relations"]) == (0.5, 0.5, 2)


def test_relations_with_equal_names_stay_separate():
    language_model = make_language_model("lm")
    jobs = [
        make_harvest([("a", "b")], language_model=language_model, relation=make_relation("same", relation_set=a_set))
        for a_set in (make_relation_set("one"), make_relation_set("two"))
    ]
    round = open_round({"name": "pilot", "cells": [{"job": job.pk, "n": None} for job in jobs]})

    assert [cell["relation"] for cell in document_of(round)["cells"]] == ["one/same", "two/same"]


def test_incomplete_undecided_statements_have_no_accuracy():
    round = make_round(2)
    judge_all(round, [T, T])

    document = document_of(round)

    [cell] = document["cells"]
    assert (cell["n"], cell["incomplete"], cell["accuracy"]) == (0, 2, None)
    assert any("2 of 2 statements are incomplete." in note for note in document["notes"])


def test_incomplete_statements_with_certain_verdict_count():
    round = make_round(2)
    judge_all(round, [T, F], [T, F])

    [cell] = document_of(round)["cells"]

    assert (cell["n"], cell["incomplete"], cell["accuracy"]) == (0, 2, 0.5)


def test_alpha_is_computed_with_and_without_unjudgeable():
    round = make_round(3, judgments_per_task=2)
    judge_all(round, [T, F, T], [T, F, U])

    document = document_of(round)

    # With Unjudgeable: n = 6, o_disagree = 2, n_c = 3, 2, 1: 1 - 5 * 2 / (36 - 14). Without: no disagreement.
    assert document["alpha"]["value"] == pytest.approx(1 - 10 / 22)
    assert document["alpha_without_unjudgeable"]["value"] == pytest.approx(1.0)
    assert document["alpha_without_unjudgeable"]["n_units"] == 2
    assert document["percent_agreement"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("k", "judgments", "alpha_reason"),
    [
        (3, [], "No statement has two judgments"),
        (3, [[T, F]], "No statement has two judgments"),
        (1, [[T, F]], "No statement has two judgments"),
        (3, [[T, T], [T, T], [T, T]], "Agreement is undefined because all judgments are equal"),
        (2, [[U, U], [U, U]], "Agreement is undefined because all judgments are equal"),
    ],
    ids=["nothing judged", "one annotator", "k = 1", "unanimous", "all Unjudgeable"],
)
def test_degenerate_round_has_reason_for_undefined_alpha(k, judgments, alpha_reason):
    round = make_round(2, judgments_per_task=k)
    judge_all(round, *judgments)

    alpha = document_of(round)["alpha"]

    assert alpha["value"] is None
    assert alpha["reason"].startswith(alpha_reason)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_degenerate_rounds_can_be_written_in_every_format(k):
    round = make_round(2, judgments_per_task=k)
    judge_all(round, *[[U, T]] * (k - 1))

    document = document_of(round)

    assert all(file_format.write(document) for file_format in FORMATS.values())
    assert "NaN" not in json.dumps(document)


def test_three_different_labels_are_undecided():
    round = make_round(1)
    judge_all(round, [T], [F], [U])

    [cell] = document_of(round)["cells"]

    assert (cell["undecided"], cell["accuracy"], cell["rejection"]) == (1, 0, 0)


def test_annotator_entry_contains_code_and_label_counts():
    round = make_round(3)
    [annotator] = judge_all(round, [T, T, U])

    [entry] = document_of(round)["annotators"]
    assert entry.items() >= {
        "annotator": annotator.code, "n_judgments": 3, "true": 2, "false": 0, "unjudgeable": 1
    }.items()  # fmt: skip
    assert (entry["gold"]["n"], entry["dawid_skene"]) == (0, None)


def test_gold_is_reported_per_annotator_and_excluded_from_counts():
    round = make_round(2)
    annotator, _ = judge_all(round, [T, T], [F, T])
    gold = round.tasks.create(
        knowledge_tuple=round.tasks.first().knowledge_tuple, statement="gold", entities=[], spans=[],
        is_gold=True, gold_label="false", position=99, n_wanted=0,
    )  # fmt: skip
    Judgment.objects.create(
        client_uuid=uuid4(), task=gold, annotator=annotator, label=F, is_counted=False, judged_at=timezone.now()
    )

    document = document_of(round)

    gold_counts = {
        annotator["annotator"]: (annotator["gold"]["correct"], annotator["gold"]["n"])
        for annotator in document["annotators"]
    }
    assert gold_counts[annotator.code] == (1, 1)
    assert sum(n for _, n in gold_counts.values()) == 1
    assert (document["n_tasks"], document["n_judgments"]) == (2, 4)


def test_annotator_pairs_are_compared_on_shared_statements():
    round = make_round(3)
    first, second, third = judge_all(round, [T, T, F], [T, F, F], [F, F, F])
    judge(third, round.tasks.get(position=2), U)  # replaces the previous answer

    pairs = document_of(round)["annotator_pairs"]

    agreement = {frozenset((pair["a"], pair["b"])): (pair["n_shared"], pair["agreement"]) for pair in pairs}
    assert agreement == {
        frozenset((first.code, second.code)): (3, pytest.approx(2 / 3)),
        frozenset((first.code, third.code)): (3, 0),
        frozenset((second.code, third.code)): (3, pytest.approx(1 / 3)),
    }


def test_annotators_without_shared_statements_form_no_pair():
    round = make_round(2, judgments_per_task=1, batch_size=1)
    judge_all(round, [T, T], [T, T])

    assert document_of(round)["annotator_pairs"] == []


def test_fleiss_kappa_requires_complete_round():
    round = make_round(2, judgments_per_task=2)
    judge_all(round, [T, F])
    assert document_of(round)["fleiss_kappa"]["value"] is None

    judge_all(round, [T, F])

    assert document_of(round)["fleiss_kappa"] == {"value": 1.0, "reason": None}


def test_simulated_round_has_note():
    assert "simulated, not made by people" in document_of(make_round(1, source="simulated"))["notes"][0]


def test_demonstrators_have_note():
    language_model = make_language_model("embedded", is_demonstrator=True)
    job = make_harvest([("a", "b")], language_model=language_model)
    round = open_round({"name": "pilot", "cells": [{"job": job.pk, "n": 1}]})

    assert "the accuracy of embedded does not generalize to other LMs" in document_of(round)["notes"][0]


def test_repeated_reports_differ_only_in_date_and_audit_entry():
    round = make_round(5)
    judge_all(round, [T, F, T, T, U], [T, F, F, T, U], [T, T, F, T, T])

    first, second = ({**document_of(round), "created_at": "", "audit": None} for _ in range(2))

    assert FORMATS["json"].write(first) == FORMATS["json"].write(second)


def test_stored_report_does_not_change():
    round = make_round(1)
    report = create_report(round)

    judge_all(round, [T], [T], [T])

    report.refresh_from_db()
    assert report.document["n_judgments"] == 0


def test_report_query_count_is_constant(django_assert_max_num_queries):
    jobs = [make_harvest([("a", "b")]) for _ in range(6)]
    round = open_round({"name": "pilot", "cells": [{"job": job.pk, "n": 1} for job in jobs]})
    seal_all()

    with django_assert_max_num_queries(54):
        create_report(round)


def test_report_reads_one_database_snapshot(monkeypatch):
    calls = []
    round = make_round(2)
    monkeypatch.setattr(services, "one_moment", lambda: calls.append("once") or nullcontext())

    create_report(round)

    assert calls == ["once"]


def test_pooled_accuracy_of_several_cells_has_no_interval(researcher):
    language_model = make_language_model()
    jobs = [make_harvest([("a", name)], relation=make_relation(name), language_model=language_model) for name in "xy"]
    round = open_round({"name": "r", "cells": [{"job": job.pk, "n": None} for job in jobs]}, researcher)
    judge_all(round, [T, T], [T, T], [T, F])

    [total] = document_of(round)["totals"]

    assert (total["accuracy"], total["accuracy_low"], total["accuracy_high"]) == (1.0, None, None)


def test_method_describes_only_analyses_in_the_report():
    round = make_round(5)
    judge_all(round, [T, F, T, T, U], [T, F, F, T, U], [T, T, F, T, T])

    paragraphs = create_report(round).method.split("\n\n")

    assert len(paragraphs) > 3
    assert paragraphs[0].startswith("Verdicts.")
    absent_phrases = ("PPI", "settings are ranked", "A comparison of", "An incomplete statement", "an exclusion")
    for absent in (r"\bjudge\b", *absent_phrases):
        assert not any(re.search(absent, paragraph) for paragraph in paragraphs), absent
