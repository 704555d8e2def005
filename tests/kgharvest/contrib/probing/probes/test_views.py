"""Pages of probes: asked for in a form, watched, read, taken away as files."""

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


def filled_in(relation=None, **fields) -> dict:
    chosen = {"relations": [relation.pk]} if relation else {}
    budget = {"iterations": 6, "epochs": 2, "seed": 0}
    return {"model": "embedded-small", "methods": ["manual"], **budget, **chosen, **fields}


def as_zip(**parts: list[dict]) -> SimpleUploadedFile:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for part, lines in parts.items():
            archive.writestr(f"facts/capital_of/{part}.jsonl", "\n".join(map(json.dumps, lines)))
    return SimpleUploadedFile("facts.zip", buffer.getvalue())


def as_broken_zip(lines: list[dict]) -> SimpleUploadedFile:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("capital_of/dev.jsonl", "\n".join(map(json.dumps, lines)))
    content = buffer.getvalue()
    return SimpleUploadedFile("facts.zip", content[:60] + b"\xff" * 20 + content[80:])


def as_lines(*lines: object, name: str = "facts.jsonl") -> SimpleUploadedFile:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return SimpleUploadedFile(name, "\n".join(texts).encode())


def pairs_of(part: str) -> list[dict]:
    return [{"sub": subject, "obj": obj} for subject, obj in split_world()["capital_of"][part]]


@pytest.fixture
def done(db) -> Probe:
    return make_probe()


# -- asking for one ----------------------------------------------------------------------------------------------------


def test_a_device_of_a_worker_is_offered_and_asked(researcher_client, capitals, enqueued):
    make_worker(timezone.now(), devices=["cuda:0, NVIDIA H200, 140 GiB", "cpu, 16 cores"])

    refused = researcher_client.post(NEW, filled_in(capitals, device="cuda:1"))
    without_gpu = researcher_client.post(NEW, filled_in(capitals, dtype="int8"))
    on_gpu = filled_in(capitals, device="cuda:0", dtype="int8", other_model="some/bert")
    small = researcher_client.post(NEW, filled_in(capitals, device="cuda:0", dtype="int8"))
    with_control = researcher_client.post(NEW, on_gpu | {"with_control": "on"})
    researcher_client.post(NEW, on_gpu)

    assert "cuda:1 is not one of the available choices" in refused.text
    assert "Weights in int8 require an NVIDIA GPU" in without_gpu.text
    assert "embedded-small does not support int8" in small.text
    assert "The control does not support int8" in with_control.text
    assert Probe.objects.get().lm == "some/bert on cuda:0, int8"


def test_the_empty_list_says_what_a_probe_is_and_offers_the_demo_set(researcher_client):
    demo = make_relation_set("demo", is_shipped=True)

    page = researcher_client.get("/reports/probes/").text

    assert "No probes yet" in page
    assert f"{NEW}?set={demo.pk}" in page


def test_a_whole_set_is_probed_without_its_relations_of_three(researcher_client, capitals, enqueued):
    make_relation(name="need_a_to_do_b", arity=3, relation_set=capitals.relation_set)

    researcher_client.post(NEW, filled_in(sets=[capitals.relation_set.pk]))

    probe = Probe.objects.get()
    assert enqueued == [probe.pk]
    assert [relation.name for relation in probe.relations.all()] == ["capital_of"]
    assert (probe.name, probe.facts, probe.status) == ("known", "embedded LM's world", "queued")
    assert not probe.payload["with_control"]


def test_what_the_picker_says_of_a_set_holds_for_one_relation_too(researcher_client, capitals):
    assert "1 relation with a subject and an object" in researcher_client.get(NEW).content.decode()


def test_facts_and_prompts_of_ones_own_are_frozen_in_the_probe(researcher_client, capitals, enqueued):
    facts = as_zip(**{part: pairs_of(part) for part in ("train", "dev", "test")})
    prompts = as_lines(
        {"relation": "capital_of", "template": "[Y] has the capital [X] .", "type": "N-M"}, name="relations.jsonl"
    )

    researcher_client.post(NEW, filled_in(capitals, facts=facts, prompts=prompts))

    relation = Probe.objects.get().relations.get()
    assert relation.facts["train"][0] == list(split_world()["capital_of"]["train"][0])
    assert relation.prompts[-1] == "<ENT1> has the capital <ENT0> ."
    assert relation.type == "N-M"


def test_notes_of_macos_in_a_zip_file_are_passed_over(researcher_client, capitals, enqueued):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for part in ("train", "dev", "test"):
            archive.writestr(f"capital_of/{part}.jsonl", "\n".join(map(json.dumps, pairs_of(part))))
            archive.writestr(f"__MACOSX/capital_of/._{part}.jsonl", b"\x00\x05\x16\x07\xff")

    researcher_client.post(NEW, filled_in(capitals, facts=SimpleUploadedFile("facts.zip", buffer.getvalue())))

    assert Probe.objects.get().relations.get().name == "capital_of"


def test_lines_of_one_file_can_state_relation_and_part(researcher_client, capitals, enqueued):
    lines = [
        {"predicate_id": "capital_of", "part": part, "sub_label": f"town {part}", "obj_label": "france"}
        for part in ("train", "dev", "test")
    ]

    researcher_client.post(NEW, filled_in(capitals, facts=as_lines(*lines)))

    assert Probe.objects.get().relations.get().facts["dev"] == [["town dev", "france"]]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (lambda: as_lines("{", '{"part": "train"}', "[]"), "line 3: is not a JSON object"),
        (lambda: as_lines("{", '{"part": "train"}', "[]"), "line 2: lacks the texts"),
        (lambda: as_lines({"sub": "a", "obj": "b"}), "has no part; add &quot;part&quot;"),
        (lambda: as_lines({"part": "dev", "sub": "a", "obj": "b" * 300}), "more than 200 characters"),
        (lambda: as_lines({"part": "dev", "sub": "a", "obj": "b"}), "capital_of has no train and no test facts"),
        (lambda: as_zip(dev=pairs_of("dev"), test=pairs_of("test")), "capital_of has no train facts"),
        (lambda: as_zip(train=[], dev=pairs_of("dev"), test=pairs_of("test")), "capital_of has no train facts"),
        (lambda: SimpleUploadedFile("facts.zip", b"PK\x03\x04 and no more"), "cannot be unpacked"),
        (lambda: as_broken_zip(pairs_of("dev")), "cannot be unpacked"),
        (lambda: SimpleUploadedFile("facts.jsonl", b"\xff\xfe"), "is not UTF-8"),
    ],
)
def test_facts_that_cannot_be_used_are_refused_beside_the_file(researcher_client, capitals, enqueued, facts, sentence):
    response = researcher_client.post(NEW, filled_in(capitals, facts=facts()))

    assert list(response.context["form"].errors) == ["facts"]
    assert sentence in response.text
    assert not Probe.objects.exists()


def test_of_many_bad_lines_the_first_twenty_and_their_number_are_listed(researcher_client, capitals):
    response = researcher_client.post(NEW, filled_in(capitals, facts=as_lines(*["{}"] * 60)))

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
def test_a_template_without_both_slots_is_refused_beside_the_file(researcher_client, capitals, template, sentence):
    prompts = as_lines({"relation": "capital_of", "template": template}, name="prompts.jsonl")

    response = researcher_client.post(NEW, filled_in(capitals, prompts=prompts))

    assert sentence in response.text
    assert list(response.context["form"].errors) == ["prompts"]


def test_a_vocabulary_is_common_with_lms_and_a_file(researcher_client, capitals, enqueued):
    words = SimpleUploadedFile("words.txt", b"france\n\n germany \n")

    researcher_client.post(NEW, filled_in(capitals, common_with="embedded\n", words=words))

    payload = Probe.objects.get().payload
    assert (payload["common_with"], payload["words"]) == (["embedded"], ["france", "germany"])


def test_a_file_without_words_is_refused_beside_the_file(researcher_client, capitals):
    response = researcher_client.post(NEW, filled_in(capitals, words=SimpleUploadedFile("words.txt", b" \n ")))

    assert response.context["form"].errors["words"] == ["words.txt contains no words. Add one word per line."]


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"methods": []}, "methods"), ({"model": ""}, "model"), ({"epochs": 0}, "epochs"), ({}, "relations")],
)
def test_missing_fields_are_reported(researcher_client, capitals, fields, field):
    response = researcher_client.post(NEW, filled_in(capitals if fields else None, **fields))

    assert list(response.context["form"].errors) == [field]


def test_a_model_that_is_not_there_is_refused(researcher_client, capitals, enqueued):
    response = researcher_client.post(NEW, filled_in(capitals, other_model="/no/such/folder"))

    assert "Model &#x27;/no/such/folder&#x27; not found" in response.text


def test_objects_of_several_tokens_fail_with_a_sentence_on_the_page(researcher_client, capitals, enqueued):
    many = {part: [{"sub": "berlin", "obj": "a tree in the garden"}] for part in ("train", "dev", "test")}
    response = researcher_client.post(NEW, filled_in(capitals, facts=as_zip(**many)))

    ledger.run_job(Probe.objects.get().pk)

    page = researcher_client.get(response.url).text
    assert "no usable train fact (1 object of several tokens)." in page
    assert "No results" in page


# -- reading one -------------------------------------------------------------------------------------------------------


def test_a_probe_that_waits_can_be_watched_and_cancelled(researcher_client, capitals, enqueued):
    address = researcher_client.post(NEW, filled_in(capitals)).url

    assert "waiting for a worker" in researcher_client.get(address).text
    assert researcher_client.get(f"/api/v1/probes/{Probe.objects.get().pk}/").json()["status"] == "queued"
    researcher_client.post(f"{address}cancel/")

    assert Probe.objects.get().status == Job.Status.CANCELLED
    researcher_client.post(f"{address}retry/")
    assert Probe.objects.get().status == Job.Status.QUEUED


def test_the_page_shows_methods_with_their_control_apart(researcher_client, done):
    response = researcher_client.get(done.get_absolute_url())

    for table in ("methods", "control"):
        assert [row.values[0] for row in response.context[table].rows] == done.methods
    assert "Control: the same LM with random weights" in response.text
    assert "Differences from the manual prompts" in response.text
    assert NONE_DIFFERS in response.text
    assert "acc-6" in response.text  # .6 is shaded as six tenths


def test_the_learned_prompts_are_shown_with_weights_nearest_words_and_rewrites(researcher_client, done):
    relation = done.relations.first()

    page = researcher_client.get(f"{done.get_absolute_url()}prompts/{relation.pk}/").text

    assert "‹of›" in page
    assert "Nearest words to the 1 soft token" in page
    assert 'in <span class="muted small">0.70</span>' in page
    assert "<td>[MASK] of france</td><td>[MASK] , capital france</td>" in page
    assert page.index('id="majority"') < page.index('id="soft"') < page.index('id="bertese"')
    assert "This method uses no prompts." in page


def test_a_relation_of_another_probe_is_not_there(researcher_client, done):
    relation = done.relations.first()

    assert researcher_client.get(f"/reports/probes/{done.pk + 1}/prompts/{relation.pk}/").status_code == 404


def test_figures_and_tables_come_as_files(researcher_client, done):
    address = done.get_absolute_url()

    assert b"<svg" in researcher_client.get(f"{address}figures/methods.svg", {"theme": "dark"}).content
    assert researcher_client.get(f"{address}figures/differences.pdf").content.startswith(b"%PDF")
    assert researcher_client.get(f"{address}figures/nothing.svg").status_code == 404
    assert r"\begin{table}" in researcher_client.get(f"{address}tables.tex").text
    summary = list(csv.DictReader(io.StringIO(researcher_client.get(f"{address}tables/summary.csv").text)))
    assert [row["method"] for row in summary][:2] == ["majority", "manual"]
    assert float(summary[1]["P@1"]) == done.document["summary"][1]["p1"]
    assert researcher_client.get(f"{address}tables/nothing.csv").status_code == 404


def test_records_and_prompts_come_as_json_lines(researcher_client, done):
    files = (researcher_client.get(f"{done.get_absolute_url()}{name}.jsonl") for name in ("records", "prompts"))
    records, prompts = (list(map(json.loads, file.getvalue().splitlines())) for file in files)

    assert [record["method"] for record in records] == [method for method in done.methods for _ in range(4)]
    assert [record["type"] for record in records[:4]] == ["1-1", "N-1", "N-M", "N-1"]
    assert (records[0]["p1"], records[0]["control_p1"], records[0]["control"]["p10"]) == (0.2, 0.0, 0.8)
    assert {prompt["method"] for prompt in prompts} == {"manual", "soft", "bertese"}
    assert {prompt["method"]: prompt["vectors"] for prompt in prompts}["soft"] == "k05VTVBZ"


def test_cancelled_probe_shows_its_results_so_far(researcher_client, done):
    Probe.objects.update(status=Job.Status.CANCELLED, document={})

    page = researcher_client.get(done.get_absolute_url()).text

    assert "The results so far are saved" in page
    assert "Resume" in page
    assert "Control: the same LM with random weights" in page


def test_methods_on_fewer_relations_so_far_are_not_passed_off_as_comparable(researcher_client, done):
    Probe.objects.update(status=Job.Status.CANCELLED, document={})
    ProbeRecord.objects.filter(method="soft", relation__name__in=["made_of", "colour_of"]).delete()

    response = researcher_client.get(done.get_absolute_url())

    rows = {row.values[0]: row.values[1] for row in response.context["methods"].rows}
    assert rows == {"majority": 4, "manual": 4, "soft": 2, "bertese": 4}
    assert "different numbers of relations are not comparable" in response.text


def test_pages_take_the_same_queries_for_more(researcher_client, done, django_assert_max_num_queries):
    done.relations.create(name="more", type="1-1", prompts=[], facts={})
    relation = done.relations.first()

    for path, n in (("", 8), (f"{done.pk}/", 7), (f"{done.pk}/prompts/{relation.pk}/", 9)):
        with django_assert_max_num_queries(n):
            assert researcher_client.get(f"/reports/probes/{path}").status_code == 200


def test_probes_are_closed_to_annotators(client, done):
    client.force_login(make_user())

    for path in ("", "new/", f"{done.pk}/", f"{done.pk}/records.jsonl", f"{done.pk}/figures/methods.svg"):
        assert client.get(f"/reports/probes/{path}").status_code == 403
    assert client.post(f"/reports/probes/{done.pk}/retry/").status_code == 403
    assert client.get(f"/api/v1/probes/{done.pk}/").status_code == 403
