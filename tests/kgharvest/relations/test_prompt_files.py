"""Import of LPAQA prompt files: duplicates, weights, origins, and errors."""

from __future__ import annotations

import json
import shutil

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.urls import reverse

from kgharvest.harvests.runner import HarvestRequest, create_harvest_job
from kgharvest.models import Prompt, Relation
from kgharvest.relations.names import resolve_set
from kgharvest.relations.prompt_files import AddedPrompts, import_prompts, prompt_files_at
from tests.factories import make_language_model, make_relation, make_relation_set
from tests.refusals import refused

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("installation_owner")]

INITIAL = "<ENT0> is the capital of <ENT1> ."


@pytest.fixture
def capitals():
    relation_set = make_relation_set("geography")
    make_relation("borders", relation_set=relation_set, prompts=["<ENT0> borders <ENT1> ."])
    return make_relation("capital_of", relation_set=relation_set, initial_prompts=[INITIAL], prompts=[])


@pytest.fixture
def folder(tmp_path):
    """LPAQA's layout: one folder per origin of prompts."""
    write(tmp_path / "mine" / "capital_of.jsonl", ("[X] , capital of [Y] .", 0.7), ("[Y] 's capital [X] .", 0.01))
    write(tmp_path / "paraphrase" / "capital_of.jsonl", ("[X] governs [Y].", 0.2), ("[X] , capital of [Y].", 0.1))
    write(tmp_path / "manual" / "capital_of.jsonl", ("[X] is the capital of [Y] .", None))
    return tmp_path


def imported_from(path, origin=None, least_weight=None):
    return import_prompts(prompt_files_at(path, origin), resolve_set("geography"), least_weight)


def write(path, *prompts):
    path.parent.mkdir(exist_ok=True)
    lines = [{"template": text} | ({} if weight is None else {"weight": weight}) for text, weight in prompts]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_prompts_are_added_once_with_their_origin(capitals, folder):
    imported = imported_from(folder)

    capitals.refresh_from_db()
    assert capitals.prompts == [
        INITIAL,
        "<ENT0> , capital of <ENT1> .",
        "<ENT1> 's capital <ENT0> .",
        "<ENT0> governs <ENT1>.",
    ]
    assert imported.relations == [AddedPrompts(capitals, n_added=3, n_duplicate=2, n_light=0)]
    assert dict(Prompt.objects.values_list("text", "origin")) == {
        "<ENT0> , capital of <ENT1> .": "mined",
        "<ENT1> 's capital <ENT0> .": "mined",
        "<ENT0> governs <ENT1>.": "paraphrased",
    }
    assert imported_from(folder).relations == [AddedPrompts(capitals, 0, 5, 0)]


def test_imported_prompts_are_appended_to_predefined_prompts(capitals, tmp_path):
    write(tmp_path / "borders.jsonl", ("[X] is next to [Y] .", None))

    imported_from(tmp_path / "borders.jsonl", origin="manual")

    assert Relation.objects.get(name="borders").prompts == ["<ENT0> borders <ENT1> .", "<ENT0> is next to <ENT1> ."]
    assert Prompt.objects.get().origin == "manual"


def test_prompts_below_the_minimum_weight_are_skipped(capitals, folder):
    imported = imported_from(folder, least_weight=0.15)

    capitals.refresh_from_db()
    assert imported.relations == [AddedPrompts(capitals, n_added=2, n_duplicate=1, n_light=2)]
    assert capitals.prompts == [INITIAL, "<ENT0> , capital of <ENT1> .", "<ENT0> governs <ENT1>."]


@pytest.mark.parametrize("setting", ["lpaqa", "soft"])
def test_prompt_weighting_settings_use_imported_prompts(capitals, folder, setting):
    imported_from(folder)
    capitals.refresh_from_db()

    job = create_harvest_job(HarvestRequest(capitals, make_language_model(), setting))

    assert job.payload["spec"]["prompts"] == capitals.prompts


def test_the_command_prints_added_prompts_and_missing_relations(capitals, folder, capsys):
    write(folder / "mine" / "speaks.jsonl", ("[X] speaks [Y] .", 1))

    call_command("import_prompts", folder, set_name="geography", least_weight=0.05)

    printed = capsys.readouterr()
    assert "capital_of: 2 prompts added (skipped: 2 duplicates, 1 below the minimum weight)" in printed.out
    assert printed.err == "The set geography has no binary relation speaks.\n"


def test_the_relation_page_shows_the_origin_of_prompts(capitals, folder, researcher_client):
    imported_from(folder)

    page = researcher_client.get(reverse("kgharvest:relation_detail", args=[capitals.pk])).content.decode()

    assert page.count(">mined</small>") == 2
    assert page.count(">paraphrased</small>") == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"template": "[X] is in"}', r"\[Y\] occurs 0 times"),
        ('{"template": "[X] [X] [Y]"}', r"\[X\] occurs 2 times"),
        ('{"template": 5}', '"template" is missing or not a text'),
        ('{"template": "[X] <ENT0> [Y]"}', ".* the slot <ENT0> twice"),
        ('{"template": "[X] \\u0000 [Y]"}', ".* has a control character"),
        ('{"template": "[X] in [Y]", "weight": "much"}', "the weight 'much' is not a number"),
        ('["[X] in [Y]"]', "is not a JSON object"),
        ('{"template": ', "is not JSON"),  # truncated; the error names this line
    ],
)
def test_bad_lines_are_listed_and_nothing_is_added(capitals, folder, line, reason):
    with (folder / "mine" / "capital_of.jsonl").open("a") as file:
        file.write(f"{line}\n" * 2)

    with pytest.raises(CommandError, match=rf"mine/capital_of.jsonl, line 3.*: {reason}.*\n.*line 4.*: {reason}"):
        call_command("import_prompts", folder, set_name="geography")

    capitals.refresh_from_db()
    assert capitals.prompts == []
    assert not Prompt.objects.exists()


def test_the_command_reports_why_an_import_failed(capitals, folder, tmp_path):
    make_relation("capital_of", relation_set=make_relation_set("shipped", is_shipped=True))
    make_relation("prevent", relation_set=make_relation_set("other"))

    for path, set_name, sentence in [
        (folder, "shipped", "is built-in"),
        (folder, "other", r"none of the relations of these prompts \(capital_of\)"),
        (folder, "nowhere", "no relation set 'nowhere'"),
        (tmp_path / "nothing.jsonl", "geography", "cannot be read"),
        (tmp_path / "empty", "geography", "contains no RELATION.jsonl"),
    ]:
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(CommandError, match=sentence):
            call_command("import_prompts", path, set_name=set_name)


def test_the_released_prompts_are_imported(public_data, tmp_path):
    relation_set = make_relation_set("released")
    relations = sorted(path.name for path in (public_data / "lama" / "facts").iterdir())
    for name in relations:
        make_relation(name, relation_set=relation_set, initial_prompts=["<ENT0> : <ENT1>"], prompts=[])
    shutil.copytree(public_data / "lama" / "prompts", tmp_path / "prompts")

    imported = import_prompts(prompt_files_at(tmp_path / "prompts"), relation_set)

    assert {relation_prompts.relation.name for relation_prompts in imported.relations} == set(relations)
    assert (
        sum(relation_prompts.n_added + relation_prompts.n_duplicate for relation_prompts in imported.relations) == 534
    )
    assert set(Prompt.objects.values_list("origin", flat=True)) == {"manual", "mined", "paraphrased"}


# Page


def upload_prompts(client, capitals, folder, *places, **fields):
    files = [SimpleUploadedFile(path.rpartition("/")[2], (folder / path).read_bytes()) for path in places]
    address = reverse("kgharvest:set_prompts", args=[capitals.relation_set.pk])
    return client.post(address, {"files": files, "origin": "mined", **fields}, follow=True)


def test_prompts_are_imported_on_the_page_of_a_set(capitals, folder, researcher_client):
    write(folder / "mine" / "borders.jsonl", ("[X] is next to [Y] .", 0.5))

    page = upload_prompts(
        researcher_client, capitals, folder, "mine/capital_of.jsonl", "mine/borders.jsonl", least_weight="0.1"
    )

    assert "2 relations: 2 prompts added (skipped: 1 below the minimum weight)." in page.content.decode()
    added = dict(Prompt.objects.values_list("relation__name", "origin"))
    assert added == {"capital_of": "mined", "borders": "mined"}


def test_the_page_lists_errors(capitals, folder, researcher_client):
    (folder / "bad.jsonl").write_text('{"template": "[X]"}\n')

    page = upload_prompts(researcher_client, capitals, folder, "mine/capital_of.jsonl", "bad.jsonl").content.decode()

    assert "Import failed: the files" in page
    assert "bad.jsonl, line 1" in page
    assert not Prompt.objects.exists()


def test_page_rejects_other_relations_missing_files_and_annotators(capitals, folder, researcher_client, client):
    write(folder / "speaks.jsonl", ("[X] speaks [Y] .", 1))
    assert (
        "none of the relations of these prompts (speaks)"
        in upload_prompts(researcher_client, capitals, folder, "speaks.jsonl").content.decode()
    )

    assert "This field is required" in upload_prompts(researcher_client, capitals, folder).content.decode()

    client.logout()
    assert "/accounts/login/" in upload_prompts(client, capitals, folder, "speaks.jsonl").redirect_chain[-1][0]


def test_oversized_folder_is_rejected(tmp_path, monkeypatch):
    for name in ("a.txt", "b.txt", "c.jsonl"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr("kgharvest.relations.prompt_files.MOST_ENTRIES", 2)

    with refused("NoSuchFile", match="more than 2 entries"):
        prompt_files_at(tmp_path)
