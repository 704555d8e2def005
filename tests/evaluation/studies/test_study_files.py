"""Study files: errors with line and key, JSON Schema, built-in studies, and TOML."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from annotation.rounds.models import OPTIONS
from evaluation.studies.files import built_in_studies, lines_of_keys, read_study, study_path, toml_of
from evaluation.studies.plan import planned_study
from evaluation.studies.schema import (
    HarvestSection,
    RoundSection,
    StudySections,
    faults_of,
    harvest_sections,
    json_schema,
)
from evaluation.studies.sections import APPS, job_sections_of, study_sections
from kgharvest.errors import DomainError, ImportRefused
from kgharvest.packaged_lms import PACKAGED_LMS, installed_lms
from tests.evaluation.studies.lama_files import write_lama

STUDY = """\
name = "capitals"
[[relations]]
set = "demo"
names = ["capital_of"]

[[relations]]
name = "currency_of"
statement = "<ENT0> is the currency of <ENT1>."
seed_tuples = [["yen", "japan"], ["peso", "mexico"]]

[[harvests]]
models = ["embedded"]
settings = ["human"]
max_tuples = 10

[round]
n = 5
"""


def written(tmp_path: Path, text: str, name: str = "study.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def errors(path: Path, small: bool = False) -> list[tuple[str, str]]:
    """Return (line, key) of each error. The key is the first word of the reason."""
    with pytest.raises(ImportRefused) as refusal:
        read_study(path, small)
    return [(entry.where, entry.reason.split()[0].rstrip(":")) for entry in refusal.value.entries]


def test_valid_file_is_read_as_written(tmp_path):
    assert read_study(written(tmp_path, STUDY)) == tomllib.loads(STUDY)


@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ('settings = ["human"]', 'settings = ["humane"]', 13, "harvests[0].settings[0]"),
        ("max_tuples = 10", "max_tuple = 10", 14, "harvests[0].max_tuple"),
        ("max_tuples = 10", "max_tuples = 0", 14, "harvests[0].max_tuples"),
        ('models = ["embedded"]', "", 11, "harvests[0].models"),
        ("n = 5", "n = 5.5", 17, "round.n"),
        ("n = 5", "n = true", 17, "round.n"),
        ("n = 5", "[round.limits]\nseconds = 1", 18, "round.limits.seconds"),
        ("n = 5", 'closes_when = "date"', 16, "round.closes_at"),
        ('set = "demo"', 'set = "demo"\nfile = "x.json"', 2, "relations[0]"),
        ('set = "demo"', 'set = "demo"\nstatement = "<ENT0> is <ENT1>."', 4, "relations[0].statement"),
        ("<ENT0> is the currency", "It is the currency", 8, "relations[1].statement"),
        ('["yen", "japan"]', '["yen"]', 9, "relations[1].seed_tuples"),
        ('name = "capitals"', 'name = "the capitals"', 1, "name"),
        ('name = "capitals"', "", 1, "name"),
        ("n = 5", 'n = 5\ntakes_guests = "true"', 18, "round.takes_guests"),
        ("max_tuples = 10", 'max_tuples = "10"', 14, "harvests[0].max_tuples"),
        ("n = 5", "n = 5\n[report]\noutputs = ['report.doc']", 19, "report.outputs[0]"),
        ("n = 5", "n = 5\n[report]\njudge = 'nobody'", 19, "report.judge"),
        ("[round]\nn = 5", "", 1, "round"),
        ("[round]\nn = 5", "[[scores]]\n[simulation]", 17, "simulation"),
        ("[round]\nn = 5", "[[scores]]\n[[scores]]", 17, "scores[1].name"),
        ("[round]\nn = 5", "[[scores]]\nfacts = { eats = [['cat']] }", 17, "scores[0].facts"),
        ("[round]\nn = 5", "[[scores]]\nharvested = ['none']", 17, "scores[0].harvested"),
        ("[round]\nn = 5", "[[scores]]\nsystems = [1]", 17, "scores[0].systems"),
        ("[round]\nn = 5", "[[scores]]\njudges = ['nobody']", 17, "scores[0].judges"),
        ("[round]\nn = 5", "[[scores]]\noutputs = ['png']", 17, "scores[0].outputs[0]"),
        ("[round]\nn = 5", "[[scores]]\nsettings = []", 16, "scores[0]"),
        ("[round]\nn = 5", "[[scores]]\nmodels = []", 17, "scores[0].models"),
        ("[round]\nn = 5", "[[scores]]\n[published]\nsource = 'x'", 17, "published.rows"),
        (
            "n = 5",
            "n = 5\n[published]\nsource = 'x'\nscores = [{ better = 'a', worse = 'b' }]",
            20,
            "published.scores",
        ),
        (
            "[round]\nn = 5",
            "[[scores]]\n[published]\nsource = 'x'\nscores = [{ better = 'a', worse = 'b', evaluation = 'c' }]",
            19,
            "published.scores[0].evaluation",
        ),
        (
            "[round]\nn = 5",
            "[[scores]]\n[published]\nsource = 'x'\nrows = [{ setting = 'a', accepted = 1, rejected = 0 }]",
            19,
            "published.rows",
        ),
        ("n = 5", "n = 5\n[[judges]]\nname = 'j'\nkind = 'score'\nmodel = 'embedded'", 18, "judges[0]"),
    ],
)
def test_error_names_line_and_key(tmp_path, old, new, line, key):
    path = written(tmp_path, STUDY.replace(old, new, 1))

    [(where, named)] = errors(path)

    assert (where, named) == (f"line {line}", key)


def test_all_errors_are_reported_by_line(tmp_path):
    text = STUDY.replace("n = 5", "n = 0").replace("max_tuples = 10", "max_tuples = 0")

    assert errors(written(tmp_path, text)) == [("line 14", "harvests[0].max_tuples"), ("line 17", "round.n")]


def test_syntax_error_names_line_and_column(tmp_path):
    [(where, _)] = errors(written(tmp_path, STUDY.replace("max_tuples = 10", "max_tuples 10")))

    assert where == "line 14, column 12"


def test_json_file_names_line_and_key(tmp_path):
    text = json.dumps(tomllib.loads(STUDY), indent=1)
    line = 1 + text[: text.index('"max_tuples"')].count("\n")
    path = written(tmp_path, text, "study.json")
    assert read_study(path) == tomllib.loads(STUDY)

    path.write_text(text.replace('"max_tuples": 10', '"max_tuples": 0'))

    assert errors(path) == [(f"line {line}", "harvests[0].max_tuples")]


def test_small_sections_replace_those_of_the_study(tmp_path):
    path = written(tmp_path, STUDY + "[small]\nround = { n = 2 }\n")

    small = read_study(path, small=True)

    assert small == tomllib.loads(STUDY) | {"name": "capitals-small", "round": {"n": 2}}
    path.write_text(STUDY + "[small]\nround = { n = 0 }\n")
    assert "small" not in read_study(path)
    assert errors(path, small=True) == [("line 19", "round.n")]


def test_relation_file_is_read_into_the_study(tmp_path):
    relation = {"name": "eats", "statement": "<ENT0> eats <ENT1>.", "seed_tuples": [["cat", "mouse"], ["cow", "grass"]]}
    (tmp_path / "food.json").write_text(json.dumps({"name": "food", "relations": [relation]}))
    path = written(tmp_path, STUDY.replace('set = "demo"\nnames = ["capital_of"]', 'file = "food.json"'))

    first = read_study(path)["relations"][0]

    assert first == relation | {"initial_prompts": [relation["statement"]]}


def test_file_of_heads_is_read_into_the_study(tmp_path):
    (tmp_path / "heads.csv").write_text("yen,1\npeso,2\n")
    text = STUDY.replace("max_tuples = 10", 'heads = ["euro"]\nheads_file = "heads.csv"')

    document = read_study(written(tmp_path, text))

    (harvests,) = harvest_sections(document)
    assert harvests["heads"] == ["euro", "yen", "peso"]
    assert HarvestSection().params(harvests).heads == ("euro", "yen", "peso")


@pytest.mark.parametrize("study", ["nothing", "demo.toml", "./demo"])
def test_name_without_suffix_and_separator_is_a_built_in_study(study):
    if study == "nothing":
        with pytest.raises(DomainError) as refusal:
            study_path(study)
        assert refusal.value.code == "NoSuchStudy"
    else:
        assert study_path(study) == Path(study)
    assert study_path("demo") == built_in_studies()["demo"]


@pytest.fixture
def data_files(tmp_path, monkeypatch):
    """Files of built-in studies in the current folder: a fact of each of two sets."""
    facts = {
        "conceptnet.jsonl": ("used_for", ["umbrella", "staying dry"]),
        "lama.jsonl": ("place_of_birth", ["Kant", "Königsberg"]),
        "lama-train.jsonl": ("place_of_birth", ["Hegel", "Stuttgart"]),
    }
    for name, (relation, entities) in facts.items():
        (tmp_path / name).write_text(json.dumps({"relation": relation, "entities": entities}))
    write_lama(tmp_path)
    monkeypatch.chdir(tmp_path)


def installed_studies() -> list[str]:
    """Return the built-in studies whose apps are installed."""
    missing = APPS.keys() - study_sections().keys()
    return [name for name, path in built_in_studies().items() if not missing & tomllib.loads(path.read_text()).keys()]


@pytest.mark.usefixtures("data_files")
@pytest.mark.parametrize("name", installed_studies())
def test_built_in_studies_are_valid_and_match_the_schema(name):
    path = built_in_studies()[name]
    document = tomllib.loads(path.read_text())

    assert read_study(path)["name"] == name
    assert list(Draft202012Validator(json_schema()).iter_errors(document)) == []
    if "small" in document:
        assert read_study(path, small=True)["name"] == f"{name}-small"


@pytest.mark.usefixtures("data_files")
@pytest.mark.django_db
def test_built_in_studies_can_be_planned(settings):
    """Relations, settings, and LM names exist."""
    settings.REPORT_OUTPUTS = {"pack.zip": "evaluation.studies.outputs.write_outputs"}  # as if its app was installed
    for path in map(built_in_studies().get, installed_studies()):
        if path.stem in PACKAGED_LMS and path.stem not in installed_lms():
            continue
        for small in (False, True) if "[small]" in path.read_text() else (False,):
            document = read_study(path, small)
            with planned_study(document) as (_, plan):
                assert plan.n_cells > 0 or job_sections_of(document)


def test_json_schema_and_serializers_reject_the_same_errors():
    validator = Draft202012Validator(json_schema())
    for path, value in [
        (("harvests", 0, "settings"), []),
        (("harvests", 0, "settings"), "human"),
        (("harvests", 0, "unknown"), 1),
        (("round", "n"), 0),
        (("round", "judgments_per_task"), 100),
        (("round", "allocation"), "any"),
        (("round", "strata"), "two"),
        (("relations",), []),
        (("name",), 1),
        (("scores",), []),
        (("scores", 0, "facts"), 1),
        (("scores", 0, "settings"), ["humane"]),
        (("scores", 0, "outputs"), ["png"]),
        (("scores", 0, "seed"), -1),
    ]:
        document = tomllib.loads(f'{STUDY}[[scores]]\nmodel = "embedded"\n')
        assert faults_of(document) == [] == list(validator.iter_errors(document))
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

        assert [bool(faults_of(document)), validator.is_valid(document)] == [True, False], path


def test_every_option_of_a_round_is_an_option_of_study_files():
    assert set(OPTIONS) - {"source"} <= RoundSection().fields.keys()


# TOML

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
scalars = (
    st.text(max_size=8)
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))


@given(st.dictionaries(keys, values, max_size=4))
def test_written_toml_is_read_back(document):
    assert tomllib.loads(toml_of(document)) == document


@given(st.dictionaries(keys, values, min_size=1, max_size=4))
def test_lines_of_keys_are_the_first_lines_that_contain_them(document):
    text = toml_of(document)
    lines, rows = lines_of_keys(text), text.split("\n")

    for key in document:
        before, until = ("\n".join(rows[:n]) for n in (lines[key,] - 1, len(rows)))
        assert key not in tomllib.loads(before)
        assert key in tomllib.loads(until)


def test_lines_end_statements_only_outside_of_strings_and_arrays():
    text = """\
'a#"' = "[" # [
b = [ # ]
    "x]", 'y"', \'\'\'
z]\'\'\', \"\"\"\\"\"\"\\"
w\"\"\"\"\",
]
"" = 1
d = { e = "\\"}", f = [{ g = 1 }] }
[[t]] # [
u = "" # \"\"\"
"""

    lines = lines_of_keys(text)

    assert {path: line for path, line in lines.items() if len(path) == 1} == {
        ('a#"',): 1, ("b",): 2, ("",): 7, ("d",): 8, ("t",): 9,
    }  # fmt: skip
    assert lines["t", 0, "u"] == 10


def test_lines_are_found_in_linear_time(monkeypatch):
    """Each character is parsed once, not again for each line of its array."""
    n_parsed, loads = [], tomllib.loads
    seeds = [[f"city {n}", f"country {n}"] for n in range(20_000)]
    text = toml_of({"name": "x", "relations": [{"name": "r", "seed_tuples": seeds}], "round": {"n": 5}})
    monkeypatch.setattr("tomllib.loads", lambda part: n_parsed.append(len(part)) or loads(part))

    lines = lines_of_keys(text)

    assert sum(n_parsed) == len(text)
    assert lines["round", "n"] == text.count("\n", 0, text.index("n = 5")) + 1 > 20_000


def test_reference_lists_every_key():
    """docs/studies.md has a row for each key of each section."""
    page = (Path(__file__).parents[3] / "docs" / "studies.md").read_text()
    rows = {line.split("|")[1].strip().strip("`") for line in page.splitlines() if line.startswith("| `")}
    sections = StudySections().fields
    expected = {"name", "small", *sections}
    for name, section in sections.items():
        inner = getattr(section, "child", section)
        if name not in ("round", "judges", "probes"):  # documented with the round, the judges, and the probes
            expected |= {f"{name}.{key}" for key in getattr(inner, "fields", {})}

    assert expected - rows == set()
