"""Pages of probes: the form, progress, results, and file downloads."""

from __future__ import annotations

import csv
import io
import json
import zipfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from kgharvest.contrib.probing.models import Probe, ProbeRecord
from kgharvest.contrib.probing.probes.facts import split_world
from kgharvest.jobs import ledger
from kgharvest.models import Job
from kgharvest.statistics.paired_tests import NONE_DIFFERS
from tests.factories import make_relation, make_relation_set, make_user, make_worker
from tests.kgharvest.contrib.probing.probes.probe_factories import make_probe

pytestmark = pytest.mark.django_db

NEW = "/reports/probes/new/"
PROMPTS = {"initial_prompts": ["<ENT0> is the capital of <ENT1> ."], "prompts": ["the capital of <ENT1> is <ENT0> ."]}


@pytest.fixture
def capitals():
    return make_relation(name="capital_of", relation_set=make_relation_set("known"), **PROMPTS)


def form_data(relation=None, **fields) -> dict:
    selection = {"relations": [relation.pk]} if relation else {}
    budget = {"iterations": 6, "epochs": 2, "seed": 0}
    return {"model": "embedded-small", "methods": ["manual"], **budget, **selection, **fields}


def zip_file(**parts: list[dict]) -> SimpleUploadedFile:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for part, lines in parts.items():
            archive.writestr(f"facts/capital_of/{part}.jsonl", "\n".join(map(json.dumps, lines)))
    return SimpleUploadedFile("facts.zip", buffer.getvalue())


def broken_zip_file(lines: list[dict]) -> SimpleUploadedFile:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("capital_of/dev.jsonl", "\n".join(map(json.dumps, lines)))
    content = buffer.getvalue()
    return SimpleUploadedFile("facts.zip", content[:60] + b"\xff" * 20 + content[80:])


def lines_file(*lines: object, name: str = "facts.jsonl") -> SimpleUploadedFile:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return SimpleUploadedFile(name, "\n".join(texts).encode())


def pairs_of(part: str) -> list[dict]:
    return [{"sub": subject, "obj": obj} for subject, obj in split_world()["capital_of"][part]]


@pytest.fixture
def finished_probe(db) -> Probe:
    return make_probe()


# New probes


def test_form_offers_worker_devices_and_rejects_unsupported_dtypes(researcher_client, capitals, enqueued):
    make_worker(timezone.now(), devices=["cuda:0, NVIDIA H200, 140 GiB", "cpu, 16 cores"])

    refused = researcher_client.post(NEW, form_data(capitals, device="cuda:1"))
    without_gpu = researcher_client.post(NEW, form_data(capitals, dtype="int8"))
    on_gpu = form_data(capitals, device="cuda:0", dtype="int8", other_model="some/bert")
    small = researcher_client.post(NEW, form_data(capitals, device="cuda:0", dtype="int8"))
    with_control = researcher_client.post(NEW, on_gpu | {"with_control": "on"})
    researcher_client.post(NEW, on_gpu)

    assert "cuda:1 is not one of the available choices" in refused.text
    assert "Weights in int8 require an NVIDIA GPU" in without_gpu.text
    assert "embedded-small does not support int8" in small.text
    assert "The control does not support int8" in with_control.text
    assert Probe.objects.get().lm == "some/bert on cuda:0, int8"


def test_empty_list_offers_the_demo_set(researcher_client):
    demo = make_relation_set("demo", is_shipped=True)

    page = researcher_client.get("/reports/probes/").text

    assert "No probes yet" in page
    assert f"{NEW}?set={demo.pk}" in page


def test_probe_of_a_set_skips_ternary_relations(researcher_client, capitals, enqueued):
    make_relation(name="need_a_to_do_b", arity=3, relation_set=capitals.relation_set)

    researcher_client.post(NEW, form_data(sets=[capitals.relation_set.pk]))

    probe = Probe.objects.get()
    assert enqueued == [probe.pk]
    assert [relation.name for relation in probe.relations.all()] == ["capital_of"]
    assert (probe.name, probe.facts, probe.status) == ("known", "embedded LM's world", "queued")
    assert not probe.payload["with_control"]


def test_set_picker_uses_singular_for_one_relation(researcher_client, capitals):
    assert "1 relation with a subject and an object" in researcher_client.get(NEW).content.decode()


def test_uploaded_facts_and_prompts_are_stored_in_the_probe(researcher_client, capitals, enqueued):
    facts = zip_file(**{part: pairs_of(part) for part in ("train", "dev", "test")})
    prompts = lines_file(
        {"relation": "capital_of", "template": "[Y] has the capital [X] .", "type": "N-M"}, name="relations.jsonl"
    )

    researcher_client.post(NEW, form_data(capitals, facts=facts, prompts=prompts))

    relation = Probe.objects.get().relations.get()
    assert relation.facts["train"][0] == list(split_world()["capital_of"]["train"][0])
    assert relation.prompts[-1] == "<ENT1> has the capital <ENT0> ."
    assert relation.type == "N-M"


def test_macos_metadata_in_a_zip_file_is_ignored(researcher_client, capitals, enqueued):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for part in ("train", "dev", "test"):
            archive.writestr(f"capital_of/{part}.jsonl", "\n".join(map(json.dumps, pairs_of(part))))
            archive.writestr(f"__MACOSX/capital_of/._{part}.jsonl", b"\x00\x05\x16\x07\xff")

    researcher_client.post(NEW, form_data(capitals, facts=SimpleUploadedFile("facts.zip", buffer.getvalue())))

    assert Probe.objects.get().relations.get().name == "capital_of"


def test_lines_of_one_file_can_state_relation_and_part(researcher_client, capitals, enqueued):
    lines = [
        {"predicate_id": "capital_of", "part": part, "sub_label": f"town {part}", "obj_label": "france"}
        for part in ("train", "dev", "test")
    ]

    researcher_client.post(NEW, form_data(capitals, facts=lines_file(*lines)))

    assert Probe.objects.get().relations.get().facts["dev"] == [["town dev", "france"]]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (lambda: lines_file("{", '{"part": "train"}', "[]"), "line 3: is not a JSON object"),
        (lambda: lines_file("{", '{"part": "train"}', "[]"), "line 2: lacks the texts"),
        (lambda: lines_file({"sub": "a", "obj": "b"}), "has no part; add &quot;part&quot;"),
        (lambda: lines_file({"part": "dev", "sub": "a", "obj": "b" * 300}), "more than 200 characters"),
        (lambda: lines_file({"part": "dev", "sub": "a", "obj": "b"}), "capital_of has no train and no test facts"),
        (lambda: zip_file(dev=pairs_of("dev"), test=pairs_of("test")), "capital_of has no train facts"),
        (lambda: zip_file(train=[], dev=pairs_of("dev"), test=pairs_of("test")), "capital_of has no train facts"),
        (lambda: SimpleUploadedFile("facts.zip", b"PK\x03\x04 and no more"), "cannot be unpacked"),
        (lambda: broken_zip_file(pairs_of("dev")), "cannot be unpacked"),
        (lambda: SimpleUploadedFile("facts.jsonl", b"\xff\xfe"), "is not UTF-8"),
    ],
)
def test_unusable_facts_show_an_error_at_the_file_field(researcher_client, capitals, enqueued, facts, sentence):
    response = researcher_client.post(NEW, form_data(capitals, facts=facts()))

    assert list(response.context["form"].errors) == ["facts"]
    assert sentence in response.text
    assert not Probe.objects.exists()


def test_errors_list_twenty_bad_lines_and_their_total(researcher_client, capitals):
    response = researcher_client.post(NEW, form_data(capitals, facts=lines_file(*["{}"] * 60)))

    errors = response.context["form"].errors["facts"]
    assert len(errors) == 21
    assert errors[-1] == "60 invalid lines in total."


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("[X] is the capital .", "[Y] occurs 0 times"),
        ("[X] and [X] [Y]", "[X] occurs 2 times"),
        (None, "missing or not a text"),
    ],
)
def test_template_without_both_slots_shows_a_field_error(researcher_client, capitals, template, sentence):
    prompts = lines_file({"relation": "capital_of", "template": template}, name="prompts.jsonl")

    response = researcher_client.post(NEW, form_data(capitals, prompts=prompts))

    assert sentence in response.text
    assert list(response.context["form"].errors) == ["prompts"]


def test_common_vocabulary_combines_lms_and_a_file(researcher_client, capitals, enqueued):
    words = SimpleUploadedFile("words.txt", b"france\n\n germany \n")

    researcher_client.post(NEW, form_data(capitals, common_with="embedded\n", words=words))

    payload = Probe.objects.get().payload
    assert (payload["common_with"], payload["words"]) == (["embedded"], ["france", "germany"])


def test_file_without_words_shows_a_field_error(researcher_client, capitals):
    response = researcher_client.post(NEW, form_data(capitals, words=SimpleUploadedFile("words.txt", b" \n ")))

    assert response.context["form"].errors["words"] == ["words.txt contains no words. Add one word per line."]


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"methods": []}, "methods"), ({"model": ""}, "model"), ({"epochs": 0}, "epochs"), ({}, "relations")],
)
def test_missing_fields_are_reported(researcher_client, capitals, fields, field):
    response = researcher_client.post(NEW, form_data(capitals if fields else None, **fields))

    assert list(response.context["form"].errors) == [field]


def test_unknown_model_is_rejected(researcher_client, capitals, enqueued):
    response = researcher_client.post(NEW, form_data(capitals, other_model="/no/such/folder"))

    assert "Model &#x27;/no/such/folder&#x27; not found" in response.text


def test_page_of_failed_probe_names_objects_of_several_tokens(researcher_client, capitals, enqueued):
    multi_token = {part: [{"sub": "berlin", "obj": "a tree in the garden"}] for part in ("train", "dev", "test")}
    response = researcher_client.post(NEW, form_data(capitals, facts=zip_file(**multi_token)))

    ledger.run_job(Probe.objects.get().pk)

    page = researcher_client.get(response.url).text
    assert "no usable train fact (1 object of several tokens)." in page
    assert "No results" in page


# Results


def test_queued_probe_can_be_viewed_cancelled_and_retried(researcher_client, capitals, enqueued):
    address = researcher_client.post(NEW, form_data(capitals)).url

    assert "waiting for a worker" in researcher_client.get(address).text
    assert researcher_client.get(f"/api/v1/probes/{Probe.objects.get().pk}/").json()["status"] == "queued"
    researcher_client.post(f"{address}cancel/")

    assert Probe.objects.get().status == Job.Status.CANCELLED
    researcher_client.post(f"{address}retry/")
    assert Probe.objects.get().status == Job.Status.QUEUED


def test_page_shows_methods_and_control_in_separate_tables(researcher_client, finished_probe):
    response = researcher_client.get(finished_probe.get_absolute_url())

    for table in ("methods", "control"):
        assert [row.values[0] for row in response.context[table].rows] == finished_probe.methods
    assert "Control: the same LM with random weights" in response.text
    assert "Differences from the manual prompts" in response.text
    assert NONE_DIFFERS in response.text
    assert "acc-6" in response.text  # .6 is shaded as six tenths


def test_learned_prompts_show_weights_nearest_words_and_rewrites(researcher_client, finished_probe):
    relation = finished_probe.relations.first()

    page = researcher_client.get(f"{finished_probe.get_absolute_url()}prompts/{relation.pk}/").text

    assert "‹of›" in page
    assert "Nearest words to the 1 soft token" in page
    assert 'in <span class="muted small">0.70</span>' in page
    assert "<td>[MASK] of france</td><td>[MASK] , capital france</td>" in page
    assert page.index('id="majority"') < page.index('id="soft"') < page.index('id="bertese"')
    assert "No prompts stored." in page
    assert "Soft words of soft for capital_of" in page
    assert "Soft words of soft for language_of" not in page


def test_relation_of_another_probe_is_not_found(researcher_client, finished_probe):
    relation = finished_probe.relations.first()

    assert researcher_client.get(f"/reports/probes/{finished_probe.pk + 1}/prompts/{relation.pk}/").status_code == 404


def test_figures_and_tables_can_be_downloaded(researcher_client, finished_probe):
    address = finished_probe.get_absolute_url()

    assert b"<svg" in researcher_client.get(f"{address}figures/methods.svg", {"theme": "dark"}).content
    assert researcher_client.get(f"{address}figures/differences.pdf").content.startswith(b"%PDF")
    assert researcher_client.get(f"{address}figures/nothing.svg").status_code == 404
    assert r"\begin{table}" in researcher_client.get(f"{address}tables.tex").text
    summary = list(csv.DictReader(io.StringIO(researcher_client.get(f"{address}tables/summary.csv").text)))
    assert [row["method"] for row in summary][:2] == ["majority", "manual"]
    assert float(summary[1]["P@1"]) == finished_probe.document["summary"][1]["p1"]
    assert b">of</text>" in researcher_client.get(f"{address}figures/words-1.svg").content
    assert researcher_client.get(f"{address}figures/words-5.svg").status_code == 404
    statistics = list(csv.DictReader(io.StringIO(researcher_client.get(f"{address}tables/statistics.csv").text)))
    assert {"norm ratio, soft, capital_of", "given prompts", "facts"} <= {row["statistic"] for row in statistics}
    comparisons = list(csv.DictReader(io.StringIO(researcher_client.get(f"{address}tables/comparisons.csv").text)))
    assert [(row["method"], row["compared with"]) for row in comparisons[:3]] == [
        ("majority", "manual"),
        ("manual", ""),
        ("soft", "manual"),
    ]
    assert researcher_client.get(f"{address}tables/nothing.csv").status_code == 404


def test_records_and_prompts_download_as_json_lines(researcher_client, finished_probe):
    files = (
        researcher_client.get(f"{finished_probe.get_absolute_url()}{name}.jsonl") for name in ("records", "prompts")
    )
    records, prompts = (list(map(json.loads, file.getvalue().splitlines())) for file in files)

    assert [record["method"] for record in records] == [method for method in finished_probe.methods for _ in range(4)]
    assert [record["type"] for record in records[:4]] == ["1-1", "N-1", "N-M", "N-1"]
    assert (records[0]["p1"], records[0]["control_p1"], records[0]["control"]["p10"]) == (0.2, 0.0, 0.8)
    assert {prompt["method"] for prompt in prompts} == {"manual", "soft", "bertese"}
    assert {prompt["method"]: prompt["vectors"] for prompt in prompts}["soft"] == "k05VTVBZ"


def test_cancelled_probe_shows_its_results_so_far(researcher_client, finished_probe):
    Probe.objects.update(status=Job.Status.CANCELLED, document={})

    page = researcher_client.get(finished_probe.get_absolute_url()).text

    assert "The results so far are saved" in page
    assert "Resume" in page
    assert "Control: the same LM with random weights" in page


def test_page_warns_if_methods_cover_different_relations(researcher_client, finished_probe):
    Probe.objects.update(status=Job.Status.CANCELLED, document={})
    ProbeRecord.objects.filter(method="soft", relation__name__in=["made_of", "colour_of"]).delete()

    response = researcher_client.get(finished_probe.get_absolute_url())

    rows = {row.values[0]: row.values[1] for row in response.context["methods"].rows}
    assert rows == {"majority": 4, "manual": 4, "soft": 2, "bertese": 4}
    assert "different numbers of relations are not comparable" in response.text


def test_pages_use_a_constant_number_of_queries(researcher_client, finished_probe, django_assert_max_num_queries):
    finished_probe.relations.create(name="more", type="1-1", prompts=[], facts={})
    relation = finished_probe.relations.first()

    for path, n in (("", 8), (f"{finished_probe.pk}/", 7), (f"{finished_probe.pk}/prompts/{relation.pk}/", 9)):
        with django_assert_max_num_queries(n):
            assert researcher_client.get(f"/reports/probes/{path}").status_code == 200


def test_probes_are_closed_to_annotators(client, finished_probe):
    client.force_login(make_user())

    for path in (
        "",
        "new/",
        f"{finished_probe.pk}/",
        f"{finished_probe.pk}/records.jsonl",
        f"{finished_probe.pk}/figures/methods.svg",
    ):
        assert client.get(f"/reports/probes/{path}").status_code == 403
    assert client.post(f"/reports/probes/{finished_probe.pk}/retry/").status_code == 403
    assert client.get(f"/api/v1/probes/{finished_probe.pk}/").status_code == 403
