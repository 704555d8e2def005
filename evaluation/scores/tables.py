"""Tables of a score evaluation, with four digits because good scores differ only in the third digit."""

from collections.abc import Iterable

from evaluation.rendering.documents import Document
from kgharvest.pages.number_format import counted, share
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind


def scorer_table(document: Document) -> Table:
    rows = [
        Row((scorer["scorer"], scorer["average_precision"], scorer["macro_average_precision"]))
        for scorer in document["scorers"]
    ]
    columns = (Column("scores"), *of_kind(Kind.FINE, "all relations pooled", "mean over relations"))
    chance = document["n_positive"] / (document["n_positive"] + document["n_negative"])
    relations = "relation" if document["n_relations"] == 1 else "relations"
    notes = (
        f"Average precision on {document['n_positive']:,} facts and {document['n_negative']:,} false tuples of "
        f"{document['n_relations']} {relations}; for a random order, it is {share(chance)}. Ties are averaged over all "
        "orders.",
        *_left_out(document),
    )
    return Table("scorers", "Average precision", columns, tuple(rows), notes)


def _left_out(document: Document) -> Iterable[str]:
    if document.get("harvests"):
        yield "As harvested: weighted prompts of finished harvests. Only relations with these harvests are included."
    for scorer in document["scorers"]:
        if n := scorer.get("n_unscored"):
            yield f"{scorer['scorer']} has no score for {counted(n, 'tuple')}; missing scores rank last."
    if n := document.get("n_left_out"):
        facts = counted(n, "fact is", "facts are")
        yield (
            f"{facts} excluded: seed tuples of harvests that provide prompts, or facts with entities that the LM "
            "cannot encode."
        )


def replaced_table(document: Document) -> Table:
    """Average precision by kind of replacement in the false tuples."""
    precisions = {
        (entry["corruption"], entry["scorer"]): entry["average_precision"] for entry in document["by_corruption"]
    }
    scorers = [entry["scorer"] for entry in document["scorers"]]
    rows = [
        Row((kind, *(precisions.get((kind, scorer)) for scorer in scorers)))
        for kind in dict.fromkeys(entry["corruption"] for entry in document["by_corruption"])
    ]
    columns = (Column("replaced"), *(Column(scorer, Kind.FINE) for scorer in scorers))
    notes = ("Each row compares all facts with the false tuples of one kind.",)
    return Table("corruptions", "Average precision by kind of replacement", columns, tuple(rows), notes)


def relation_scores_table(document: Document) -> Table:
    scorers = document["scorers"]
    rows = [
        Row((
            relation["relation"],
            *(scorer["relations"][number]["average_precision"] for scorer in scorers),
            relation["n_positive"],
            relation["n_negative"],
        ))
        for number, relation in enumerate(scorers[0]["relations"])
    ]  # fmt: skip
    columns = (
        Column("relation"),
        *(Column(scorer["scorer"], Kind.FINE) for scorer in scorers),
        *of_kind(Kind.COUNT, "facts", "false tuples"),
    )
    return Table("relation-scores", "Average precision per relation", columns, tuple(rows))
