"""Crawls of the embedded LM, whose facts are known: tuples, depths, budgets, resuming, rounds, and the command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from django.core.management import CommandError, call_command, execute_from_command_line
from django.db import transaction

from annotation.rounds.services import open_round
from evaluation.reports.services import create_report
from kgharvest.contrib.crawling import runner
from kgharvest.contrib.crawling.models import Crawl, CrawlStep
from kgharvest.contrib.crawling.services import PARAMS, CrawlRequest, create_crawl, depth_summaries, round_spec
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.harvest import prepare
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.language_models.served.served_lm import ServerFailed
from kgharvest.engine.types import HarvestParams, HarvestSpec
from kgharvest.harvests.runner import HarvestRequest, spec_of
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job, LanguageModel, Launch, Relation
from tests import factories
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_gpt2, tiny_roberta
from tests.programs import run_program
from tests.refusals import refused

pytestmark = pytest.mark.django_db

SEEDS = ("eiffel tower", "Colosseum", "big ben")
RELATIONS = {
    "landmark_in": ("<ENT0> is in <ENT1>.", [["louvre", "paris"], ["prado", "madrid"], ["kremlin", "moscow"]]),
    "capital_of": (
        "<ENT0> is the capital of <ENT1>.",
        [["berlin", "germany"], ["oslo", "norway"], ["madrid", "spain"]],
    ),
}
MIN_SCORE = -7.5
FACTS = {relation.name: set(relation.facts) for relation in load_world()}


def make_relations():
    """Return the relations, which are created on the first call."""
    return [
        Relation.objects.filter(name=name).first()
        or factories.make_relation(name, statement=prompt, initial_prompts=[prompt], seed_tuples=seeds)
        for name, (prompt, seeds) in RELATIONS.items()
    ]


def make_crawl(seeds=SEEDS, relations=None, **options) -> Crawl:
    lm, _ = LanguageModel.objects.get_or_create(name="embedded-small")
    params = replace(PARAMS, min_score=MIN_SCORE)
    return create_crawl(CrawlRequest(seeds, relations or make_relations(), lm, "human", params=params, **options))


def run(crawl) -> Crawl:
    ledger.run_job(crawl.pk)
    crawl.refresh_from_db()
    assert crawl.status == Job.Status.SUCCEEDED, crawl.error
    return crawl


def tuples_of(crawl) -> list[tuple]:
    """Return (depth, relation, entities, score) in the order in which the crawl found them."""
    return [
        (step.depth, step.relation.name, tuple(row.knowledge_tuple.entities), row.score)
        for step in crawl.steps.exclude(job=None).select_related("relation")
        for row in step.job.tuples.select_related("knowledge_tuple").order_by("rank")
    ]


def entities_of(crawl) -> list[tuple]:
    return [*crawl.entities.values_list("position", "depth", "name", "surface")]


@pytest.fixture(scope="module")
def whole(django_db_setup, django_db_blocker):
    """Return the tuples and entities of the crawl from three seed entities to depth 2."""
    with django_db_blocker.unblock(), transaction.atomic():
        crawl = run(make_crawl())
        result = tuples_of(crawl), entities_of(crawl), [*crawl.steps.values_list("depth", "n_calls", "n_unfit")]
        transaction.set_rollback(True)
    return result


def test_crawl_finds_facts_at_both_depths(whole):
    tuples, entities, _ = whole

    found = {(depth, relation, entities) for depth, relation, entities, _ in tuples}
    assert {
        (1, "landmark_in", ("eiffel tower", "paris")),
        (1, "landmark_in", ("colosseum", "rome")),
        (1, "landmark_in", ("big ben", "london")),
        (2, "capital_of", ("paris", "france")),
    } <= found
    assert len(found & {(depth, name, fact) for depth in (1, 2) for name in RELATIONS for fact in FACTS[name]}) >= 7
    assert all(score >= MIN_SCORE for *_, score in tuples)
    names = [name for _, _, name, _ in entities]
    assert len(names) == len(set(names))
    assert entities[:3] == [
        (0, 0, "eiffel tower", SEEDS[0]),
        (1, 0, "colosseum", SEEDS[1]),
        (2, 0, "big ben", SEEDS[2]),
    ]
    assert {depth for _, depth, *_ in entities} == {0, 1, 2}


def test_budgets_are_kept_exactly(whole):
    n_calls = sum(n for _, n, _ in whole[2])
    for max_calls in (1, 3, n_calls - 1):
        crawl = run(make_crawl(max_calls=max_calls))
        assert sum(crawl.steps.values_list("n_calls", flat=True)) == max_calls
    crawl = run(make_crawl(max_entities=5))
    assert entities_of(crawl) == whole[1][:5]


def test_canceled_crawl_continues_with_the_same_result(whole, monkeypatch):
    crawl = make_crawl()
    store = runner.Crawler._store

    def store_then_cancel(self, step, *args):
        store(self, step, *args)
        if step.depth == 1:
            ledger.cancel(crawl)

    monkeypatch.setattr(runner.Crawler, "_store", store_then_cancel)
    ledger.run_job(crawl.pk)
    crawl.refresh_from_db()
    assert crawl.status == Job.Status.CANCELLED
    monkeypatch.undo()
    ledger.retry(crawl)

    assert (tuples_of(run(crawl)), entities_of(crawl)) == whole[:2]


def test_harvests_form_one_launch_with_one_setting_per_depth():
    crawl = run(make_crawl())

    assert Launch.objects.get() == crawl.launch
    jobs = HarvestJob.objects.filter(launch=crawl.launch)
    assert {job.setting for job in jobs} == {"human-depth-1", "human-depth-2"}
    assert {job.summary["source"] for job in jobs} == {f"crawl {crawl.pk}, depth 1", f"crawl {crawl.pk}, depth 2"}
    assert all(job.job_prompts.count() == 1 for job in jobs)


def test_round_gives_every_depth_an_accuracy_with_an_interval():
    crawl = run(make_crawl())
    round = open_round(round_spec(crawl, "frontier", 2), None, crawl.project)
    facts = {entities for facts in FACTS.values() for entities in facts}
    tasks = round.tasks.order_by("position").select_related("knowledge_tuple")
    labels = ["true" if tuple(task.knowledge_tuple.entities) in facts else "false" for task in tasks]
    factories.judge_all(round, *([label, *labels[1:]] for label in ("true", "false", "unjudgeable")))
    assert round.tasks.get(verdict="undecided").position == 0

    summaries = depth_summaries(crawl)

    totals = {total["setting"]: total for total in create_report(round).document["totals"]}
    assert totals.keys() == {"human-depth-1", "human-depth-2"}
    for depth, summary in enumerate(summaries, start=1):
        total = totals[f"human-depth-{depth}"]
        assert summary.n_judged == total["n"]
        weighted = [total[f"weighted_accuracy{end}"] for end in ("", "_low", "_high")]
        assert summary.accuracy[:3] == pytest.approx(weighted, abs=1e-6)
        strata = round.strata.filter(setting=f"human-depth-{depth}")
        assert summary.n_judged == sum(stratum.sample_size for stratum in strata)
        shares = [
            stratum.population * stratum.draws.filter(task__verdict="accepted").count() / stratum.sample_size
            for stratum in strata
        ]
        assert summary.accuracy.value == pytest.approx(sum(shares) / summary.n_tuples)
        low, high = summary.accuracy.low, summary.accuracy.high
        assert 0 <= low <= summary.accuracy.value <= high <= 1
        assert low < high or summary.n_judged == summary.n_tuples
    assert all(total["macro_accuracy"] is not None for total in totals.values())


def test_unsuitable_entities_are_not_asked():
    crawl = run(make_crawl(seeds=["eiffel tower", "qzx"], depth=1))

    steps = {step.relation.name: step for step in crawl.steps.all()}
    assert steps["landmark_in"].n_calls + steps["landmark_in"].n_unfit == 2
    assert steps["capital_of"].n_unfit >= 1


@pytest.mark.parametrize("make", [tiny_bert, tiny_roberta, tiny_gpt2])
def test_no_tuple_exceeds_the_bound_of_its_head(make, tmp_path):
    lm = load(str(make(tmp_path)))
    params = HarvestParams(max_entity_tokens=2, candidates=50, heads=("paris", "dog", "ab"))
    prompts = ("<ENT0> is the capital of <ENT1> .", "in <ENT1> the <ENT0> is a dog")
    spec = HarvestSpec("r", prompts[:1], (("paris", "france"), ("rome", "italy")), "multi", prompts, params)
    prepared = prepare(spec, lm)

    bounds = dict(
        zip(params.heads, runner.head_bounds(lm, prepared, params.heads, params, lambda p: None), strict=True)
    )

    result = runner.harvest_prepared(prepared, params, lm, runner.InTurn(lambda progress: None))
    assert len(result.tuples) > 100
    assert all(scored.score <= bounds[scored.entities[0]] + 1e-6 for scored in result.tuples)


def test_faulty_relation_is_skipped_with_its_reason():
    bad = factories.make_relation("bad", seed_tuples=[["løve", "øå"], ["øø", "æ"]])
    crawl = run(make_crawl(relations=[bad, *make_relations()], depth=1))

    assert "cannot write" in CrawlStep.objects.get(relation=bad).fault
    assert len(tuples_of(crawl)) > 2


def test_minimum_score_is_the_median_of_the_seed_scores():
    lm, _ = LanguageModel.objects.get_or_create(name="embedded-small")
    [relation, _] = make_relations()
    crawl = run(create_crawl(CrawlRequest(SEEDS, [relation], lm, "human", 1)))

    step = crawl.steps.get()
    spec = spec_of(HarvestRequest(relation, lm, "human"))
    seeds = prepare(spec, load(EMBEDDED_LMS["embedded-small"])).comprehension.seed_scores
    scores = sorted(score for _, score in seeds)
    assert len(scores) == 3
    assert step.job.payload["spec"]["params"]["min_score"] == pytest.approx(scores[1])


def test_relation_is_not_skipped_after_a_temporary_failure(whole, monkeypatch):
    def fail(*args):
        raise ServerFailed("The server is unreachable. Try again later.")

    crawl = make_crawl()
    monkeypatch.setattr(runner, "prepare", fail)
    ledger.run_job(crawl.pk)
    crawl.refresh_from_db()
    assert crawl.status == Job.Status.FAILED
    assert "server is unreachable" in crawl.error
    assert not crawl.steps.exists()
    monkeypatch.undo()
    ledger.retry(crawl)

    assert (tuples_of(run(crawl)), entities_of(crawl)) == whole[:2]


def test_causal_lm_is_asked_for_relation_names(tmp_path):
    folder = tiny_gpt2(tmp_path)
    relations = [
        factories.make_relation("capital_of", seed_tuples=[["paris", "france"], ["rome", "italy"]]),
        factories.make_relation("can", seed_tuples=[["dog", "swim"], ["cat", "sing"]]),
    ]
    lm = factories.make_language_model(str(folder))
    params = HarvestParams(max_tuples=2, candidates=5, max_entity_tokens=1, min_score=-1000.0)
    crawl = run(create_crawl(CrawlRequest(["fish", "wood"], relations, lm, "human", 1, params=params)))

    step = crawl.steps.get(relation=None)
    assert step.n_calls == 2
    assert 0 < len(step.suggestions) <= 10
    assert not {"capital of", "can"} & step.suggestions.keys()


def test_repeated_seeds_keep_the_order_of_the_file():
    crawl = make_crawl(seeds=["Paris", "rome", "PARIS"])

    assert entities_of(crawl) == [(0, 0, "paris", "Paris"), (1, 0, "rome", "rome")]


@pytest.mark.parametrize(
    ("seeds", "options", "message"),
    [
        ([], {}, "has 0 seeds. Provide 1 to 1,000"),
        (["a", "b"], {"max_entities": 1}, "has 2 seeds. Provide 1 to 1"),
        (["a"], {"depth": 0}, "The depth is 0. Set it to 1 or more."),
        (["a"], {"max_calls": 0}, "The maximum number of calls is 0. Set it to 1 or more."),
    ],
)
def test_invalid_crawls_are_refused(seeds, options, message):
    with refused("BadCrawl") as refusal:
        make_crawl(seeds=seeds, **options)
    assert message in str(refusal.value)


def test_command_requires_a_relation_or_a_set(tmp_path):
    (tmp_path / "seeds.txt").write_text("paris")

    with pytest.raises(CommandError, match="Specify --relation or --set"):
        call_command("crawl", "start", seeds=tmp_path / "seeds.txt")


@pytest.mark.parametrize(("option", "value"), [("--depth", "0"), ("--max-calls", "-3"), ("--max-entities", "many")])
def test_command_refuses_numbers_with_option_value_and_range(option, value, capsys):
    with pytest.raises(SystemExit):
        execute_from_command_line(["manage.py", "crawl", "start", "--seeds", "f", f"{option}={value}"])

    message = capsys.readouterr().err.strip()
    assert f"{option}: '{value}' is not an integer from 1 to " in message
    assert "\n" not in message


def test_command_crawls_and_creates_a_draft(tmp_path, capsys):
    make_relations()
    (tmp_path / "seeds.txt").write_text("\n".join(SEEDS))
    options = {
        "relation": ["landmark_in"],
        "model": "embedded-small",
        "setting": "human",
        "depth": 1,
        "min_score": -7.5,
    }

    call_command("crawl", "start", seeds=tmp_path / "seeds.txt", wait=True, **options)

    crawl = Crawl.objects.get()
    out = capsys.readouterr().out
    assert f"Crawl {crawl.pk} × embedded-small × human, succeeded, from 3 seeds" in out
    assert "depth 1: 3 calls, 0 skipped, " in out
    call_command("crawl", "round", str(crawl.pk), name="frontier", n=1)
    assert "Draft frontier: 1 cell." in capsys.readouterr().out
    with pytest.raises(CommandError, match="Crawl 99 not found"):
        call_command("crawl", "show", "99")


@pytest.mark.parametrize(("status", "error"), [("queued", ""), ("failed", "Model nope is missing."), ("cancelled", "")])
def test_command_gives_the_reason_and_the_remedy_of_an_unfinished_crawl(status, error, capsys):
    crawl = make_crawl()
    Crawl.objects.update(status=status, error=error)
    remedy = f"crawl continue {crawl.pk}"

    call_command("crawl", "show", str(crawl.pk))
    with pytest.raises(CommandError) as refused_round:
        call_command("crawl", "round", str(crawl.pk), name="frontier")

    for text in (capsys.readouterr().err, str(refused_round.value)):
        assert error in text
        assert remedy in text
        assert Job.Status(status).label.lower() in text
        assert ("worker" in text) == (status == "queued")


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("KGHARVEST_TEST_POSTGRES", "") != "", reason="copies a SQLite database")
def test_killed_crawl_continues_with_the_same_result(whole, tmp_path, migrated_database):
    relations = [
        {"name": name, "statement": prompt, "initial_prompts": [prompt], "prompts": [], "seed_tuples": seeds}
        for name, (prompt, seeds) in RELATIONS.items()
    ]
    (tmp_path / "relations.json").write_text(json.dumps({"relations": relations}))
    (tmp_path / "seeds.txt").write_text("\n".join(SEEDS))
    database = shutil.copyfile(migrated_database, tmp_path / "kgharvest.sqlite3")
    environment = {**os.environ, "KGHARVEST_DATA_DIR": str(tmp_path)}
    environment["DJANGO_SETTINGS_MODULE"] = "tests.kgharvest.contrib.crawling.killed_settings"
    importing = ["import_relations", str(tmp_path / "relations.json"), "--set", "places"]
    assert run_program(["manage.py", *importing], environment).returncode == 0
    start = [
        "crawl",
        "start",
        "--seeds",
        str(tmp_path / "seeds.txt"),
        "--model",
        "embedded-small",
        "--setting",
        "human",
    ]
    start += ["--relation", "landmark_in", "--relation", "capital_of", f"--min-score={MIN_SCORE}", "--wait"]

    killed = run_program(["manage.py", *start], environment | {"KILL_AT_STEP": "3"})

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with closing(sqlite3.connect(database)) as connection, connection:
        assert connection.execute("SELECT count(*) FROM crawling_crawlstep").fetchone() == (2,)
        connection.execute("UPDATE kgharvest_job SET lease_expires_at = '2020-01-01' WHERE kind = 'crawl'")
    continued = run_program(["manage.py", "crawl", "continue", "1"], environment)
    assert continued.returncode == 0, continued.stderr
    query = (
        "SELECT step.depth, relation.name, claim.entities, found.score FROM crawling_crawlstep step"
        " JOIN kgharvest_harvestedtuple found ON found.job_id = step.job_id"
        " JOIN kgharvest_knowledgetuple claim ON claim.id = found.knowledge_tuple_id"
        " JOIN kgharvest_relation relation ON relation.id = step.relation_id ORDER BY step.id, found.rank"
    )
    entities = "SELECT position, depth, name, surface FROM crawling_crawledentity ORDER BY position"
    with closing(sqlite3.connect(database)) as connection:
        tuples = [
            (depth, name, tuple(json.loads(entities)), pytest.approx(score, abs=1e-5))
            for depth, name, entities, score in connection.execute(query)
        ]
        assert (tuples, connection.execute(entities).fetchall()) == whole[:2]
