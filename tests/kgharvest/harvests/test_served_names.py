"""Names of LMs on servers. Only servers listed by the operator are contacted."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from kgharvest.environment import lm_servers
from kgharvest.errors import NotFound
from kgharvest.harvests import language_models
from kgharvest.models import LanguageModel
from tests.fake_lm_server import TinyServer, serving_lm
from tests.kgharvest.engine.tiny_models import tiny_gpt2

pytestmark = pytest.mark.django_db
URL = "http://gpu.example:8000/v1"


@pytest.fixture
def listed(settings):
    settings.LM_SERVERS = {URL: ""}


@pytest.mark.parametrize("find", [language_models.get_language_model, language_models.language_model_for_pages])
def test_listed_server_is_named_by_url_and_model(listed, find):
    assert find(f"{URL}#Qwen/Qwen3-8B").name == f"{URL}#Qwen/Qwen3-8B"
    assert find(f"{URL}/#q@Qwen/Qwen3-8B").name in {f"{URL}#q@Qwen/Qwen3-8B", f"{URL}/#q@Qwen/Qwen3-8B"}


@pytest.mark.parametrize("find", [language_models.get_language_model, language_models.language_model_for_pages])
def test_unlisted_server_is_rejected(listed, find):
    with pytest.raises(NotFound, match="KGHARVEST_LM_SERVERS"):
        find("http://169.254.169.254/v1#Qwen/Qwen3-8B")


def test_an_existing_row_does_not_bypass_the_list_of_servers(listed):
    row = language_models.name_language_model("http://169.254.169.254/v1#Qwen/Qwen3-8B")

    with pytest.raises(NotFound, match="KGHARVEST_LM_SERVERS"):
        language_models.language_model_for_pages(row.name)
    with pytest.raises(NotFound, match="KGHARVEST_LM_SERVERS"):
        language_models.load(row, "cpu", "float32")


def test_pages_reject_tokenizers_from_folders(listed):
    with pytest.raises(NotFound, match="not a hub id"):
        language_models.language_model_for_pages(f"{URL}#q@/etc")


def test_served_lm_is_loaded_by_name(settings, tmp_path):
    folder = tiny_gpt2(tmp_path)
    with serving_lm(TinyServer(folder)) as fake:
        settings.LM_SERVERS = {fake.url: ""}
        row = language_models.get_language_model(f"{fake.url}#tiny@{folder}")
        lm = language_models.load(row, "cpu", "float32")

    assert LanguageModel.objects.get().name == f"{fake.url}#tiny@{folder}"
    assert (lm.revision, lm.client.n_ranked) == ("as served", 20)


def test_api_key_is_sent_only_to_its_server(settings, tmp_path, monkeypatch):
    folder = tiny_gpt2(tmp_path)
    monkeypatch.setenv("KEY_OF_LAB", "kept-by-the-lab")
    with serving_lm(TinyServer(folder)) as lab, serving_lm(TinyServer(folder)) as other:
        monkeypatch.setenv("KGHARVEST_LM_SERVERS", f"{lab.url}/=KEY_OF_LAB {other.url}")
        settings.LM_SERVERS = lm_servers("KGHARVEST_LM_SERVERS")
        for fake in (lab, other):
            language_models.load(language_models.get_language_model(f"{fake.url}#tiny@{folder}"), "cpu", "float32")

    assert {headers.get("Authorization") for headers in lab.headers} == {"Bearer kept-by-the-lab"}
    assert {headers.get("Authorization") for headers in other.headers} == {None}


@pytest.mark.parametrize(
    "variables",
    [
        {"KGHARVEST_LM_SERVERS": "gpu.example:8000/v1"},
        {"KGHARVEST_LM_SERVERS": f"{URL}=sk-secret"},
        {"KGHARVEST_LM_SERVERS": f"{URL} https://b.example/v1", "KGHARVEST_LM_SERVER_API_KEY": "sk-secret"},
    ],
)
def test_invalid_servers_are_rejected_without_disclosing_the_key(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(ImproperlyConfigured, match=r"^KGHARVEST_LM_SERVER.*[.]$") as refused:
        lm_servers("KGHARVEST_LM_SERVERS")

    assert "secret" not in str(refused.value)
