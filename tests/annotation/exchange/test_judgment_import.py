"""Import of judgments from files."""

import io
from time import process_time

import pytest
from django.core.management import CommandError, call_command

from annotation.exchange.judgment_files import BadEntry, read_judgments
from annotation.exchange.judgment_import import import_judgments
from annotation.models import Annotator, Judgment, Round
from annotation.rounds.services import open_round
from evaluation.reports.services import create_report
from kgharvest.errors import ImportRefused, NotFound
from kgharvest.models import KnowledgeTuple, LanguageModel, Relation
from tests.factories import make_harvest, make_language_model, make_relation, make_relation_set, make_round
from tests.refusals import refused

HEADING = "relation,entities,annotator,label"
DOG, CAT = '"[""dog"", ""swim""]"', '"[""cat"", ""climb""]"'


def csv_file(tmp_path, *lines: str, heading: str = HEADING):
    path = tmp_path / "judgments.csv"
    path.write_text("\n".join([heading, *lines]) + "\n", encoding="utf-8")
    return path


def rows_of(text: str) -> list:
    return list(read_judgments(io.StringIO(text, newline="")))


def verdicts(round) -> dict[str, str]:
    return dict(round.tasks.values_list("knowledge_tuple__key", "verdict"))


# Reading


@pytest.mark.parametrize(
    "text",
    [
        'relation,entities,annotator,label\ncan,"[""dog"", ""swim""]",ann,True\n',
        'relation;entities;annotator;label\r\ncan;"[""dog"", ""swim""]";ann;true\r\n',
        'label\tannotator\tentities\trelation\nTRUE\tann\t"[""dog"", ""swim""]"\tcan',
        'Relation , Entities,ANNOTATOR,Label\n can ,"[""dog"", ""swim""]", ann , T \n\n',
    ],
    ids=["commas", "semicolons and CRLF", "tabs, other order, no final newline", "spaces, capitals, empty line"],
)
def test_csv_dialects_are_detected(text):
    [row] = rows_of(text)

    assert (row.relation, row.entities, row.annotator, row.label) == ("can", ("dog", "swim"), "ann", "true")


def test_optional_columns_are_read():
    heading = f"{HEADING},model,setting,seconds,judged_at"

    [row] = rows_of(f"{heading}\ncan,{DOG},ann,Unjudgeable,big,multi,2.5,2026-03-01T12:00:00\n")

    assert (row.label, row.model, row.setting, row.seconds) == ("unjudgeable", "big", "multi", 2.5)
    assert row.judged_at.isoformat() == "2026-03-01T12:00:00+00:00"


@pytest.mark.parametrize("judged_at", ["0001-01-01T00:00:00", "9999-12-31T23:59:59-14:00"])
def test_judged_at_outside_1970_to_2200_is_reported(judged_at):
    [fault] = rows_of(f"{HEADING},judged_at\ncan,{DOG},ann,True,{judged_at}\n")

    assert "give a time between 1970 and 2200" in str(fault)


@pytest.mark.parametrize(
    ("line", "location", "reason"),
    [
        (f"can,{DOG},ann", "line 2", "has 3 values but the heading has 4"),
        (f"can,{DOG},ann,True,more", "line 2", "has 5 values"),
        (f"can,{DOG},ann,maybe", "line 2, label", "is 'maybe'"),
        (f"can,{DOG},,True", "line 2, annotator", "1 to 200 characters"),
        (f"can,{DOG},a\x00b,True", "line 2, annotator", "has a NUL"),
        ("can,dog,ann,True", "line 2, entities", "not a JSON list"),
        (f"can,{'[' * 100_000},ann,True", "line 2, entities", "not a JSON list"),
        ('can,"[""dog""]",ann,True', "line 2, entities", "has no list of 2 entities"),
        ('can,"[""dog"", 3]",ann,True', "line 2, entities", "empty or not a text"),
    ],
)
def test_invalid_line_error_names_line_and_column(line, location, reason):
    [fault] = rows_of(f"{HEADING}\n{line}\n")

    assert fault.where == location
    assert reason in fault.reason


def test_comment_with_nul_is_reported():
    [fault] = rows_of(f"{HEADING},comment\ncan,{DOG},ann,True,well\x00\n")

    assert fault == BadEntry("line 2, comment", "has a NUL character; remove it")


def test_too_long_comment_is_reported():
    [fault] = rows_of(f"{HEADING},comment\ncan,{DOG},ann,True,{'x' * 10_000}\n")

    assert fault == BadEntry("line 2, comment", "has 10000 characters; shorten it to 1000")


def test_duplicate_column_is_reported():
    assert rows_of(f"{HEADING},Label\n") == [BadEntry("line 1", "has the column label twice")]


def test_error_names_missing_columns():
    assert rows_of("relation,label\n") == [BadEntry("line 1", "has no column entities or annotator")]


# Storing


@pytest.fixture
def round(db):
    """Return a round for imports on one cell, big x multi, with the tuples (dog, swim) and (cat, climb)."""
    job = make_harvest(
        [("Dog", "swim"), ("cat", "climb")], relation=make_relation("can"), language_model=make_language_model("big")
    )
    return open_round({"name": "paper", "source": "imported", "cells": [{"job": job.pk, "n": None}]})


def test_number_of_imported_judgments_is_k_for_verdicts(round, tmp_path):
    lines = [f"can,{DOG},{name},{label}" for name, label in (("a", "True"), ("b", "False"), ("c", "True"))]

    import_judgments(csv_file(tmp_path, *lines, f"can,{CAT},a,True"), "paper")

    # A single judgment is below the quorum.
    assert verdicts(round) == {"dog\x1fswim": "accepted", "cat\x1fclimb": "undecided"}
    assert sorted(round.tasks.values_list("n_judgments", "n_wanted")) == [(1, 1), (3, 3)]


def test_tasks_without_judgments_stay_incomplete(round, tmp_path):
    import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "paper")

    assert verdicts(round)["cat\x1fclimb"] == ""


def test_report_counts_imported_judgments_in_their_cell(round, tmp_path):
    import_judgments(csv_file(tmp_path, *(f"can,{DOG},{name},True" for name in "ab")), "paper")

    [cell] = create_report(round).document["cells"]

    assert (cell["model"], cell["setting"], cell["accepted"], cell["incomplete"]) == ("big", "multi", 1, 1)


def test_imported_annotators_get_anonymous_codes(round, tmp_path):
    import_judgments(csv_file(tmp_path, f"can,{DOG},A2X5WORKER,True"), "paper")

    annotator = Annotator.objects.get()
    assert annotator.code.startswith("i-")
    assert "WORKER" not in annotator.code
    assert annotator.n_judged == 1


def test_create_adds_missing_round_relation_and_tuples(db, tmp_path):
    import_judgments(
        csv_file(tmp_path, f"can,{DOG},a,True", f"can,{DOG},b,True", f"can,{CAT},a,False"), "new", create=True
    )

    round = Round.objects.get()
    assert (round.name, round.source, round.n_tasks) == ("new", "imported", 2)
    assert Relation.objects.get().statement == "can: <ENT0>, <ENT1>"
    assert verdicts(round) == {"dog\x1fswim": "accepted", "cat\x1fclimb": "undecided"}


def test_judgments_without_cell_report_null_model_and_setting(db, tmp_path):
    import_judgments(csv_file(tmp_path, f"can,{DOG},a,True", f"can,{DOG},b,True"), "new", create=True)

    [cell] = create_report(Round.objects.get()).document["cells"]

    assert (cell["relation"], cell["model"], cell["setting"], cell["accuracy"]) == ("can", None, None, 1.0)


def test_judgment_counts_for_every_named_cell(db, tmp_path):
    lines = [f"can,{DOG},{annotator},True,big,{setting}" for annotator in "ab" for setting in ("human", "multi")]

    result = import_judgments(csv_file(tmp_path, *lines, heading=f"{HEADING},model,setting"), "new", create=True)

    cells = create_report(result.round).document["cells"]
    assert [(cell["setting"], cell["n"], cell["accepted"]) for cell in cells] == [("human", 1, 1), ("multi", 1, 1)]
    assert (result.n_judgments, result.n_duplicates, Judgment.objects.count()) == (2, 0, 2)


NAMED, UNNAMED = f"can,{DOG},a,True,big,multi", f"can,{DOG},b,True,,"


@pytest.mark.parametrize("files", [[[NAMED, UNNAMED]], [[UNNAMED, NAMED]], [[NAMED], [UNNAMED]], [[UNNAMED], [NAMED]]])
def test_tuple_with_a_named_cell_is_not_in_the_unnamed_cell(db, tmp_path, files):
    for lines in files:
        path = csv_file(tmp_path, *lines, heading=f"{HEADING},model,setting")
        import_judgments(path, "new", create=True)

    [stratum] = Round.objects.get().strata.all()
    assert (str(stratum.language_model), stratum.setting, stratum.sample_size) == ("big", "multi", 1)
    [cell] = create_report(Round.objects.get()).document["cells"]
    assert (cell["model"], cell["n"], cell["accepted"]) == ("big", 1, 1)


def test_rows_of_stratified_cell_belong_to_stratum_of_their_tuple(db, tmp_path):
    job = make_harvest(
        [("Dog", "swim"), ("cat", "climb")], relation=make_relation("can"), language_model=make_language_model("big")
    )
    cell = {"job": job.pk, "n": None, "strata": 2}
    round = open_round({"name": "paper", "source": "imported", "cells": [cell]})
    lines = [f"can,{entities},{annotator},True,big,multi" for entities in (DOG, CAT) for annotator in "ab"]

    import_judgments(csv_file(tmp_path, *lines, heading=f"{HEADING},model,setting"), "paper")

    assert set(verdicts(round).values()) == {"accepted"}
    assert list(round.strata.values_list("sample_size", flat=True)) == [1, 1]


def test_import_without_create_lists_missing_tuples_and_stores_nothing(round, tmp_path):
    fish = '"[""fish"", ""sing""]"'

    with pytest.raises(ImportRefused) as refusal:
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True", f"can,{fish},a,True", f"can,{CAT},a,True"), "paper")

    [fault] = refusal.value.entries
    assert fault == BadEntry("line 3", "(fish, sing) is not in the round; import with --create to add it")
    assert not Judgment.objects.exists()


@pytest.mark.parametrize(
    ("written", "name"), [("location of", "location_of"), ("naît à", "naît_à"), ("is-a:", "is-a:")]
)
def test_relations_are_created_with_normalized_names(db, tmp_path, written, name):
    lines = [f"{written},{DOG},a,True", f"{name},{DOG},b,True"]

    result = import_judgments(csv_file(tmp_path, *lines), "new", create=True)

    assert result.n_judgments == 2
    relation = Relation.objects.get(relation_set__name="new")
    assert (relation.name, relation.statement) == (name, f"{written}: <ENT0>, <ENT1>")


def test_invalid_relation_name_error_states_allowed_names(db, tmp_path):
    names = ("a/b", "x" * 101, "is <ENT5>")

    with pytest.raises(ImportRefused) as refusal:
        import_judgments(csv_file(tmp_path, *(f"{name},{DOG},a,True" for name in names)), "new", create=True)

    assert [entry.reason.split(" is not valid ")[1] for entry in refusal.value.entries] == [
        "for a new relation; use up to 100 characters without / and without slots such as <ENT0>"
    ] * 3


def test_ambiguous_relation_name_error_lists_sets(db, tmp_path):
    for name in ("pets", "zoo"):
        make_relation("can", relation_set=make_relation_set(name))

    with pytest.raises(ImportRefused, match=r"line 2: 'can' .* write one of pets/can, zoo/can. .*--set"):
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "new", create=True)


@pytest.mark.parametrize(("written", "set_name"), [("zoo/can", None), ("can", "zoo"), ("zoo/can", "pets")])
def test_relation_set_can_be_given_by_path_or_option(db, tmp_path, written, set_name):
    _, expected = (make_relation("can", relation_set=make_relation_set(name)) for name in ("pets", "zoo"))

    result = import_judgments(csv_file(tmp_path, f"{written},{DOG},a,True"), "new", create=True, set_name=set_name)

    assert result.round.tasks.get().knowledge_tuple.relation == expected


def test_relation_name_prefers_relation_of_the_round(round, tmp_path):
    make_relation("can")

    import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "paper")

    assert verdicts(round)["dog\x1fswim"] == "undecided"


def test_unknown_relation_set_error_names_the_set(round, tmp_path):
    with pytest.raises(NotFound, match="'zoo'"):
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "paper", set_name="zoo")


def test_failed_create_stores_nothing(db, tmp_path):
    with pytest.raises(ImportRefused, match=r"line 3: a already judged \(dog, swim\) in line 2"):
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True", f"can,{DOG},a,False"), "new", create=True)

    assert not any(model.objects.exists() for model in (Round, Relation, KnowledgeTuple))


@pytest.mark.parametrize(("duplicates", "label"), [("first", "true"), ("last", "false")])
def test_duplicates_follow_the_policy(round, tmp_path, duplicates, label):
    path = csv_file(tmp_path, f"can,{DOG},a,True", f"can,{DOG},a,False")

    result = import_judgments(path, "paper", duplicates=duplicates)

    assert (Judgment.objects.get().label, result.n_duplicates) == (label, 1)


@pytest.mark.parametrize(("duplicates", "label", "n"), [("first", "true", 1), ("last", "false", 2)])
def test_duplicates_of_an_earlier_import_follow_the_policy(round, tmp_path, duplicates, label, n):
    import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "paper")

    import_judgments(csv_file(tmp_path, f"can,{DOG},a,False"), "paper", duplicates=duplicates)

    assert Judgment.objects.current().get().label == label
    assert Judgment.objects.count() == n
    assert round.tasks.filter(n_judgments=1).count() == 1


@pytest.mark.parametrize("row", [f"can,{DOG},ann,True", "can", f"can,{DOG},ann,perhaps"], ids=["good", "short", "bad"])
def test_row_limit_applies_to_valid_and_invalid_rows(db, tmp_path, monkeypatch, row):
    monkeypatch.setattr("annotation.exchange.judgment_files.MOST_ROWS", 3)

    with pytest.raises(ImportRefused, match="line 5: exceeds the limit"):
        import_judgments(csv_file(tmp_path, *[row] * 5), "pilot", create=True)


def test_repeated_import_is_rejected_by_default(round, tmp_path):
    path = csv_file(tmp_path, f"can,{DOG},a,True")
    import_judgments(path, "paper")

    with pytest.raises(ImportRefused, match=r"already judged .* in this round"):
        import_judgments(path, "paper")


@pytest.mark.parametrize(
    ("duplicates", "message"),
    [("first", "0 judgments added, 2 repeats skipped"), ("last", "2 judgments added, 2 repeats replaced")],
)
def test_repeated_import_prints_skipped_or_replaced_rows(round, tmp_path, duplicates, message):
    path, out = csv_file(tmp_path, f"can,{DOG},a,True", f"can,{CAT},a,False"), io.StringIO()
    import_judgments(path, "paper")

    call_command("import_judgments", str(path), "--round", "paper", "--duplicates", duplicates, stdout=out)

    assert message in out.getvalue()
    assert Judgment.objects.current().count() == 2


def test_unknown_labels_are_listed_once(round, tmp_path):
    labels = ["yes", "no", "yes", "TRUE", "yes"]

    with pytest.raises(ImportRefused) as refusal:
        import_judgments(csv_file(tmp_path, *(f"can,{DOG},w{n},{label}" for n, label in enumerate(labels))), "paper")

    assert [(entry.where, entry.reason[:8]) for entry in refusal.value.entries] == [
        ("line 2, label", "is 'yes'"),
        ("line 3, label", "is 'no';"),
    ]
    assert "(and 2 more)" in str(refusal.value)


def test_comments_are_imported(round, tmp_path):
    import_judgments(csv_file(tmp_path, f"can,{DOG},a,True,not all", heading=f"{HEADING},comment"), "paper")

    assert Judgment.objects.get().comment == "not all"


def test_wrong_arity_is_rejected(round, tmp_path):
    with pytest.raises(ImportRefused, match="line 2: has 3 entities but can has 2"):
        import_judgments(csv_file(tmp_path, 'can,"[""a"", ""b"", ""c""]",a,True'), "paper")


def test_unknown_lm_is_rejected(round, tmp_path):
    path = csv_file(tmp_path, f"can,{DOG},a,True,huge", heading=f"{HEADING},model")

    with pytest.raises(ImportRefused, match="unknown LM 'huge'"):
        import_judgments(path, "paper")
    assert not LanguageModel.objects.filter(name="huge").exists()


def test_import_into_round_for_people_is_rejected(db, tmp_path):
    make_round(name="people")

    with refused("NotForImports"):
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "people", create=True)


def test_unknown_round_is_not_created_without_create(db, tmp_path):
    with pytest.raises(NotFound):
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "new")


def test_byte_order_mark_is_accepted_and_invalid_utf8_rejected(round, tmp_path):
    path = tmp_path / "judgments.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADING}\ncan,{DOG},a,True\n".encode())
    import_judgments(path, "paper")

    path.write_bytes(f"{HEADING}\ncan,{DOG},b,True\n".encode() + b"\xff")
    with pytest.raises(ImportRefused, match="line 3: is not UTF-8"):
        import_judgments(path, "paper")


def test_command_prints_counts_and_errors(round, tmp_path):
    out = io.StringIO()
    path = csv_file(tmp_path, f"can,{DOG},a,True", f"can,{DOG},a,True")

    call_command("import_judgments", str(path), "--round", "paper", "--duplicates", "first", stdout=out)

    assert "paper, 1 judgments added, 1 repeats skipped" in out.getvalue()
    with pytest.raises(CommandError, match=r"rejected because of 2 errors:\n  line 2: a already judged"):
        call_command("import_judgments", str(path), "--round", "paper")


def test_import_of_21000_rows_takes_linear_time(db, tmp_path):
    lines = [
        f'can,"[""head {n}"", ""tail {n % 7}""]",w{who},{"True" if (n + who) % 3 else "False"}'
        for n in range(7_000)
        for who in range(3)
    ]
    path = csv_file(tmp_path, *lines)

    begin = process_time()
    result = import_judgments(path, "new", create=True)

    assert result.n_judgments == 21_000
    assert process_time() - begin < 15  # 2 s on an idle core; quadratic lookups take minutes


# Equivalent names


@pytest.mark.django_db
def test_annotator_code_is_independent_of_secret_key(tmp_path, settings):
    path = csv_file(tmp_path, f"can,{DOG},ann,True")
    import_judgments(path, "pilot", create=True)
    settings.SECRET_KEY = "another"

    with pytest.raises(ImportRefused, match=r"ann already judged .* in this round"):
        import_judgments(path, "pilot", create=True)


@pytest.mark.django_db
def test_whitespace_around_entities_is_ignored(tmp_path):
    path = csv_file(tmp_path, f"can,{DOG},ann,True", 'can,"[""dog "", "" swim""]",bob,True')

    imported = import_judgments(path, "pilot", create=True).round

    assert verdicts(imported) == {"dog\x1fswim": "accepted"}


@pytest.mark.django_db
def test_relation_name_and_path_refer_to_same_relation(tmp_path):
    relation = make_relation("can")
    path = csv_file(tmp_path, f"can,{DOG},ann,True", f"{relation.path},{DOG},bob,True")

    imported = import_judgments(path, "pilot", create=True).round

    assert list(verdicts(imported).values()) == ["accepted"]


@pytest.mark.django_db
def test_import_marks_embedded_lm_as_demonstrator(tmp_path):
    path = csv_file(tmp_path, f"can,{DOG},ann,True,embedded", heading=f"{HEADING},model")

    import_judgments(path, "pilot", create=True)

    assert LanguageModel.objects.get(name="embedded").is_demonstrator


def test_unclosed_quote_is_reported():
    text = f'{HEADING}\ncan,"' + "x" * 200_000

    [fault] = rows_of(text)

    assert isinstance(fault, BadEntry)
    assert "is not CSV" in fault.reason
