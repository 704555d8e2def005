"""The built-in study of BertNet's Figures 4 and 5 on an embedded LM, from harvests to files."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command

from evaluation.models import ScoreEvaluation
from evaluation.studies.files import read_study, study_path, toml_of


@pytest.fixture
def small_figures(tmp_path, db, enqueued):
    """Function that runs the small version of the built-in study, with real harvests and scores."""

    def run_small(relations: list[str]) -> ScoreEvaluation:
        document = read_study(study_path("bertnet-precision-recall"), small=True)
        document["relations"][0]["names"] = relations
        path = tmp_path / "figures.toml"
        path.write_text(toml_of(document))
        call_command("study", "run", str(path))
        return ScoreEvaluation.objects.get()

    return run_small


def check_figures(evaluation: ScoreEvaluation, folder: Path, out: str) -> None:
    """Check files and average precisions, computed from the scored tuples."""
    samples = [(sample["scores"], sample["replaced"] is None) for sample in evaluation.samples]
    for entry in evaluation.document["scorers"]:
        ranked = sorted(((scores[entry["scorer"]], is_fact) for scores, is_fact in samples), reverse=True)
        ranks = [rank for rank, (_, is_fact) in enumerate(ranked, start=1) if is_fact]
        precisions = [n / rank for n, rank in enumerate(ranks, start=1)]
        assert entry["average_precision"] == pytest.approx(sum(precisions) / len(precisions))
    assert {path.name for path in folder.iterdir()} == {"figures.svg", "figures.md", "figures.json", "published.md"}
    rows = [line.split()[:3] for line in out.splitlines() if " figures " in line]
    assert rows == [["multi", "top1", "figures"], ["top1", "human", "figures"], ["multi", "LPAQA", "log"]]


@pytest.mark.slow
def test_small_version_of_the_figures(small_figures, tmp_path, capsys):
    evaluation = small_figures(["capital_of", "wrote"])

    assert [entry["scorer"] for entry in evaluation.document["scorers"]] == [
        *("human (as harvested)", "top1 (as harvested)", "multi (as harvested)", "LPAQA log P(t|h)")
    ]
    check_figures(evaluation, tmp_path / "bertnet-precision-recall-small-results", capsys.readouterr().out)


@pytest.mark.exhaustive
def test_whole_small_version_of_the_figures(small_figures, tmp_path, capsys):
    names = read_study(study_path("bertnet-precision-recall"), small=True)["relations"][0]["names"]

    evaluation = small_figures(names)

    assert evaluation.document["n_relations"] == len(names)
    check_figures(evaluation, tmp_path / "bertnet-precision-recall-small-results", capsys.readouterr().out)
