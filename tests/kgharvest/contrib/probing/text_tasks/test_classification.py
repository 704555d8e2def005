"""Command `classify`: records, input files, and rejected input."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from statistics import fmean, stdev

import pytest
from django.core.management import CommandError, call_command

from kgharvest.contrib.probing.text_tasks.labelled_texts import LabelledRow, TextSets, read_labelled, subset
from kgharvest.contrib.probing.text_tasks.tables import curve_rows
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.language_models.compact import load_compact

pytestmark = pytest.mark.django_db

SIZES = {"train": 40, "dev": 20, "test": 30}
COST = ("seconds", "code_version")
LABELS = [("country", ["country", "nation"]), ("animal", ["animal"])]


@pytest.fixture(scope="module")
def rows():
    """Return labeled countries and animals of the embedded LM; 60% are countries."""
    world = {relation.name: [fact[0] for fact in relation.facts] for relation in load_world()}
    rows = [(f"the {name}", "country") for name in world["region_of"][:54]]
    rows += [(f"the {name}", "animal") for name in world["lives_in"][:36]]
    Random(0).shuffle(rows)
    return {part: [rows.pop() for _ in range(n)] for part, n in SIZES.items()}


@pytest.fixture
def files(rows, tmp_path):
    lines = {part: [json.dumps({"sentence": text, "label": label}) for text, label in rows[part]] for part in SIZES}
    return write_parts(tmp_path, lines, "jsonl")


def write_parts(folder, lines, ending):
    files = {part: folder / f"{part}.{ending}" for part in SIZES}
    for part, path in files.items():
        path.write_text("\n".join(lines[part]) + "\n", encoding="utf-8")
    return files


def run_classify(files, **options):
    output = files["train"].parent / "records.jsonl"
    settings = {"model": "embedded-small", "iterations": 4, "candidates": 4, "output": output} | options
    call_command("classify", **files, **settings)
    records = [json.loads(line) for line in output.read_text().splitlines()]
    return {(record["method"], record["is_control"]): record for record in records}


def test_learned_prompt_beats_the_majority_baseline(files, rows, capsys):
    records = run_classify(files, iterations=15, candidates=10)

    record, majority = records["autoprompt", False], records["majority", False]
    countries = sum(label == "country" for _, label in rows["test"]) / SIZES["test"]
    assert list(records) == [
        ("majority", False),
        *((method, is_control) for method in ("manual", "autoprompt") for is_control in (False, True)),
    ]
    assert majority["accuracy"] == pytest.approx(countries)
    assert record["accuracy"] > majority["accuracy"] + 0.1
    assert record["accuracy_low"] < record["accuracy"] < record["accuracy_high"]
    assert [record[f"n_{part}"] for part in SIZES] == list(SIZES.values())
    assert record["forwards"] > 15 * 24
    assert record["prompt"] in capsys.readouterr().out


def test_trained_classifiers_learn_from_the_training_texts(files, rows):
    methods = ("linear-probe", "fine-tuned", "bilstm")
    records = run_classify(files, methods=methods, epochs=5, learning_rate=3e-4, no_control=True)

    majority = sum(label == "country" for _, label in rows["test"]) / SIZES["test"]
    assert list(records) == [(method, False) for method in methods]
    assert all(records[method, False]["accuracy"] > majority + 0.1 for method in ("linear-probe", "fine-tuned"))
    assert records["fine-tuned", False]["n_parameters"] > records["linear-probe", False]["n_parameters"]


def test_precision_is_reported_for_each_label(files, rows):
    record = run_classify(files, methods=["majority"])["majority", False]

    countries = sum(label == "country" for _, label in rows["test"])
    assert record["precision"] == {"animal": None, "country": pytest.approx(countries / SIZES["test"])}
    assert record["n_predicted"] == {"animal": 0, "country": SIZES["test"]}
    assert record["precision_low"]["country"] < record["precision"]["country"] < record["precision_high"]["country"]


def test_balanced_parts_have_equally_many_texts_of_each_label(files, rows):
    record = run_classify(files, methods=["majority"], balance=True)["majority", False]

    rarest = {part: min(Counter(label for _, label in rows[part]).values()) for part in SIZES}
    assert {part: record[f"n_{part}"] for part in SIZES} == {part: 2 * rarest[part] for part in SIZES}
    assert record["accuracy"] == 0.5


def test_labels_can_be_restricted(files):
    for path in files.values():
        with path.open("a") as file:
            file.write(json.dumps({"sentence": "the wind", "label": "weather"}) + "\n")

    record = run_classify(files, methods=["majority"], only_labels=["country", "animal"])["majority", False]

    assert [record[f"n_{part}"] for part in SIZES] == list(SIZES.values())
    with pytest.raises(CommandError, match="No training text has the label 'plant'"):
        run_classify(files, only_labels=["country", "plant"])


def test_grid_measures_the_cell_with_the_best_dev_accuracy(files, tmp_path):
    figure = tmp_path / "grid.svg"
    grid = {"grid_triggers": [1, 2], "grid_label_tokens": [1, 2], "grid_candidates": [2]}

    record = run_classify(files, methods=["autoprompt"], no_control=True, figure=figure, **grid)["autoprompt", False]

    cells = {(cell["n_triggers"], cell["k"]): cell["dev_accuracy"] for cell in record["grid"]}
    assert set(cells) == {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert record["dev_accuracy"] == max(cells.values())
    assert len(record["trigger"]) == record["n_triggers"]
    assert all(len(tokens) == record["k"] for tokens in record["labels"].values())
    image = figure.read_text()
    assert image.startswith("<svg")
    assert "tokens per label" in image
    assert image.count('fill-opacity="') == 4


def test_learning_curve_repeats_methods_on_random_subsets(files, tmp_path, capsys):
    output, figure = tmp_path / "records.jsonl", tmp_path / "curve.svg"
    options = {"methods": ["linear-probe"], "train_sizes": [4, 20], "subsets": 3, "figure": figure}
    run_classify(files, **options)

    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(record["train_size"], record["subset"], record["n_train"]) for record in records] == [
        (size, number, size) for size in (4, 20) for number in range(3)
    ]
    small, large = (curve_rows(records)[index] for index in range(2))
    dev = [record["dev_accuracy"] for record in records[:3]]
    assert (small["mean"], small["sd"]) == (pytest.approx(fmean(dev)), pytest.approx(stdev(dev)))
    assert (small["low"], small["high"], small["n"]) == (min(dev), max(dev), 3)
    assert large["train_size"] == 20
    assert "linear-probe" in figure.read_text()
    assert "Learning curve" in capsys.readouterr().out


def test_subset_contains_every_label_and_depends_on_the_seed(rows):
    lines = [LabelledRow(number, {"sentence": text}, label) for number, (text, label) in enumerate(rows["train"])]
    texts = TextSets({"train": lines}, ("animal", "country"))

    drawn = [subset(texts, 3, seed).parts["train"] for seed in range(5)]

    assert all(len({row.number for row in part}) == 3 for part in drawn)
    assert all({row.label for row in part} == {"animal", "country"} for part in drawn)
    assert len({tuple(part_row.number for part_row in part) for part in drawn}) > 1
    assert subset(texts, 3, 0) == subset(texts, 3, 0)


def test_files_of_sick_have_a_default_template(rows, tmp_path):
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    lines = {
        part: [header, *(f"1\t{text}\tit is big\t4.5\t{label.upper()}" for text, label in rows[part])] for part in SIZES
    }

    record = run_classify(write_parts(tmp_path, lines, "tsv"), methods=["manual"], no_control=True)["manual", False]

    assert record["template"] == "{sentence_A} [P] {sentence_B}"
    assert set(record["labels"]) == {"ANIMAL", "COUNTRY"}


def test_record_contains_ids_of_triggers_and_label_tokens(files):
    record = run_classify(files, no_control=True, dtype="bfloat16")["autoprompt", False]

    assert record["dtype"] == "bfloat16"
    texts = load_compact(EMBEDDED_LMS["embedded-small"]).tokens.texts()
    assert [texts[token] for token in record["trigger_ids"]] == record["trigger"]
    assert record["prompt"] == f"{{sentence}} {' '.join(record['trigger'])} [P] ."
    assert {label: [texts[token] for token in ids] for label, ids in record["label_ids"].items()} == record["labels"]
    assert set(record["labels"]) == {"animal", "country"}
    label_ids = [token for ids in record["label_ids"].values() for token in ids]
    assert len(set(label_ids)) == 6
    assert not set(label_ids) & set(record["trigger_ids"])


def test_tsv_and_jsonl_give_the_same_records(files, rows, tmp_path):
    folder = tmp_path / "tsv"
    folder.mkdir()
    lines = {part: ["label\tsentence", *(f"{label}\t{text}" for text, label in rows[part])] for part in SIZES}

    first, second = (
        run_classify(files, no_control=True),
        run_classify(write_parts(folder, lines, "tsv"), no_control=True),
    )

    assert all({**record, "seconds": 0} == {**second[key], "seconds": 0} for key, record in first.items())


def test_label_words_and_manual_prompt_are_used(files):
    records = run_classify(files, no_control=True, label=LABELS, manual="{sentence} is a [P] .")

    for method in ("manual", "autoprompt"):
        assert records[method, False]["labels"] == {"country": ["country", "nation"], "animal": ["animal"]}
    assert records["manual", False]["prompt"] == "{sentence} is a [P] ."


def test_premise_and_hypothesis_have_a_separate_default_template(rows, tmp_path):
    lines = {
        part: [
            json.dumps({"premise": text, "hypothesis": "it lives in the forest", "label": int(label == "animal")})
            for text, label in rows[part]
        ]
        for part in SIZES
    }

    record = run_classify(write_parts(tmp_path, lines, "jsonl"), no_control=True)["autoprompt", False]

    assert record["template"] == "{premise} [P] [T] [T] [T] {hypothesis}"
    assert set(record["labels"]) == {"0", "1"}


def test_long_texts_are_truncated_and_counted(files):
    lines = files["test"].read_text().splitlines()
    lines[0] = json.dumps({"sentence": "the camel " * 100, "label": "animal"})
    files["test"].write_text("\n".join(lines))

    record = run_classify(files, no_control=True, label=LABELS)["autoprompt", False]

    assert record["n_cut"] == {"train": 0, "dev": 0, "test": 1}
    assert record["n_test"] == SIZES["test"]


@pytest.mark.parametrize(
    ("part", "line", "sentence"),
    [
        ("train", '{"sentence": "the cat"}', "train.jsonl: .* line 41: has no 'label' that is a text"),
        ("train", '{"sentence": "the cat", "label": 0.5}', "line 41: has no 'label' that is a text or a whole number"),
        ("dev", '{"text": "the cat", "label": "animal"}', "dev.jsonl: .* line 21: has no 'sentence'"),
        ("dev", '{"sentence": " ", "label": "animal"}', "line 21: has no text in 'sentence'"),
        (
            "test",
            '{"sentence": "it", "label": "plant"}',
            "line 31: has the label 'plant', which does not occur",
        ),
        ("test", "[1]", "line 31: is not a JSON object"),
        ("test", '{"sentence"', "line 31, column 12: is not JSON"),
    ],
)
def test_error_names_the_bad_line(files, part, line, sentence):
    with files[part].open("a") as file:
        file.write(line)

    with pytest.raises(CommandError, match=sentence):
        run_classify(files)


def test_error_names_the_row_with_missing_columns(tmp_path):
    lines = {part: ["sentence\tlabel", "the cat\tanimal", "the dog"] for part in SIZES}

    with pytest.raises(CommandError, match=r"train.tsv: .* line 3: has 1 columns; the header has 2"):
        run_classify(write_parts(tmp_path, lines, "tsv"))


def test_column_can_be_long_and_contain_quotes(tmp_path):
    path = tmp_path / "train.TSV"
    path.write_text(f'sentence\tlabel\n{"x" * 200_000}"\ta\n\n"y\tb\n')

    rows = read_labelled(path, ["sentence"])

    assert [(row.number, row.texts["sentence"][-2:], row.label) for row in rows] == [(2, 'x"', "a"), (4, '"y', "b")]


def test_files_must_be_utf_8(files):
    files["dev"].write_bytes('{"sentence": "the café", "label": "animal"}'.encode("latin-1"))

    with pytest.raises(CommandError, match=r"dev.jsonl: .* line 1: is not UTF-8"):
        run_classify(files)


def test_empty_part_and_single_label_are_rejected(files):
    files["dev"].write_text("")
    with pytest.raises(CommandError, match=r"dev.jsonl has no texts"):
        run_classify(files)

    files["train"].write_text('{"sentence": "the cat", "label": "animal"}\n')
    files["dev"].write_text('{"sentence": "the cat", "label": "animal"}\n')
    with pytest.raises(CommandError, match=r"All texts of train\.jsonl have the label 'animal'"):
        run_classify(files)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"template": "{sentence} [T] ."}, r"\[P\] 0 times"),
        ({"template": "{sentence} [P] ."}, "no trigger"),
        ({"template": "{headline} [T] [P]"}, "has no 'headline'"),
        ({"iterations": 2}, "2 iterations cannot fill 3 triggers"),
        ({"grid_triggers": [1, 9]}, "4 iterations cannot fill 9 triggers"),
        ({"train_sizes": [1]}, r"Subsets have 2 \(one text per label\) to 40"),
        ({"train_sizes": [41]}, r"Subsets have 2 \(one text per label\) to 40"),
        ({"figure": Path("f.png")}, "Use .svg or .pdf"),
        ({"label": [("animal", ["animal"])]}, "The label 'country' has no word"),
        ({"label": [("plant", ["plant"])]}, "Unknown label 'plant'"),
        ({"label": [("animal", ["sea lion"]), ("country", ["country"])]}, "'sea lion' has 2 tokens"),
        ({"model": "nowhere/at/all"}, "nowhere/at/all"),
    ],
)
def test_unusable_inputs_are_rejected(files, options, sentence):
    with pytest.raises(CommandError, match=sentence):
        run_classify(files, **options)


@pytest.mark.parametrize("options", [{"template": "{sentence} [P]"}, {"iterations": 2}])
def test_impossible_search_is_rejected_before_loading_the_lm(files, options):
    with pytest.raises(CommandError, match="trigger"):
        run_classify(files, model="nowhere/at/all", **options)


def test_label_option_can_repeat_for_more_words(files):
    label = [("animal", ["dog"]), ("country", ["france"]), ("animal", ["cat"])]

    record = run_classify(files, no_control=True, label=label)["manual", False]

    assert record["labels"] == {"animal": ["dog", "cat"], "country": ["france"]}


def test_columns_without_a_default_template_are_rejected(files):
    files["train"].write_text('{"text": "the cat", "label": "animal"}\n')

    with pytest.raises(CommandError, match="has neither a column 'sentence' nor the columns"):
        run_classify(files)
