"""Study log: samples, harvests, participants, exclusions, design, and timeline of the round."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.evidence import (
    Conduct,
    DrawnVerdicts,
    Evidence,
    accuracies_of,
    drawn_verdicts,
    patterns_of,
)
from evaluation.rendering.documents import Document, demonstrator_mark, lm_and_setting, name_of
from kgharvest.pages.number_format import counted, percent
from kgharvest.statistics.arrays import ACCEPTED, VERDICTS
from kgharvest.statistics.rates import macro_average
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

MOST_CELLS = 60  # maximum number of rows, one per cell
MOST_PROMPTS = 200  # maximum number of rows

SIZES = ("harvested", "kept", "left_out", "population", "drawn")
SIZE_COLUMNS = of_kind(Kind.COUNT, "harvested", "within cut", "hidden", "population", "drawn")
SIZE_NOTE = (
    "hidden: excluded by curation, or sensitive if the round excludes sensitive tuples. drawn: {} from each stratum"
)

Cell = Mapping[str, Any]


def cells_of(document: Document) -> Sequence[Cell]:
    cells: Sequence[Cell] = (document.get("conduct") or {}).get("cells", [])
    return cells


def sampling_table(document: Document) -> Table:
    """Return the table of samples with one row per cell, or one row per LM and setting if there are too many cells."""
    cells = cells_of(document)
    if len(cells) > MOST_CELLS:
        sides: dict[tuple[str | None, str | None], list[Cell]] = {}
        for cell in cells:
            sides.setdefault((cell["model"], cell["setting"]), []).append(cell)
        cells = [_merged(side_cells) for side_cells in sides.values()]
    rows = [
        Row((cell["relation"], name_of(cell["model"]), name_of(cell["setting"]), cell["cut"], *_sizes(cell)))
        for cell in cells
    ]
    columns = (*map(Column, ("relation", "LM", "setting", "cut")), *SIZE_COLUMNS)
    notes = (f"{_size_note(document)}, seed {document.get('seed')}.",)
    return Table("sampling", "Samples", columns, tuple(rows), notes)


def _size_note(document: Document) -> str:
    is_clustered = (document.get("conduct") or {}).get("design", {}).get("cluster_size")
    drawn = "clusters of tuples with the same subject" if is_clustered else "a random sample without replacement"
    return SIZE_NOTE.format(drawn)


def _sizes(cell: Cell) -> tuple[int | None, ...]:
    return tuple(cell[key] for key in SIZES)


def _merged(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the totals over the relations of one LM and setting. A total is None if one of its numbers is unknown."""
    totals = {
        key: None if any(value is None for value in values) else sum(values)
        for key in SIZES
        if (values := [cell[key] for cell in cells])
    }
    relations = counted(len({cell["relation"] for cell in cells}), "relation")
    cuts = ", ".join(sorted({cell["cut"] for cell in cells if cell["cut"]}))
    return {**cells[0], "relation": relations, "cut": cuts, **totals}


def sampling_cell_table(document: Document) -> Table:
    rows = [
        Row((
            cell["relation"], cell["model"], cell["setting"], cell["cut"], *_sizes(cell),
            cell["n_strata"], cell["hidden"], cell["sensitive"], cell["job"],
        ))
        for cell in cells_of(document)
    ]  # fmt: skip
    columns = (
        *map(Column, ("relation", "LM", "setting", "cut")), *SIZE_COLUMNS, Column("strata", Kind.COUNT),
        Column("hidden now", Kind.COUNT), Column("sensitive now", Kind.COUNT), Column("harvest"),
    )  # fmt: skip
    return Table("sampling-cells", "Sample of every cell", columns, tuple(rows), (f"{_size_note(document)}.",))


MADE_BY = ("model", "setting", "origin", "revision", "dtype", "device", "code_version")


def harvest_table(document: Document) -> Table:
    """Return the table of harvests. Harvests of several relations with the same LM, setting, and origin share a row."""
    groups: dict[tuple[str | None, ...], list[Cell]] = {}
    for cell in cells_of(document):
        if cell["harvested"] is not None:
            groups.setdefault(tuple(cell[key] for key in MADE_BY), []).append(cell)
    rows = [
        Row((
            demonstrator_mark(document, model), setting, revision, dtype, device, len(cells),
            sum(cell["n_prompts"] for cell in cells), _span([cell["harvested_at"] for cell in cells]),
            "imported" if origin == "imported" else code_version,
        ), about={"model": model, "setting": setting})
        for (model, setting, origin, revision, dtype, device, code_version), cells in groups.items()
    ]  # fmt: skip
    columns = (
        *map(Column, ("LM", "setting", "revision", "dtype", "device")),
        Column("harvests", Kind.COUNT), Column("prompts", Kind.COUNT), Column("created"),
        Column("kgharvest version"),
    )  # fmt: skip
    return Table("harvests", "Harvests", columns, tuple(rows), ("Folders and embedded LMs have no revision.",))


def _span(times: Sequence[str | None]) -> str | None:
    days = sorted({at[:10] for at in times if at})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else None


def prompt_table(document: Document) -> Table:
    """Return the table of prompts with their weights.

    If there are too many prompts, it has no rows; the JSON contains all prompts.
    """
    rows = [
        Row((cell["relation"], name_of(cell["model"]), name_of(cell["setting"]), prompt["weight"], prompt["text"]))
        for cell in cells_of(document)
        for prompt in cell["prompts"]
    ]
    columns = (*map(Column, ("relation", "LM", "setting")), Column("weight", Kind.SHARE), Column("prompt"))
    return Table("prompts", "Prompts with their weights", columns, tuple(rows) if len(rows) <= MOST_PROMPTS else ())


# Participants, exclusions, and timeline

METHOD_PARTS = {
    "exclusions": (
        "The effect of an exclusion is shown by the accuracy with and without the annotator. The accuracy with the "
        "annotator is based on the verdicts from all counted judgments together with the annotator's judgments. All "
        "other excluded annotators remain excluded."
    ),
}


def conduct_entry(evidence: Evidence, conduct: Conduct, drawn: DrawnVerdicts) -> dict[str, Any]:
    """Return the object `conduct` of docs/report-json.md, with the effects of the exclusions in force."""
    exclusions = []
    for exclusion in conduct.entry["exclusions"]:
        is_in_force = exclusion["reinstated_at"] is None
        excluded = conduct.excluded.get(exclusion["annotator"]) if is_in_force else None
        effects = []
        if excluded is not None:
            # A statement that was reassigned after the exclusion now has one judgment more than required.
            counts = evidence.counts.copy()
            np.add.at(counts, (excluded.task, excluded.label), 1)
            drawn_with = drawn_verdicts(evidence, patterns_of(counts, evidence.wanted))
            accuracies = (_side_accuracies(evidence, verdicts) for verdicts in (drawn_with, drawn))
            pairs = zip(evidence.sides, *accuracies, strict=True)
            effects = [{**side._asdict(), "with": before, "without": after} for side, before, after in pairs]
        exclusions.append({**exclusion, "effects": effects})
    statements = {
        "n_drawn": len(evidence.draws.task),
        "n_tasks": evidence.n_tasks,
        "n_begun": int(np.count_nonzero(evidence.counts.any(axis=1))),
        **dict(zip(VERDICTS, np.bincount(evidence.verdict, minlength=len(VERDICTS)).tolist(), strict=True)),
    }
    return {**conduct.entry, "statements": statements, "exclusions": exclusions}


def _side_accuracies(evidence: Evidence, drawn: DrawnVerdicts) -> list[float | None]:
    """Return the mean accuracy over relations for each LM and setting, computed like `macro_accuracy`."""
    accuracies = accuracies_of(evidence, drawn.shares(ACCEPTED))
    return [
        macro_average(None if np.isnan(value) else float(value) for value in accuracies[evidence.side_of_cell == side])
        for side in range(len(evidence.sides))
    ]


class Step(NamedTuple):
    """A step of the flow of tuples, statements, people, or judgments.

    n_excluded: number of items excluded since the previous step, or None. is_part: True if the step is a part of the
    previous step instead of its successor.
    """

    of: str
    name: str
    n: int
    n_excluded: int | None = None
    reason: str | None = None
    is_part: bool = False


def flow_steps(document: Document) -> list[Step]:
    """Return the steps in order; old reports have none."""
    conduct = document.get("conduct")
    if not conduct:
        return []
    return [*_flow_of_tuples(conduct), *_flow_of_people(conduct), *_flow_of_judgments(conduct)]


def flow_table(document: Document) -> Table:
    """Return the table of the flow from harvested tuples to counted judgments, with the exclusions at each step."""
    rows = [Row(step[:5]) for step in flow_steps(document)]
    columns = (
        *map(Column, ("population", "step")), *of_kind(Kind.COUNT, "n", "excluded"), Column("reason"),
    )  # fmt: skip
    notes = (
        *flow_in_words(document),
        "Tuples are counted per cell: a tuple in several harvests is counted for each harvest, but judged only once.",
    )
    return Table("flow", "Flow of tuples, people, and judgments", columns, tuple(rows), notes)


def _step(of: str, name: str, n: int, before: int | None = None, reason: str | None = None) -> Step:
    is_whole = before is None or before == n
    return Step(of, name, n) if is_whole or before is None else Step(of, name, n, before - n, reason)


def flow_in_words(document: Document) -> Iterator[str]:
    """Yield the flow as text for a paper."""
    n = {(step.of, step.name): step.n for step in flow_steps(document)}
    if not n:
        return
    sampled = ""
    if ("tuples", "harvested") in n:
        drawn, population = n["tuples", "drawn"], n["tuples", "in the population"]
        sample = "all were drawn" if drawn == population else f"{drawn:,} were drawn at random"
        sampled = (
            f"Of {counted(n['tuples', 'harvested'], 'harvested tuple')}, {n['tuples', 'within the cuts']:,} were "
            f"within the cuts and {population:,} remained after curation; {sample} (seed {document['seed']}). "
        )
    yield (
        f"{sampled}{counted(n['people', 'joined'], 'person', 'people')} joined, {n['people', 'judged']:,} judged, and "
        f"{counted(n['judgments', 'counted'], 'judgment')} by {n['people', 'counted']:,} of them count. Of "
        f"{counted(n['statements', 'to judge'], 'statement')}, {n['statements', 'with a verdict']:,} have a verdict."
    )


def _flow_of_tuples(conduct: Mapping[str, Any]) -> Iterator[Step]:
    framed = [cell for cell in conduct["cells"] if cell["population"] is not None]
    harvested, kept, population, drawn = (
        sum(cell[key] for cell in framed) for key in ("harvested", "kept", "population", "drawn")
    )
    if framed:
        sensitive = "" if conduct["design"]["include_sensitive"] else ", or sensitive"
        yield _step("tuples", "harvested", harvested)
        yield _step("tuples", "within the cuts", kept, harvested, "below a cut")
        yield _step("tuples", "in the population", population, kept, f"hidden by curation{sensitive}")
        yield _step("tuples", "drawn", drawn, population, "not in the random sample")
    statements = conduct["statements"]
    n_tasks, n_begun = statements["n_tasks"], statements["n_begun"]
    n_complete = n_tasks - statements["incomplete"]
    yield _step("statements", "to judge", n_tasks, statements["n_drawn"], "drawn for several cells, judged once")
    yield _step("statements", "with a judgment", n_begun, n_tasks, "no counted judgment")
    yield _step("statements", "with a verdict", n_complete, n_begun, "incomplete")
    for verdict in ("accepted", "rejected", "undecided"):
        yield Step("statements", verdict, statements[verdict], is_part=True)


def _flow_of_people(conduct: Mapping[str, Any]) -> Iterator[Step]:
    people, training = conduct["people"], conduct["training"]
    if people["n_invited"]:
        yield _step("people", "invited by a personal link", people["n_invited"])
    yield _step("people", "joined", people["n_joined"])
    before = people["n_joined"]
    if training["n_statements"]:
        before = people["n_trained"]
        yield _step("people", "finished the training", before, people["n_joined"], "did not finish it")
    yield _step("people", "judged", people["n_judged"], before, "no judgment")
    if people["n_blocked_by_limits"]:
        yield Step("people", "of these, paused by a limit", people["n_blocked_by_limits"], is_part=True)
    if people["n_with_full_share"]:
        yield Step("people", "of these, judged their full share", people["n_with_full_share"], is_part=True)
    reason = "excluded, or no counted judgment" if people["n_excluded"] else "no counted judgment"
    yield _step("people", "counted", people["n_counted"], people["n_judged"], reason)


def _flow_of_judgments(conduct: Mapping[str, Any]) -> Iterator[Step]:
    judgments = conduct["judgments"]
    current = judgments["n_given"] - judgments["n_superseded"]
    not_gold = current - judgments["n_gold"]
    in_time = not_gold - judgments["n_late"]
    yield _step("judgments", "given", judgments["n_given"])
    yield _step("judgments", "current", current, judgments["n_given"], "withdrawn or changed by the annotator")
    yield _step("judgments", "not on gold", not_gold, current, "on gold")
    yield _step("judgments", "in time", in_time, not_gold, "late: the statement was reassigned")
    yield _step("judgments", "counted", judgments["n_counted"], in_time, "of excluded annotators")


def design_table(document: Document) -> Table:
    conduct = document.get("conduct")
    items: list[tuple[str, str | None]] = []
    if conduct:
        dates = conduct["dates"]
        titles = {"opened_at": "opened", "first_judgment_at": "first judgment", "last_judgment_at": "last judgment"}
        items = [*_rules(conduct), *((title, _minute(dates[key])) for key, title in titles.items())]
        items.append(("closed", _minute(dates["closed_at"]) or "not yet"))
        items.append(("report created", _minute(document.get("created_at"))))
    if conduct and (audit := document.get("audit")):  # absent from old reports
        items.append(("audit log", f"entry {audit['number']:,}, SHA-256 {audit['hash']}"))
    rows = [Row(item) for item in items if item[1]]
    return Table("design", "Round design", (Column("item"), Column("value")), tuple(rows), ("Times are in UTC.",))


def _rules(conduct: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    design = conduct["design"]
    k, most = design["judgments_per_task"], design["max_per_annotator"]
    thirds = "two, and a third if they differ" if design["third_only_if_split"] else f"{k}, by different people"
    quorum = f", at least {design['quorum']}" if design["quorum"] > 1 else ""
    yield "judgments per statement", "as imported" if design["quorum"] > 1 else thirds
    yield "verdict", f"more than half of the judgments{quorum}; otherwise undecided"
    yield "gold", _gold(conduct["gold"], design["gold_share"])
    yield "training", _training(conduct["training"])
    yield "limits that pause an annotator", conduct["limits"]["sentence"]
    yield "maximum statements per person", f"{most:,}" if most else "no limit"
    yield "maximum share per person", percent(cap) if (cap := design["dominance_cap"]) else "no limit"
    if most := design.get("cluster_size"):  # absent in older documents
        yield "sample", f"clusters of at most {most} statements with the same subject"
    yield "sensitive tuples", "included" if design["include_sensitive"] else "excluded"
    yield "consent", "required" if design["has_consent"] else "not required"
    if n := (answers := conduct.get("answers", {})).get("n_with_references"):
        opened = f"{answers['n_opened_reference']:,} of {counted(n, 'counted judgment')}"
        yield "references opened", f"{opened} ({percent(answers['n_opened_reference'] / n)}), before the answer"
    yield "adjudication", _adjudication(conduct["adjudications"])
    for imported in conduct["imports"]:
        yield "imported", _import(imported)
    yield "seed", str(design["seed"])


def _gold(gold: Mapping[str, Any], gold_share: float) -> str:
    if not gold["n_true"] + gold["n_false"]:
        return "none"
    confirmed = f", confirmed by {counted(n, 'person', 'people')}" if (n := gold["n_confirmed_by"]) else ""
    when = f" between {_day(gold['confirmed_from'])} and {_day(gold['confirmed_to'])}" if confirmed else ""
    return (
        f"{percent(gold_share)} of an annotator's statements: {gold['n_true']} true (seed tuples), "
        f"{gold['n_false']} false (corrupted seed tuples{confirmed}{when})"
    )


def _training(training: Mapping[str, Any]) -> str:
    if not training["n_statements"]:
        return "none"
    correct = f", {percent(training['n_right'] / n)} of their answers correct" if (n := training["n_answered"]) else ""
    return (
        f"{counted(training['n_statements'], 'statement')} with known answers; {training['n_finished']} of "
        f"{counted(training['n_begun'], 'person', 'people')} finished it{correct}; no one is screened out"
    )


def _adjudication(adjudications: Mapping[str, Any]) -> str:
    if not adjudications["n_statements"]:
        return "none"
    return (
        f"{counted(adjudications['n_statements'], 'statement')} by "
        f"{counted(adjudications['n_experts'], 'expert')}, {adjudications['n_blind']} blind to the annotators' labels"
    )


def _import(imported: Mapping[str, Any]) -> str:
    n_rows, policy = imported["n_rows"], imported["duplicates"]
    rows = "" if n_rows is None else f" in {counted(n_rows, 'row')}"
    repeats = "" if policy is None else f"; duplicates by one annotator: {policy} ({imported['n_duplicates']})"
    return f"{counted(imported['n_judgments'], 'judgment')} from {imported['file']}{rows}{repeats}"


def _minute(at: str | None) -> str | None:
    return at[:16].replace("T", " ") if at else None


def _day(at: str | None) -> str:
    return (at or "")[:10]


def wrong_part_table(document: Document) -> Table:
    """Return the table of the wrong parts of False judgments, by relation."""
    parts = ((document.get("conduct") or {}).get("answers") or {}).get("wrong_parts", ())
    rows = [
        Row((
            part["relation"], part["part"] if part["part"] == "relation" else f"slot {part['part']}",
            part["n"], part["n"] / part["n_false"],
        ))
        for part in parts
    ]  # fmt: skip
    columns = (Column("relation"), Column("wrong part"), Column("judgments", Kind.COUNT), Column("share", Kind.SHARE))
    notes = ("share: share of the counted False judgments of the relation. Slots are numbered from 0.",)
    return Table("wrong-parts", "Wrong parts of False statements", columns, tuple(rows), notes)


def timeline_table(document: Document) -> Table:
    lines = (document.get("conduct") or {}).get("timeline", [])
    rows = [Row((_minute(line["at"]), line["by"], line["annotator"], line["what"])) for line in lines]
    columns = tuple(map(Column, ("time", "by", "annotator", "event")))
    notes = ("by: role in the project; empty for the system, or for the operator at the command line.",)
    return Table("timeline", "Timeline", columns, tuple(rows), notes)


def exclusion_table(document: Document) -> Table:
    rows = [
        Row((
            exclusion["annotator"], _minute(exclusion["at"]), exclusion["by"], exclusion["reason"],
            exclusion["n_judgments"], _minute(exclusion["reinstated_at"]),
            exclusion["n_counted_again"] if exclusion["reinstated_at"] else None,
        ), about={"annotator": exclusion["annotator"]})
        for exclusion in (document.get("conduct") or {}).get("exclusions", [])
    ]  # fmt: skip
    columns = (
        Column("annotator"), Column("excluded"), Column("by"), Column("reason"), Column("judgments", Kind.COUNT),
        Column("reinstated"), Column("counted again", Kind.COUNT),
    )  # fmt: skip
    notes = ("by: role in the project. judgments: number of judgments that no longer count.",)
    return Table("exclusions", "Exclusions", columns, tuple(rows), notes)


def exclusion_effect_table(document: Document) -> Table:
    rows = []
    for exclusion in (document.get("conduct") or {}).get("exclusions", []):
        for effect in exclusion["effects"]:
            included, excluded = effect["with"], effect["without"]
            difference = None if included is None or excluded is None else excluded - included
            rows.append(Row((exclusion["annotator"], lm_and_setting(effect), included, excluded, difference)))
    columns = (
        Column("without"), Column("LM and setting"), Column("with", Kind.SHARE), Column("without", Kind.SHARE),
        Column("difference", Kind.POINTS),
    )  # fmt: skip
    notes = (
        "Accuracy, mean over relations. with: based on all counted judgments and those of the excluded annotator. "
        "without: as in this report.",
    )
    return Table("exclusion-effects", "Effect of exclusions", columns, tuple(rows), notes)
