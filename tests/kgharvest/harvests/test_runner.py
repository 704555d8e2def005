"""Harvest jobs: stored specs, results, fingerprints, and LM names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kgharvest.chat_models.options import ChatOptions
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.language_models.networks.placement import DTYPES
from kgharvest.engine.types import BadPrompt, EngineError, HarvestParams, HarvestSpec
from kgharvest.errors import NotFound
from kgharvest.harvests import language_models, runner
from kgharvest.harvests.runner import HarvestRequest, create_harvest_job
from kgharvest.models import HarvestJob, LanguageModel
from tests import factories
from tests.kgharvest.jobs import slow_runner
from tests.refusals import refused

pytestmark = pytest.mark.django_db


def make_request(relation=None, **fields) -> HarvestRequest:
    return HarvestRequest(
        relation or factories.make_relation(), factories.make_language_model(), **{"setting": "multi", **fields}
    )


def spec_of(job: HarvestJob) -> HarvestSpec:
    return runner._spec_from_json(HarvestJob.objects.get(pk=job.pk).payload["spec"])


def test_a_job_keeps_its_spec_when_the_relation_changes():
    relation = factories.make_relation(
        "can",
        initial_prompts=["<ENT0> can <ENT1>"],
        prompts=["<ENT1> is what <ENT0> can"],
        seed_tuples=[["a", "b"], ["c", "d"]],
    )
    params = HarvestParams(candidates=7, disabled_filters=frozenset({"stop_word"}))
    job = create_harvest_job(make_request(relation, params=params))

    relation.initial_prompts = ["other"]
    relation.save()

    assert spec_of(job) == HarvestSpec(
        relation="can",
        initial_prompts=("<ENT0> can <ENT1>",),
        prompts=("<ENT1> is what <ENT0> can",),
        seed_tuples=(("a", "b"), ("c", "d")),
        setting="multi",
        params=params,
    )


def test_requested_prompts_replace_prompts_of_the_relation():
    job = create_harvest_job(make_request(prompts=("<ENT0> likes <ENT1>",)))

    spec = spec_of(job)
    assert spec.initial_prompts == spec.prompts == ("<ENT0> likes <ENT1>",)


def fingerprint_of(request: HarvestRequest, revision: str) -> str:
    job = create_harvest_job(request)
    runner.store_result(job, slow_runner.three_tuples(), revision)
    HarvestJob.objects.filter(pk=job.pk).update(status="succeeded")
    return HarvestJob.objects.get(pk=job.pk).fingerprint


def test_fingerprints_are_equal_only_for_equal_requests():
    request = make_request()
    other = replace(request, params=HarvestParams(seed=1))

    assert fingerprint_of(request, "abc") == fingerprint_of(request, "abc")
    assert len({fingerprint_of(request, "abc"), fingerprint_of(other, "abc"), fingerprint_of(request, "def")}) == 3


def test_negative_seed_tuples_belong_to_the_spec_and_change_the_fingerprint():
    relation = factories.make_relation()
    plain = make_request(relation)
    keys = runner.payload_of(plain)["spec"].keys(), fingerprint_of(plain, "abc")

    relation.negative_seed_tuples = [["a", "b"]]
    relation.save()

    assert "negative_seed_tuples" not in keys[0]
    assert fingerprint_of(plain, "abc") != keys[1]
    assert spec_of(create_harvest_job(plain)).negative_seed_tuples == (("a", "b"),)


def test_fingerprint_without_negative_seed_tuples_is_that_of_earlier_versions():
    relation = factories.make_relation(
        "can", initial_prompts=["<ENT0> can <ENT1>"], seed_tuples=[["a", "b"], ["c", "d"]]
    )
    names = "relation initial_prompts seed_tuples setting prompts params paraphraser"

    assert list(runner.payload_of(make_request(relation))["spec"]) == names.split()


def test_default_order_is_not_part_of_the_payload():
    by_mtl, by_consistency = (make_request(params=HarvestParams(order=order)) for order in ("mtl", "consistency"))

    jobs = [create_harvest_job(request) for request in (by_mtl, by_consistency)]

    orders = [job.payload["spec"]["params"].get("order") for job in jobs]
    assert orders == [None, "consistency"]  # fingerprints equal those of earlier versions
    assert [spec_of(job).params.order for job in jobs] == ["mtl", "consistency"]


def test_chat_models_have_no_order_by_consistency():
    with refused("OrderNotSupported", match="The setting llm does not search.* Use the order mtl"):
        create_harvest_job(make_request(setting="llm", chat=ChatOptions(), params=HarvestParams(order="consistency")))


def test_a_relation_without_seeds_is_not_harvested():
    with refused("RelationNotReady", match="has 0 seed tuples"):
        create_harvest_job(make_request(factories.make_relation(seed_tuples=[])))


def test_prompt_with_wrong_arity_creates_no_job():
    with pytest.raises(BadPrompt, match="3 slots but the seed tuples have 2"):
        create_harvest_job(make_request(prompts=("<ENT0> <ENT1> <ENT2>",)))

    assert not HarvestJob.objects.exists()


@pytest.mark.parametrize(
    ("setting", "origin"), [("multi", "created"), ("lpaqa", "created"), ("autoprompt", "learned"), ("soft", "learned")]
)
def test_new_prompts_have_the_origin_learned_or_created(setting, origin):
    job = create_harvest_job(make_request(setting=setting))

    runner.store_result(job, slow_runner.three_tuples(), None)

    assert job.job_prompts.get().prompt.origin == origin


def test_results_are_stored_with_ranks_and_summary():
    job = create_harvest_job(make_request())

    runner.store_result(job, slow_runner.three_tuples(), "abc123")

    job.refresh_from_db()
    assert [harvested.surface for harvested in job.tuples.order_by("rank")] == [
        ["dog", "swim"],
        ["bird", "fly"],
        ["cat", "climb"],
    ]
    assert (job.summary["revision"], job.summary["stats"], job.n_tuples) == ("abc123", {"states": 7}, 3)


# LMs


@pytest.mark.parametrize(
    ("requests", "kept"),
    [
        ([("a", "cpu"), ("b", "cpu"), ("a", "cpu"), ("c", "cuda")], ["a on cpu, int8", "c on cuda, int8"]),
        ([("a", "cpu"), ("b", "cuda"), ("c", "auto")], ["c on auto, int8"]),
        ([("a", "auto"), ("b", "cpu"), ("c", "cpu")], ["b on cpu, int8", "c on cpu, int8"]),
        ([("a", "auto"), ("a", "auto")], ["a on auto, int8"]),
    ],
)
def test_memory_keeps_two_lms_or_one_on_all_devices(monkeypatch, requests, kept):
    loaded = []
    monkeypatch.setattr(language_models, "_loaded", {})
    monkeypatch.setattr(language_models, "_load", lambda *how: loaded.append(how) or how)

    for name, device in requests:
        model = language_models.get_language_model(name)
        assert language_models.load(model, device, "int8") == (name, None, device, "int8", None)

    assert list(language_models.in_memory()) == kept
    assert len(loaded) == len(set(loaded)) == len(set(requests))


def test_number_formats_have_different_fingerprints():
    request = make_request(device="cuda")

    jobs = [create_harvest_job(replace(request, dtype=dtype)) for dtype in DTYPES]

    assert len({job.unique_key for job in jobs}) == len({runner.fingerprint(job, "abc") for job in jobs}) == len(DTYPES)


def test_an_embedded_lm_is_marked_as_demonstrator():
    assert language_models.get_language_model(next(iter(EMBEDDED_LMS))).is_demonstrator
    assert not language_models.get_language_model("roberta-large").is_demonstrator


def test_a_folder_is_named_by_its_full_path(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)

    assert language_models.get_language_model("./model").name == str(tmp_path / "model")


def test_an_ambiguous_name_of_a_hub_model_or_folder_is_rejected(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(NotFound, match=r"folder, use \./model\."):
        language_models.get_language_model("model")


@pytest.mark.parametrize(("name", "why"), [("./folder", "no config.json"), ("./none", r"\./none not found")])
def test_a_folder_without_a_model_is_refused(tmp_path, monkeypatch, name, why):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(NotFound, match=why):
        language_models.get_language_model(name)


# LM names accepted by pages


def make_model_folder(folder):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.django_db
def test_pages_accept_models_below_configured_folders_and_existing_names(tmp_path, settings):
    settings.MODEL_ROOTS = [tmp_path / "roots"]
    inside = make_model_folder(tmp_path / "roots" / "bert")
    outside = make_model_folder(tmp_path / "elsewhere" / "bert")

    named = [language_models.language_model_for_pages(name).name for name in ("bert", str(inside), "roberta-large")]

    assert named == [str(inside), str(inside), "roberta-large"]
    language_models.get_language_model(str(outside))  # the operator, at a command
    assert language_models.language_model_for_pages(str(outside)).name == str(outside)


@pytest.mark.django_db
@pytest.mark.parametrize("find", [language_models.get_language_model, language_models.language_model_for_pages])
def test_a_hub_id_can_have_a_revision(find):
    named = find("some/bert@refs/pr/1")

    assert (named.name, named.revision) == ("some/bert", "refs/pr/1")
    assert find("some/bert", "refs/pr/1") == find(str(named)) == named


@pytest.mark.django_db
@pytest.mark.parametrize("find", [language_models.get_language_model, language_models.language_model_for_pages])
@pytest.mark.parametrize(
    "name", ["embedded@main", "some/bert@", "some/bert@a b", "some/bert@-x", "some/bert@a/../../b"]
)
def test_invalid_revisions_are_rejected(find, name):
    with pytest.raises(NotFound):
        find(name)


@pytest.mark.django_db
@pytest.mark.parametrize("find", [language_models.get_language_model, language_models.language_model_for_pages])
def test_folders_and_embedded_lms_have_no_revisions(find, tmp_path, settings):
    settings.MODEL_ROOTS = [tmp_path]
    folder = make_model_folder(tmp_path / "some" / "bert")
    find(str(folder))

    for name in ("embedded", str(folder)):
        with pytest.raises(NotFound, match=r"revision|not found"):
            find(name, "v1")
    assert find("some/bert@v1").name == "some/bert"  # the hub model, despite a folder with that name below the roots


@pytest.mark.django_db
def test_folder_name_resembling_a_revision_is_found_or_rejected(tmp_path, settings, monkeypatch):
    settings.MODEL_ROOTS = [tmp_path]
    folder = make_model_folder(tmp_path / "bert@v2")
    monkeypatch.chdir(tmp_path)

    found = language_models.language_model_for_pages("bert@v2")
    assert (found.name, found.revision) == (str(folder), "")
    with pytest.raises(NotFound, match=r"folder, use \./bert@v2\."):
        language_models.get_language_model("bert@v2")
    assert language_models.get_language_model("./bert@v2") == found


@pytest.mark.parametrize("placement", [("cuda", "float32"), ("cpu", "bfloat16")])
def test_an_lm_behind_a_server_accepts_no_placement(placement):
    with pytest.raises(EngineError, match="runs behind a server"):
        language_models.check_where("http://127.0.0.1:8000/v1#some/lm", *placement)


@pytest.mark.django_db
def test_pages_reject_revisions_with_paths_outside_the_cache():
    with pytest.raises(NotFound, match="Invalid revision"):
        language_models.language_model_for_pages("some/bert", "../../x")


@pytest.mark.django_db
def test_folder_of_a_chat_model_or_import_is_not_loaded(tmp_path, settings):
    settings.MODEL_ROOTS = [tmp_path / "roots"]
    outside = make_model_folder(tmp_path / "elsewhere" / "bert")

    row = language_models.name_language_model(str(outside))

    with pytest.raises(NotFound):
        language_models.language_model_for_pages(str(outside))
    assert row not in LanguageModel.objects.loadable()
    assert language_models.name_language_model("gpt2") in LanguageModel.objects.loadable()
    language_models.get_language_model(str(outside))  # the operator, at a command
    assert row in LanguageModel.objects.loadable()


@pytest.mark.django_db
def test_pages_do_not_disclose_folders(tmp_path, settings):
    settings.MODEL_ROOTS = [tmp_path / "roots"]
    model = make_model_folder(tmp_path / "elsewhere" / "bert")
    (tmp_path / "roots").mkdir()
    (tmp_path / "roots" / "link").symlink_to(tmp_path / "elsewhere")
    paths = [model, model.parent, model / "config.json", tmp_path / "absent", "/etc", "~root", "../elsewhere/bert"]
    paths += ["./link/bert", "x" * 5000 + "/", "\x00/"]

    refusals = set()
    for path in map(str, paths):
        with pytest.raises(NotFound) as refusal:
            language_models.language_model_for_pages(path)
        refusals.add(str(refusal.value).replace(f"{path!r:.80}", "NAME"))

    assert len(refusals) == 1
