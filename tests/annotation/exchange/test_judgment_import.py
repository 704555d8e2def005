"""Judgments from files."""

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


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'relation,entities,annotator,label\ncan,"[""dog"", ""swim""]",ann,True\n',
        'relation;entities;annotator;label\r\ncan;"[""dog"", ""swim""]";ann;true\r\n',
        'label\tannotator\tentities\trelation\nTRUE\tann\t"[""dog"", ""swim""]"\tcan',
        'Relation , Entities,ANNOTATOR,Label\n can ,"[""dog"", ""swim""]", ann , T \n\n',
    ],
    ids=["commas", "semicolons and CRLF", "tabs, other order, no last line end", "spaces, capitals, an empty line"],
)
def test_files_differ_in_form_and_say_the_same(text):
    [row] = rows_of(text)

    assert (row.relation, row.entities, row.annotator, row.label) == ("can", ("dog", "swim"), "ann", "true")


def test_optional_columns():
    heading = f"{HEADING},model,setting,seconds,judged_at"

    [row] = rows_of(f"{heading}\ncan,{DOG},ann,Unjudgeable,big,multi,2.5,2026-03-01T12:00:00\n")

    assert (row.label, row.model, row.setting, row.seconds) == ("unjudgeable", "big", "multi", 2.5)
    assert row.judged_at.isoformat() == "2026-03-01T12:00:00+00:00"


@pytest.mark.parametrize("judged_at", ["0001-01-01T00:00:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_no_calendar_of_ours_reaches_is_a_fault(judged_at):
    [fault] = rows_of(f"{HEADING},judged_at\ncan,{DOG},ann,True,{judged_at}\n")

    assert "give a time between 1970 and 2200" in str(fault)


@pytest.mark.parametrize(
    ("line", "where", "reason"),
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
def test_a_bad_line_is_named(line, where, reason):
    [fault] = rows_of(f"{HEADING}\n{line}\n")

    assert fault.where == where
    assert reason in fault.reason


def test_a_comment_with_a_nul_is_named():
    [fault] = rows_of(f"{HEADING},comment\ncan,{DOG},ann,True,well\x00\n")

    assert fault == BadEntry("line 2, comment", "has a NUL character; remove it")


def test_a_comment_has_an_end():
    [fault] = rows_of(f"{HEADING},comment\ncan,{DOG},ann,True,{'x' * 10_000}\n")

    assert fault == BadEntry("line 2, comment", "has 10000 characters; shorten it to 1000")


def test_a_column_that_comes_twice_is_named():
    assert rows_of(f"{HEADING},Label\n") == [BadEntry("line 1", "has the column label twice")]


def test_missing_columns_are_named():
    assert rows_of("relation,label\n") == [BadEntry("line 1", "has no column entities or annotator")]


# -- storing -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def round(db):
    """A round for imports on one cell: big x multi, which found that a dog can swim and a cat can climb."""
    job = make_harvest(
        [("Dog", "swim"), ("cat", "climb")], relation=make_relation("can"), language_model=make_language_model("big")
    )
    return open_round({"name": "paper", "source": "imported", "cells": [{"job": job.pk, "n": None}]})


def test_judgments_give_verdicts_and_their_number_is_k(round, tmp_path):
    lines = [f"can,{DOG},{name},{label}" for name, label in (("a", "True"), ("b", "False"), ("c", "True"))]

    import_judgments(csv_file(tmp_path, *lines, f"can,{CAT},a,True"), "paper")

    assert verdicts(round) == {"dog\x1fswim": "accepted", "cat\x1fclimb": "undecided"}  # one alone decides nothing
    assert sorted(round.tasks.values_list("n_judgments", "n_wanted")) == [(1, 1), (3, 3)]


def test_tasks_without_judgments_stay_incomplete(round, tmp_path):
    import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "paper")

    assert verdicts(round)["cat\x1fclimb"] == ""


def test_a_report_counts_imported_judgments_for_the_cell_they_were_drawn_for(round, tmp_path):
    import_judgments(csv_file(tmp_path, *(f"can,{DOG},{name},True" for name in "ab")), "paper")

    [cell] = create_report(round).document["cells"]

    assert (cell["model"], cell["setting"], cell["accepted"], cell["incomplete"]) == ("big", "multi", 1, 1)


def test_annotators_get_codes(round, tmp_path):
    import_judgments(csv_file(tmp_path, f"can,{DOG},A2X5WORKER,True"), "paper")

    annotator = Annotator.objects.get()
    assert annotator.code.startswith("i-")
    assert "WORKER" not in annotator.code
    assert annotator.n_judged == 1


def test_create_makes_what_is_missing(db, tmp_path):
    import_judgments(
        csv_file(tmp_path, f"can,{DOG},a,True", f"can,{DOG},b,True", f"can,{CAT},a,False"), "new", create=True
    )

    round = Round.objects.get()
    assert (round.name, round.source, round.n_tasks) == ("new", "imported", 2)
    assert Relation.objects.get().statement == "can: <ENT0>, <ENT1>"
    assert verdicts(round) == {"dog\x1fswim": "accepted", "cat\x1fclimb": "undecided"}


def test_judgments_that_name_no_cell_report_nulls(db, tmp_path):
    import_judgments(csv_file(tmp_path, f"can,{DOG},a,True", f"can,{DOG},b,True"), "new", create=True)

    [cell] = create_report(Round.objects.get()).document["cells"]

    assert (cell["relation"], cell["model"], cell["setting"], cell["accuracy"]) == ("can", None, None, 1.0)


def test_one_judgment_counts_for_every_cell_that_names_it(db, tmp_path):
    lines = [f"can,{DOG},{who},True,big,{setting}" for who in "ab" for setting in ("human", "multi")]

    done = import_judgments(csv_file(tmp_path, *lines, heading=f"{HEADING},model,setting"), "new", create=True)

    cells = create_report(done.round).document["cells"]
    assert [(cell["setting"], cell["n"], cell["accepted"]) for cell in cells] == [("human", 1, 1), ("multi", 1, 1)]
    assert (done.n_judgments, done.n_duplicates, Judgment.objects.count()) == (2, 0, 2)


NAMED, UNNAMED = f"can,{DOG},a,True,big,multi", f"can,{DOG},b,True,,"


@pytest.mark.parametrize("files", [[[NAMED, UNNAMED]], [[UNNAMED, NAMED]], [[NAMED], [UNNAMED]], [[UNNAMED], [NAMED]]])
def test_a_tuple_whose_cell_one_row_names_is_in_no_unnamed_cell(db, tmp_path, files):
    for lines in files:
        path = csv_file(tmp_path, *lines, heading=f"{HEADING},model,setting")
        import_judgments(path, "new", create=True)

    [stratum] = Round.objects.get().strata.all()
    assert (str(stratum.language_model), stratum.setting, stratum.sample_size) == ("big", "multi", 1)
    [cell] = create_report(Round.objects.get()).document["cells"]
    assert (cell["model"], cell["n"], cell["accepted"]) == ("big", 1, 1)


def test_rows_that_name_a_cell_of_several_strata_are_taken_for_the_one_their_tuple_was_drawn_from(db, tmp_path):
    job = make_harvest(
        [("Dog", "swim"), ("cat", "climb")], relation=make_relation("can"), language_model=make_language_model("big")
    )
    cell = {"job": job.pk, "n": None, "strata": 2}
    round = open_round({"name": "paper", "source": "imported", "cells": [cell]})
    lines = [f"can,{entities},{who},True,big,multi" for entities in (DOG, CAT) for who in "ab"]

    import_judgments(csv_file(tmp_path, *lines, heading=f"{HEADING},model,setting"), "paper")

    assert set(verdicts(round).values()) == {"accepted"}
    assert list(round.strata.values_list("sample_size", flat=True)) == [1, 1]


def test_without_create_everything_missing_is_listed_and_nothing_stored(round, tmp_path):
    fish = '"[""fish"", ""sing""]"'

    with pytest.raises(ImportRefused) as refusal:
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True", f"can,{fish},a,True", f"can,{CAT},a,True"), "paper")

    [fault] = refusal.value.entries
    assert fault == BadEntry("line 3", "(fish, sing) is not in the round; import with --create to add it")
    assert not Judgment.objects.exists()


@pytest.mark.parametrize(
    ("written", "name"), [("location of", "location_of"), ("naît à", "naît_à"), ("is-a:", "is-a:")]
)
def test_relations_are_made_under_names_as_data_have_them(db, tmp_path, written, name):
    lines = [f"{written},{DOG},a,True", f"{name},{DOG},b,True"]

    done = import_judgments(csv_file(tmp_path, *lines), "new", create=True)

    assert done.n_judgments == 2
    relation = Relation.objects.get(relation_set__name="new")
    assert (relation.name, relation.statement) == (name, f"{written}: <ENT0>, <ENT1>")


def test_who_imports_with_create_is_told_which_names_it_takes(db, tmp_path):
    names = ("a/b", "x" * 101, "is <ENT5>")

    with pytest.raises(ImportRefused) as refusal:
        import_judgments(csv_file(tmp_path, *(f"{name},{DOG},a,True" for name in names)), "new", create=True)

    assert [entry.reason.split(" cannot ")[1] for entry in refusal.value.entries] == [
        "name a new relation; use up to 100 characters, no / and no slot such as <ENT0>"
    ] * 3


def test_a_name_that_several_sets_have_is_refused_with_all_of_them(db, tmp_path):
    for name in ("pets", "zoo"):
        make_relation("can", relation_set=make_relation_set(name))

    with pytest.raises(ImportRefused, match=r"line 2: 'can' .* write one of pets/can, zoo/can. .*--set"):
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "new", create=True)


@pytest.mark.parametrize(("written", "set_name"), [("zoo/can", None), ("can", "zoo"), ("zoo/can", "pets")])
def test_a_relation_is_named_with_its_set(db, tmp_path, written, set_name):
    _, meant = (make_relation("can", relation_set=make_relation_set(name)) for name in ("pets", "zoo"))

    done = import_judgments(csv_file(tmp_path, f"{written},{DOG},a,True"), "new", create=True, set_name=set_name)

    assert done.round.tasks.get().knowledge_tuple.relation == meant


def test_a_name_means_the_relation_that_the_round_is_about(round, tmp_path):
    make_relation("can")

    import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "paper")

    assert verdicts(round)["dog\x1fswim"] == "undecided"


def test_a_set_that_is_not_there_is_named(round, tmp_path):
    with pytest.raises(NotFound, match="'zoo'"):
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "paper", set_name="zoo")


def test_a_failed_create_leaves_nothing(db, tmp_path):
    with pytest.raises(ImportRefused, match=r"line 3: a judged \(dog, swim\) already in line 2"):
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True", f"can,{DOG},a,False"), "new", create=True)

    assert not any(model.objects.exists() for model in (Round, Relation, KnowledgeTuple))


@pytest.mark.parametrize(("duplicates", "label"), [("first", "true"), ("last", "false")])
def test_duplicates_follow_the_policy(round, tmp_path, duplicates, label):
    path = csv_file(tmp_path, f"can,{DOG},a,True", f"can,{DOG},a,False")

    done = import_judgments(path, "paper", duplicates=duplicates)

    assert (Judgment.objects.get().label, done.n_duplicates) == (label, 1)


@pytest.mark.parametrize(("duplicates", "label", "n"), [("first", "true", 1), ("last", "false", 2)])
def test_duplicates_of_an_earlier_import_follow_the_policy(round, tmp_path, duplicates, label, n):
    import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "paper")

    import_judgments(csv_file(tmp_path, f"can,{DOG},a,False"), "paper", duplicates=duplicates)

    assert Judgment.objects.current().get().label == label
    assert Judgment.objects.count() == n
    assert round.tasks.filter(n_judgments=1).count() == 1


@pytest.mark.parametrize("row", [f"can,{DOG},ann,True", "can", f"can,{DOG},ann,perhaps"], ids=["good", "short", "bad"])
def test_a_file_ends_at_the_most_rows_whether_they_are_good_or_bad(db, tmp_path, monkeypatch, row):
    monkeypatch.setattr("annotation.exchange.judgment_files.MOST_ROWS", 3)

    with pytest.raises(ImportRefused, match="line 5: exceeds the limit"):
        import_judgments(csv_file(tmp_path, *[row] * 5), "pilot", create=True)


def test_importing_a_file_twice_is_an_error_by_default(round, tmp_path):
    path = csv_file(tmp_path, f"can,{DOG},a,True")
    import_judgments(path, "paper")

    with pytest.raises(ImportRefused, match="already in this round"):
        import_judgments(path, "paper")


@pytest.mark.parametrize(
    ("duplicates", "said"),
    [("first", "0 judgments added, 2 repeats skipped"), ("last", "2 judgments added, 2 repeats replaced")],
)
def test_a_second_import_says_what_it_did(round, tmp_path, duplicates, said):
    path, out = csv_file(tmp_path, f"can,{DOG},a,True", f"can,{CAT},a,False"), io.StringIO()
    import_judgments(path, "paper")

    call_command("import_judgments", str(path), "--round", "paper", "--duplicates", duplicates, stdout=out)

    assert said in out.getvalue()
    assert Judgment.objects.current().count() == 2


def test_each_unknown_label_is_listed_once(round, tmp_path):
    labels = ["yes", "no", "yes", "TRUE", "yes"]

    with pytest.raises(ImportRefused) as refusal:
        import_judgments(csv_file(tmp_path, *(f"can,{DOG},w{n},{label}" for n, label in enumerate(labels))), "paper")

    assert [(entry.where, entry.reason[:8]) for entry in refusal.value.entries] == [
        ("line 2, label", "is 'yes'"),
        ("line 3, label", "is 'no';"),
    ]
    assert "(and 2 more)" in str(refusal.value)


def test_comments_are_kept(round, tmp_path):
    import_judgments(csv_file(tmp_path, f"can,{DOG},a,True,not all", heading=f"{HEADING},comment"), "paper")

    assert Judgment.objects.get().comment == "not all"


def test_an_arity_that_differs_is_a_fault(round, tmp_path):
    with pytest.raises(ImportRefused, match="line 2: has 3 entities but can has 2"):
        import_judgments(csv_file(tmp_path, 'can,"[""a"", ""b"", ""c""]",a,True'), "paper")


def test_an_unknown_lm_is_a_fault(round, tmp_path):
    path = csv_file(tmp_path, f"can,{DOG},a,True,huge", heading=f"{HEADING},model")

    with pytest.raises(ImportRefused, match="unknown LM 'huge'"):
        import_judgments(path, "paper")
    assert not LanguageModel.objects.filter(name="huge").exists()


def test_rounds_for_people_take_no_imports(db, tmp_path):
    make_round(name="people")

    with refused("NotForImports"):
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "people", create=True)


def test_a_round_that_does_not_exist_is_not_made_unasked(db, tmp_path):
    with pytest.raises(NotFound):
        import_judgments(csv_file(tmp_path, f"can,{DOG},a,True"), "new")


def test_a_file_with_a_mark_and_one_that_is_not_utf8(round, tmp_path):
    path = tmp_path / "judgments.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADING}\ncan,{DOG},a,True\n".encode())
    import_judgments(path, "paper")

    path.write_bytes(f"{HEADING}\ncan,{DOG},b,True\n".encode() + b"\xff")
    with pytest.raises(ImportRefused, match="line 3: is not UTF-8"):
        import_judgments(path, "paper")


def test_the_command(round, tmp_path):
    out = io.StringIO()
    path = csv_file(tmp_path, f"can,{DOG},a,True", f"can,{DOG},a,True")

    call_command("import_judgments", str(path), "--round", "paper", "--duplicates", "first", stdout=out)

    assert "paper, 1 judgments added, 1 repeats skipped" in out.getvalue()
    with pytest.raises(CommandError, match=r"nothing of it was used; 2 things are wrong:\n  line 2: a judged"):
        call_command("import_judgments", str(path), "--round", "paper")


def test_the_time_of_an_import_grows_with_its_size_only(db, tmp_path):
    lines = [
        f'can,"[""head {n}"", ""tail {n % 7}""]",w{who},{"True" if (n + who) % 3 else "False"}'
        for n in range(7_000)
        for who in range(3)
    ]
    path = csv_file(tmp_path, *lines)

    begin = process_time()
    done = import_judgments(path, "new", create=True)

    assert done.n_judgments == 21_000
    assert process_time() - begin < 15  # 2 s on an idle core; a search among all judgments for each takes minutes


# -- one thing under several names -------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_same_person_keeps_their_code_when_the_secret_key_changes(tmp_path, settings):
    path = csv_file(tmp_path, f"can,{DOG},ann,True")
    import_judgments(path, "pilot", create=True)
    settings.SECRET_KEY = "another"

    with pytest.raises(ImportRefused, match=r"ann judged .* already in this round"):
        import_judgments(path, "pilot", create=True)


@pytest.mark.django_db
def test_space_around_an_entity_makes_no_other_tuple(tmp_path):
    path = csv_file(tmp_path, f"can,{DOG},ann,True", 'can,"[""dog "", "" swim""]",bob,True')

    imported = import_judgments(path, "pilot", create=True).round

    assert verdicts(imported) == {"dog\x1fswim": "accepted"}


@pytest.mark.django_db
def test_a_relation_may_be_named_with_and_without_its_set(tmp_path):
    relation = make_relation("can")
    path = csv_file(tmp_path, f"can,{DOG},ann,True", f"{relation.path},{DOG},bob,True")

    imported = import_judgments(path, "pilot", create=True).round

    assert list(verdicts(imported).values()) == ["accepted"]


@pytest.mark.django_db
def test_judgments_of_a_demonstrator_say_so(tmp_path):
    path = csv_file(tmp_path, f"can,{DOG},ann,True,embedded", heading=f"{HEADING},model")

    import_judgments(path, "pilot", create=True)

    assert LanguageModel.objects.get(name="embedded").is_demonstrator


def test_a_quote_that_never_closes_is_named():
    text = f'{HEADING}\ncan,"' + "x" * 200_000

    [fault] = rows_of(text)

    assert isinstance(fault, BadEntry)
    assert "is not CSV" in fault.reason
