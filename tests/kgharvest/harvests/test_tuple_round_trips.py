"""Round trips of unusual tuples: import, export in every format, and repeated import."""

from __future__ import annotations

import json
import unicodedata
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
from rdflib import RDF, RDFS, XSD, Graph, Literal, Namespace, URIRef

from kgharvest.engine.filters import FILTERS
from kgharvest.engine.harvest import harvest
from kgharvest.engine.types import HarvestParams, HarvestSpec
from kgharvest.errors import ImportRefused
from kgharvest.harvests.runner import store_result
from kgharvest.harvests.tuple_files import FILE_FORMATS, Cell, export_tuples, import_tuples
from kgharvest.knowledge.curation import curate
from kgharvest.models import HarvestJob, Job, KnowledgeTuple
from tests import factories
from tests.kgharvest.engine.fakes import FakeLM

NO_FILTERS = frozenset(FILTERS)
KGH = Namespace("urn:kgharvest:vocabulary:")
ODD = [
    "=1+1", "+x", "@sum", "it's", 'say "hi", twice', "a\nb", "back\\slash", "a;b|c", "<b>&amp;</b>", "{}^`", "100 %",
    "שלום עולם", "مرحبا بالعالم", "Straße", "日本", "🦔", "é" * 200, "a\u2028b", "null", "dot.",
    "~", "a/b#c?d",
]  # fmt: skip


def odd_tuples(arity: int) -> list[list[str]]:
    """Return tuples that contain each odd entity in each slot."""
    return [[ODD[(number + 5 * slot) % len(ODD)] for slot in range(arity)] for number in range(len(ODD))]


def import_rows(folder: Path, text: str, cell: Cell) -> HarvestJob:
    path = folder / "tuples"
    path.write_text(text, encoding="utf-8", newline="")
    return import_tuples(path, cell)


@pytest.fixture(params=[2, 3])
def job(request, db, tmp_path) -> HarvestJob:
    """Import odd tuples: scores with all digits, and an MTL for every other tuple."""
    cell = Cell(factories.make_relation("a relation: 1", arity=request.param), factories.make_language_model("lm"), "x")
    rows = [
        {"entities": entities, "score": -1 / 3 - number, **({"mtl": -1e-17 * number} if number % 2 else {})}
        for number, entities in enumerate(odd_tuples(request.param))
    ]
    return import_rows(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), cell)


def stored(job: HarvestJob) -> list[tuple]:
    columns = ("rank", "score", "mtl", "surface", "knowledge_tuple_id", "knowledge_tuple__entities")
    return list(job.tuples.order_by("rank").values_list(*columns))


def graph(job: HarvestJob, file_format: str, **options: bool) -> Graph:
    text = "".join(export_tuples(job, None, file_format, **options))
    return Graph().parse(data=text, format={"nt": "nt", "ttl": "turtle"}[file_format])


def test_odd_tuples_are_stored_verbatim(job):
    surfaces = [surface for *_, surface, _, _ in stored(job)]

    assert surfaces == odd_tuples(job.relation.arity)


@pytest.mark.parametrize("file_format", ["jsonl", "csv"])
def test_exported_tuples_import_unchanged(job, tmp_path, file_format):
    text = "".join(export_tuples(job, None, file_format))

    again = import_rows(tmp_path, text, Cell(job.relation, job.language_model, "again"))

    assert stored(again) == stored(job)
    assert "".join(export_tuples(again, None, file_format)).count(again.fingerprint) == job.n_tuples


@pytest.mark.parametrize("file_format", ["jsonl", "csv"])
def test_harvest_of_odd_words_survives_export_and_import(db, tmp_path, file_format):
    # Words with characters that are invisible or that file formats, case folding, or spacing can change.
    odd = [chr(code) for code in range(0x3100) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Mn", "Po", "Cn")]
    odd = [character for character in odd if not character.isspace()][::5]
    words = ["dog", *(f"ıİß{character}Σ" for character in odd)]
    n_writable = sum(map(str.isprintable, words))
    params = HarvestParams(
        candidates=n_writable, max_entity_tokens=1, max_entity_repeats=None, disabled_filters=NO_FILTERS - {"overlap"}
    )
    spec = HarvestSpec("r", ("<ENT0> of <ENT1>",), (("dog", "dog"),) * 2, "human", params=params)
    only_dogs = {(word,): {"dog": 1.0} for word in words}
    result = harvest(spec, FakeLM(words, {(): dict.fromkeys(words, 1 / len(words)), **only_dogs}))
    job = factories.make_harvest_job(Job.Status.SUCCEEDED)
    store_result(job, result, None)
    job.refresh_from_db()

    text = "".join(export_tuples(job, None, file_format))
    again = import_rows(tmp_path, text, Cell(job.relation, job.language_model, "again"))

    written = {scored.surface[0] for scored in result.tuples}
    assert {word for word in words if word.isprintable()} <= written
    assert not any(word for word in written if not word.isprintable())
    assert stored(again) == stored(job)


def test_rdf_formats_contain_the_same_complete_graph(job):
    triples = graph(job, "nt")

    assert set(triples) == set(graph(job, "ttl"))
    tuples = {
        triples.value(harvested, KGH.rank).toPython(): harvested
        for harvested in triples.subjects(RDF.type, KGH.HarvestedTuple)
    }
    assert len(tuples) == job.n_tuples
    for rank, score, mtl, surface, _, entities in stored(job):
        harvested = tuples[rank]
        slots = [triples.value(harvested, KGH[f"entity{slot}"]) for slot in range(len(entities))]
        assert [str(triples.value(slot, RDFS.label)) for slot in slots] == entities
        assert [str(triples.value(harvested, KGH[f"surface{slot}"])) for slot in range(len(entities))] == surface
        assert triples.value(harvested, KGH.score) == Literal(score, datatype=XSD.double)
        assert triples.value(harvested, KGH.mtl) == (None if mtl is None else Literal(mtl, datatype=XSD.double))
    [harvest] = triples.subjects(RDF.type, KGH.Harvest)
    assert set(triples.objects(None, KGH.harvest)) == {harvest}
    assert [str(triples.value(harvest, KGH[name])) for name in ("model", "setting", "job")] == [
        "lm",
        "x",
        job.fingerprint,
    ]


@pytest.mark.django_db
def test_binary_tuple_is_also_a_plain_triple():
    job = factories.make_harvest([["New York", "Müll"]], relation=factories.make_relation("has"))
    plain = (
        URIRef("urn:kgharvest:entity:new%20york"),
        URIRef(f"urn:kgharvest:relation:{job.relation.relation_set.name}/has"),
        URIRef(f"urn:kgharvest:entity:{quote('müll')}"),
    )

    assert plain in graph(job, "nt")
    assert (plain[1], RDF.type, RDF.Property) in graph(job, "ttl")


@pytest.mark.django_db
@pytest.mark.parametrize("file_format", FILE_FORMATS)
def test_every_format_respects_curation_and_sensitive_words(file_format):
    job = factories.make_harvest([["Kept", "Hidden"], ["Rome", "Gaul"], ["Some", "Porn"]])
    kept, wrong, sensitive = KnowledgeTuple.objects.order_by("pk")
    KnowledgeTuple.objects.filter(pk=sensitive.pk).update(is_sensitive=True)
    curate(kept, "hide", "wrong")
    curate(wrong, "correct", "wrong country", entities=["Rome", "Italy"])

    default = "".join(export_tuples(job, None, file_format))
    everything = "".join(export_tuples(job, None, file_format, include_hidden=True, include_sensitive=True))

    assert "Hidden" not in default
    assert "Porn" not in default
    assert all(word in default for word in ("Rome", "italy", "Italy", "Gaul"))
    assert all(word in everything for word in ("Hidden", "Porn"))


@pytest.mark.django_db
def test_a_correction_names_its_original_in_rdf():
    job = factories.make_harvest([["Rome", "Gaul"]])
    curate(KnowledgeTuple.objects.get(), "correct", "wrong country", entities=["Rome", "Italy"])

    triples = graph(job, "ttl")

    assert set(triples.objects(None, KGH.original1)) == {Literal("Gaul")}
    assert not list(triples.triples((None, None, URIRef("urn:kgharvest:entity:gaul"))))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "row",
    ["[" * 100_000, '{"entities": ["a", "b"], "score": %s}' % ("9" * 400), '{"entities": ["a", "b"], "score": 1e999}'],
)
def test_an_ambiguous_row_is_rejected(tmp_path, row):
    cell = Cell(factories.make_relation(), factories.make_language_model(), "x")

    with pytest.raises(ImportRefused, match="line 2"):
        import_rows(tmp_path, '{"entities": ["a", "b"], "score": -1}\n' + row, cell)


@pytest.mark.django_db
@pytest.mark.parametrize("heading", ["", "entities,score\n"])
def test_import_error_lists_twenty_bad_rows_and_counts_all(tmp_path, heading):
    cell = Cell(factories.make_relation(), factories.make_language_model(), "x")
    bad = '"[""a""]",-1\n' if heading else '{"entities": ["a"], "score": -1}\n'

    with pytest.raises(ImportRefused) as refusal:
        import_rows(tmp_path, heading + bad * 120, cell)

    assert [entry.where for entry in refusal.value.entries] == [f"line {n + bool(heading)}" for n in range(1, 21)]
    assert "120 errors:" in str(refusal.value)
    assert str(refusal.value).endswith("\n  and 100 more")
    assert not HarvestJob.objects.exists()


@pytest.mark.django_db
def test_equal_scores_keep_the_order_of_the_file(tmp_path):
    cell = Cell(factories.make_relation(), factories.make_language_model(), "x")
    pairs = list(product("dcab", "zxy"))
    text = "".join(json.dumps({"entities": pair, "score": -1}) + "\n" for pair in [*pairs, *reversed(pairs)])

    job = import_rows(tmp_path, text, cell)

    assert [tuple(surface) for *_, surface, _, _ in stored(job)] == pairs
    assert (job.n_tuples, job.summary["rows"]) == (12, 24)
