"""Python API: harvests without server and database, equal to those of the platform."""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest
import torch
from django.core.management import call_command

import kgharvest as kg
from kgharvest import progress_bar
from kgharvest.engine.language_models import encoder_decoder, threads
from kgharvest.engine.types import BadSeed, EngineError, HarvestParams, ModelNotFound, ParaphraserSettings, Progress
from kgharvest.harvests import language_models
from kgharvest.models import HarvestJob, JobPrompt, LanguageModel
from kgharvest.progress_bar import ProgressBar
from kgharvest.python_api import BAR_DELAY_S, RankedTuple
from tests import factories
from tests.kgharvest.engine.fakes import FakeLM
from tests.kgharvest.engine.prompts.test_seq2seq import tiny_t5

ROOT = Path(__file__).resolve().parents[2]
PROMPT = "<ENT0> is the capital of <ENT1> ."
SEEDS = [("paris", "france"), ("rome", "italy")]
SHORT = {"candidates": 40, "max_entity_tokens": 1}
WORDS = ["paris", "france", "rome", "italy", "berlin", "germany"]
FACTS = {
    (): {"paris": 0.4, "rome": 0.3, "berlin": 0.2},
    ("paris",): {"france": 0.9},
    ("rome",): {"italy": 0.8},
    ("berlin",): {"germany": 0.7},
}


@pytest.fixture(scope="module")
def lm():
    return kg.load_lm("embedded-small")


@pytest.fixture
def capitals():
    return kg.harvest(PROMPT, SEEDS, FakeLM(WORDS, FACTS), setting="human", candidates=3, max_entity_tokens=1)


def test_harvest_needs_neither_django_nor_celery_nor_transformers():
    code = f"""if True:
        import kgharvest as kg, sys
        lm = kg.load_lm("embedded-small")
        tuples = kg.harvest({PROMPT!r}, {SEEDS!r}, lm, setting="human", max_tuples=5, candidates=20)
        tuples.to_pandas(), tuples._repr_html_()
        kg.accuracy([{{"item": "sky is blue", "annotator": name, "label": "True"}} for name in ("a1", "a2")])
        print(len(tuples), *[name for name in ("django", "celery", "transformers", "httpx") if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("5\n", "")


def test_public_names_are_loaded_on_first_use():
    assert set(kg.LAZY) <= {*kg.__all__} <= {*dir(kg)}
    assert all(callable(getattr(kg, name)) for name in kg.LAZY)
    with pytest.raises(AttributeError, match="havrest"):
        kg.havrest  # noqa: B018


@pytest.mark.django_db
@pytest.mark.parametrize("setting", ["human", "multi"])
def test_tuples_equal_those_of_the_platform(setting, lm):
    factories.make_relation("capital_of", initial_prompts=[PROMPT], seed_tuples=[list(seed) for seed in SEEDS])
    options = {"relation": ["capital_of"], "model": ["embedded-small"], "setting": [setting], "wait": True}

    call_command("harvest", **options, **SHORT, max_tuples=30)
    tuples = kg.harvest(PROMPT, SEEDS, lm, setting=setting, **SHORT, max_tuples=30)

    job = HarvestJob.objects.get()
    of_platform = job.tuples.order_by("rank").values_list(
        "rank", "knowledge_tuple__entities", "surface", "score", "mtl"
    )
    assert [(t.rank, list(t.entities), list(t.surface), t.score, t.mtl) for t in tuples] == list(of_platform)
    assert len(tuples) == 30
    weights = {prompt.prompt.text: prompt.weight for prompt in JobPrompt.objects.select_related("prompt")}
    assert {prompt.text: prompt.weight for prompt in tuples.prompts} == weights
    assert tuples.rejected == job.summary["rejected"]
    assert tuples.revision == job.summary["revision"]


def test_harvest_is_an_immutable_sequence_of_ranked_tuples(capitals):
    first = capitals[0]

    assert first == RankedTuple(("paris", "france"), ("paris", "france"), first.score, first.mtl, rank=1)
    assert [harvested.rank for harvested in capitals] == [1, 2, 3]
    assert capitals[1:] == tuple(capitals)[1:]
    assert first in capitals
    with pytest.raises(FrozenInstanceError):
        capitals.tuples = ()
    with pytest.raises(FrozenInstanceError):
        first.rank = 2


def test_to_pandas_has_a_row_per_tuple(capitals):
    frame = capitals.to_pandas()

    assert list(frame.columns) == ["rank", "entities", "surface", "score", "mtl"]
    assert frame.entities.tolist() == [("paris", "france"), ("rome", "italy"), ("berlin", "germany")]
    assert frame.score.tolist() == [harvested.score for harvested in capitals]


@pytest.mark.django_db
def test_jsonl_file_can_be_imported_by_the_platform(capitals, tmp_path):
    factories.make_relation("capital_of", initial_prompts=[PROMPT], seed_tuples=[list(seed) for seed in SEEDS])
    path = tmp_path / "capitals.jsonl"

    capitals.to_jsonl(path, "capital_of")
    call_command("import_tuples", path, relation="capital_of", model="elsewhere", setting="human")

    stored = HarvestJob.objects.get().tuples.order_by("rank").values_list("knowledge_tuple__entities", "score")
    assert list(stored) == [(list(harvested.entities), harvested.score) for harvested in capitals]
    assert json.loads(path.read_text().splitlines()[0])["setting"] == "human"


def test_notebook_display_is_escaped(capitals):
    odd = replace(capitals[0], surface=("<script>", "a & b"))
    html = replace(capitals, tuples=(odd,), lm="<b>", warning="1 < 2")._repr_html_()

    assert "&lt;script&gt;" in html
    assert "a &amp; b" in html
    assert "1 &lt; 2" in html
    assert "<script>" not in html
    assert "<b>" not in html


def test_displays_show_the_first_tuples_of_a_long_list(capitals):
    many = replace(capitals, tuples=capitals.tuples * 10)

    assert repr(many).count("paris") == 7
    assert "and 10 more" in repr(many)
    assert many._repr_html_().count("<tr>") == 1 + 20


def test_displays_of_an_empty_harvest(capitals):
    empty = replace(capitals, tuples=())

    assert "0 tuples" in repr(empty)
    assert "0 tuples" in empty._repr_html_()
    assert list(empty.to_pandas().columns) == ["rank", "entities", "surface", "score", "mtl"]


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"max_tuple": 5}, "Did you mean max_tuples"),
        ({"nonsense": 5}, "candidates"),
        ({"max_tuples": 0}, "max_tuples is 0"),
        ({"max_tuples": "10"}, "max_tuples is '10'"),
        ({"max_entity_tokens": None}, "max_entity_tokens is None"),
        ({"alpha": 2}, "alpha is 2"),
        ({"disabled_filters": ["stopword"]}, "'stopword'"),
        ({"setting": "many"}, "'many'"),
        ({"setting": "llm"}, "llm"),
    ],
)
def test_invalid_parameters(params, error):
    with pytest.raises(EngineError, match=error):
        kg.harvest(PROMPT, SEEDS, FakeLM(WORDS, FACTS), **params)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"initial_prompts": None}, "initial_prompts is None"),
        ({"initial_prompts": [PROMPT, 3]}, "initial_prompts is "),
        ({"initial_prompts": "paris"}, "'paris' has no slot"),
        ({"prompts": None}, "prompts is None"),
        ({"seed_tuples": None}, "seed_tuples is None"),
        ({"seed_tuples": []}, "0 seed tuple"),
        (
            {"seed_tuples": [("paris", "france", "rome"), ("rome", "italy", "paris")]},
            "2 slots but the seed tuples have 3 entities",
        ),
        ({"negative_seed_tuples": None}, "negative_seed_tuples is None"),
        ({"lm": None}, "The LM is None"),
        ({"setting": ["human"]}, "setting is .'human'"),
        ({"setting": None}, "setting is None"),
        ({"paraphraser": "offline"}, "paraphraser is 'offline'"),
        ({"heads": None}, "heads is None"),
        ({"disabled_filters": None}, "disabled_filters is None"),
    ],
)
def test_invalid_arguments_are_named(arguments, name):
    valid = {"initial_prompts": PROMPT, "seed_tuples": SEEDS, "lm": FakeLM(WORDS, FACTS), "setting": "human"}

    with pytest.raises(EngineError, match=name):
        kg.harvest(**valid | arguments)


@pytest.mark.parametrize("seeds", [["paris", "france"], [("paris", "france"), ("rome", 5)], [None], [()]])
def test_seed_tuples_must_be_tuples_of_strings(seeds):
    with pytest.raises(BadSeed, match="not a tuple of strings"):
        kg.harvest(PROMPT, seeds, FakeLM(WORDS, FACTS))


def test_one_filter_can_be_disabled_by_its_name():
    lm = FakeLM([*WORDS, "this"], {(): {"this": 0.9}, ("this",): {"france": 0.9}})
    with_filter = kg.harvest(PROMPT, SEEDS, lm, setting="human", **SHORT)
    without = kg.harvest(PROMPT, SEEDS, lm, setting="human", **SHORT, disabled_filters="stop_word")

    assert with_filter.rejected["stop_word"] > 0
    assert "this" not in {entity for harvested in with_filter for entity in harvested.entities}
    assert without[0].entities == ("this", "france")


def test_signature_lists_every_parameter_of_a_harvest():
    parameters = inspect.signature(kg.harvest).parameters

    assert {name: parameters[name].default for name in parameters.keys() & {f.name for f in fields(HarvestParams)}} == {
        field.name: field.default for field in fields(HarvestParams)
    }


def test_an_lm_can_be_named():
    assert kg.harvest(PROMPT, SEEDS, "embedded-small", setting="human", **SHORT).lm == "embedded-small"


@pytest.mark.parametrize("name", ["./missing", "embedded@main", None, 3])
def test_load_lm_rejects_names_of_no_lm(name):
    with pytest.raises(ModelNotFound):
        kg.load_lm(name)


@pytest.mark.parametrize("name", ["embedded", "./folder"])
def test_only_hub_models_have_revisions(name):
    with pytest.raises(ModelNotFound, match="revision"):
        kg.load_lm(name, revision="main")


def test_random_weights_are_a_control(lm):
    control = kg.load_lm("embedded-small", random_seed=0)

    assert (
        kg.harvest(PROMPT, SEEDS, control, setting="human", **SHORT)[0]
        != (kg.harvest(PROMPT, SEEDS, lm, setting="human", **SHORT)[0])
    )


class TestThreads:
    @pytest.fixture(autouse=True)
    def _two_threads(self, monkeypatch):
        monkeypatch.setattr(threads, "_default", None)  # other tests may have loaded LMs as workers do
        n_threads = torch.get_num_threads()
        torch.set_num_threads(2)
        yield
        torch.set_num_threads(n_threads)

    @pytest.fixture
    def threads_used(self, lm, monkeypatch):
        """Numbers of threads at each evaluation of the LM."""
        numbers: set[int] = set()
        vectors = type(lm).vectors

        def recorded(self, *arguments):
            numbers.add(torch.get_num_threads())
            return vectors(self, *arguments)

        monkeypatch.setattr(type(lm), "vectors", recorded)
        return numbers

    def test_a_small_lm_uses_one(self, lm, threads_used):
        kg.harvest(PROMPT, SEEDS, lm, setting="human", **SHORT)

        assert threads_used == {1}
        assert torch.get_num_threads() == 2

    def test_a_larger_lm_uses_the_number_of_the_caller(self, lm, threads_used, monkeypatch):
        monkeypatch.setattr(lm, "weights_per_token", 100_000_000)

        kg.harvest(PROMPT, SEEDS, lm, setting="human", **SHORT)

        assert threads_used == {2}

    @pytest.mark.parametrize(("weights", "n_threads"), [(100_000_000, 2), (1_000_000, 1)])
    def test_a_paraphraser_uses_the_number_for_its_own_size(
        self, weights, n_threads, lm, threads_used, monkeypatch, tmp_path
    ):
        numbers: set[int] = set()
        encoded = encoder_decoder.Seq2SeqModel._encoded

        def recorded(self, text):
            numbers.add(torch.get_num_threads())
            return encoded(self, text)

        monkeypatch.setattr(encoder_decoder.Seq2SeqModel, "_encoded", recorded)
        monkeypatch.setattr(encoder_decoder, "weights_per_token", lambda model: weights)
        paraphraser = ParaphraserSettings(kind="seq2seq", model=str(tiny_t5(tmp_path)))

        kg.harvest(PROMPT, SEEDS, lm, setting="multi", paraphraser=paraphraser, **SHORT)

        assert (numbers, threads_used) == ({n_threads}, {1})
        assert torch.get_num_threads() == 2

    def test_workers_follow_the_same_rule(self, monkeypatch):
        monkeypatch.setattr(language_models, "_loaded", {})
        named = LanguageModel(name="embedded-small")

        lm = language_models.load(named, "cpu", "float32")
        assert torch.get_num_threads() == 1

        monkeypatch.setattr(lm, "weights_per_token", 100_000_000)
        with threads.suitable_threads(lm):  # as for a large paraphraser of a small LM
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 1
        assert language_models.load(named, "cpu", "float32") is lm
        assert torch.get_num_threads() == 2

    def test_an_interrupt_restores_the_number_and_leaves_the_lm_usable(self, lm, monkeypatch):
        complete = kg.harvest(PROMPT, SEEDS, lm, setting="human", **SHORT)
        with monkeypatch.context() as patched:
            patched.setattr(lm, "logits", lambda vectors: signal.raise_signal(signal.SIGINT), raising=False)
            handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # background shells ignore SIGINT
            try:
                with pytest.raises(KeyboardInterrupt):
                    kg.harvest(PROMPT, SEEDS, lm, setting="human", **SHORT)
            finally:
                signal.signal(signal.SIGINT, handler)

        assert torch.get_num_threads() == 2
        assert kg.harvest(PROMPT, SEEDS, lm, setting="human", **SHORT) == complete


class Clock:
    """Time that tests set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_bar_appears_after_its_delay(monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr(progress_bar, "monotonic", clock)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    with ProgressBar("harvest", BAR_DELAY_S) as bar:
        bar(Progress("search", 1, 10))
        assert capsys.readouterr().err == ""
        clock.now = BAR_DELAY_S
        bar(Progress("search", 3, 10))

        assert "harvest: search" in capsys.readouterr().err


def test_progress_bar_is_silent_without_terminal(capsys):
    with ProgressBar("harvest") as bar:
        bar(Progress("search", 3, 10))

    assert capsys.readouterr().err == ""
