"""Conduct of the round: samples and harvests, participants, exclusions, design and timeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.cells import DrawnVerdicts, accuracies_of, drawn_verdicts
from evaluation.evidence.evidence import Conduct, Evidence, ExcludedJudgments, patterns_of
from evaluation.rendering.documents import Document, lm_and_setting, name_of
from evaluation.reports.sections.rates import demonstrator_mark
from kgharvest.pages.number_format import counted, percent
from kgharvest.statistics.arrays import ACCEPTED, VERDICTS
from kgharvest.statistics.rates import macro_average
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

MOST_CELLS = 60  # that people read one by one
MOST_PROMPTS = 200

SIZES = ("harvested", "kept", "left_out", "population", "drawn")
SIZE_COLUMNS = (*of_kind(Kind.COUNT, "harvested", "within cut", "hidden", "drawn from", "drawn"),)
SIZE_NOTE = (
    "hidden: by curation or, where the round leaves them out, with sensitive words. drawn: a simple random sample "
    "without replacement of each stratum of ranks"
)

Cell = Mapping[str, Any]


def cells_of(document: Document) -> Sequence[Cell]:
    cells: Sequence[Cell] = (document.get("conduct") or {}).get("cells", [])
    return cells


def sampling_table(document: Document) -> Table:
    """Cells as rows, LMs and settings where there are too many cells for people."""
    cells = cells_of(document)
    shown = cells if len(cells) <= MOST_CELLS else [_together(own) for own in _by_side(cells)]
    rows = [
        Row((cell["relation"], name_of(cell["model"]), name_of(cell["setting"]), cell["cut"], *_sizes(cell)))
        for cell in shown
    ]
    columns = (*map(Column, ("relation", "LM", "setting", "cut")), *SIZE_COLUMNS)
    notes = (f"{SIZE_NOTE}, seed {document.get('seed')}.",)
    return Table("sampling", "Samples", columns, tuple(rows), notes)


def _sizes(cell: Cell) -> tuple[int | None, ...]:
    return tuple(cell[key] for key in SIZES)


def _by_side(cells: Sequence[Cell]) -> list[list[Cell]]:
    sides: dict[tuple[str | None, str | None], list[Cell]] = {}
    for cell in cells:
        sides.setdefault((cell["model"], cell["setting"]), []).append(cell)
    return list(sides.values())


def _together(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return all relations of one LM and setting as one row; a number is None if it is not known of one of them."""
    totals = {
        key: None if any(value is None for value in values) else sum(values)
        for key in SIZES
        if (values := [cell[key] for cell in cells])
    }
    relations = counted(len({cell["relation"] for cell in cells}), "relation")
    return {**cells[0], "relation": relations, "cut": _listed(cell["cut"] for cell in cells), **totals}


def _listed(values: Iterable[str | None]) -> str:
    return ", ".join(sorted({value for value in values if value}))


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
    return Table("sampling-cells", "The sample of every cell", columns, tuple(rows), (f"{SIZE_NOTE}.",))


# -- harvests ----------------------------------------------------------------------------------------------------------

MADE_BY = ("model", "setting", "origin", "revision", "dtype", "device", "code_version")


def harvest_table(document: Document) -> Table:
    """The LMs and how they were asked, a row for what is the same of all relations."""
    alike: dict[tuple[str | None, ...], list[Cell]] = {}
    for cell in cells_of(document):
        if cell["harvested"] is not None:
            alike.setdefault(tuple(cell[key] for key in MADE_BY), []).append(cell)
    rows = [
        Row((
            demonstrator_mark(document, model), setting, revision, dtype, device, len(cells),
            sum(cell["n_prompts"] for cell in cells), _span([cell["harvested_at"] for cell in cells]),
            "imported" if origin == "imported" else code_version,
        ), about={"model": model, "setting": setting})
        for (model, setting, origin, revision, dtype, device, code_version), cells in alike.items()
    ]  # fmt: skip
    columns = (
        *map(Column, ("LM", "setting", "revision", "dtype", "device")),
        Column("harvests", Kind.COUNT), Column("prompts", Kind.COUNT), Column("made"), Column("by code"),
    )  # fmt: skip
    return Table("harvests", "Harvests", columns, tuple(rows), ("A folder or an embedded LM has no revision.",))


def _span(times: Sequence[str | None]) -> str | None:
    days = sorted({at[:10] for at in times if at})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else None


def prompt_table(document: Document) -> Table:
    """The prompts with their weights; none of them where they are too many for people: the JSON has them all."""
    rows = [
        Row((cell["relation"], name_of(cell["model"]), name_of(cell["setting"]), prompt["weight"], prompt["text"]))
        for cell in cells_of(document)
        for prompt in cell["prompts"]
    ]
    columns = (*map(Column, ("relation", "LM", "setting")), Column("weight", Kind.SHARE), Column("prompt"))
    return Table("prompts", "Prompts with their weights", columns, tuple(rows) if len(rows) <= MOST_PROMPTS else ())


# -- pages -------------------------------------------------------------------------------------------------------------


def without_many_prompts(entry: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the block `conduct` without prompts where they are too many for a table."""
    if entry is None:
        return None
    cells = entry["cells"]
    if sum(cell["n_prompts"] for cell in cells) > MOST_PROMPTS:
        cells = [{**cell, "prompts": []} for cell in cells]
    return {**entry, "cells": cells}


# Participants, exclusions and timeline

METHOD = (
    "Exclusions: accuracy with somebody's judgments is that of the verdicts which all counted judgments and theirs "
    "together give, everybody else who is excluded left out."
)


# -- the effect of exclusions ------------------------------------------------------------------------------------------


def conduct_entry(evidence: Evidence, conduct: Conduct, drawn: DrawnVerdicts) -> dict[str, Any]:
    """Return the block `conduct` of docs/report-json.md: what was gathered, with the effects of exclusions in force."""
    without = _side_accuracies(evidence, drawn)
    exclusions = []
    for exclusion in conduct.entry["exclusions"]:
        is_in_force = exclusion["reinstated_at"] is None
        own = conduct.excluded.get(exclusion["annotator"]) if is_in_force else None
        effects = [] if own is None else _effects(evidence, without, _accuracies_with(evidence, own))
        exclusions.append({**exclusion, "effects": effects})
    statements = {
        "n_drawn": len(evidence.draws.task),
        "n_tasks": evidence.n_tasks,
        "n_begun": int(np.count_nonzero(evidence.counts.any(axis=1))),
        **dict(zip(VERDICTS, np.bincount(evidence.verdict, minlength=len(VERDICTS)).tolist(), strict=True)),
    }
    return {**conduct.entry, "statements": statements, "exclusions": exclusions}


def _effects(
    evidence: Evidence, without: Sequence[float | None], included: Sequence[float | None]
) -> list[dict[str, Any]]:
    return [
        {**side._asdict(), "with": before, "without": after}
        for side, before, after in zip(evidence.sides, included, without, strict=True)
    ]


def _accuracies_with(evidence: Evidence, own: ExcludedJudgments) -> list[float | None]:
    """Return the accuracies that the counted judgments and an excluded annotator's give together.

    A statement whose place nobody has filled since is as it was before the exclusion; one that somebody has judged
    instead has a judgment more than it wanted.
    """
    counts = evidence.counts.copy()
    np.add.at(counts, (own.task, own.label), 1)
    return _side_accuracies(evidence, drawn_verdicts(evidence, patterns_of(counts, evidence.wanted)))


def _side_accuracies(evidence: Evidence, drawn: DrawnVerdicts) -> list[float | None]:
    """Return the mean accuracy over relations of each LM and setting, as `macro_accuracy`."""
    accuracies = accuracies_of(evidence, drawn.shares(ACCEPTED))
    return [
        macro_average(None if np.isnan(value) else float(value) for value in accuracies[evidence.side_of_cell == side])
        for side in range(len(evidence.sides))
    ]


# -- in words ----------------------------------------------------------------------------------------------------------


def notes_on_conduct(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reader of any number must know, one sentence each."""
    in_force = [exclusion for exclusion in entry["exclusions"] if exclusion["reinstated_at"] is None]
    if in_force:
        n = entry["judgments"]["n_excluded"]
        were = "annotator was" if len(in_force) == 1 else "annotators were"
        yield (
            f"{len(in_force)} {were} excluded: {counted(n, 'judgment')} count no more. Who, why, and what that does to "
            "the accuracies stands under “Exclusions”."
        )


class Step(NamedTuple):
    """A step of the flow of tuples, statements, people or judgments.

    left_out: how many of the step before are no more there, None where none are. is_part: of the step before, and not
    what follows on it.
    """

    of: str
    name: str
    n: int
    left_out: int | None = None
    because: str | None = None
    is_part: bool = False


def flow_steps(document: Document) -> list[Step]:
    """Return the steps in their order; none in reports made before they were recorded."""
    conduct = document.get("conduct")
    if not conduct:
        return []
    return [*_flow_of_tuples(conduct), *_flow_of_people(conduct), *_flow_of_judgments(conduct)]


def flow_table(document: Document) -> Table:
    """The flow from what was harvested to what the numbers rest on, with what was left out at each step."""
    rows = [Row(step[:5]) for step in flow_steps(document)]
    columns = (Column("of"), Column("step"), Column("n", Kind.COUNT), Column("left out", Kind.COUNT), Column("because"))
    notes = (
        *flow_in_words(document),
        "Tuples are those of each cell: what several harvests found counts for each; such statements are judged once.",
    )
    return Table("flow", "Flow of tuples, people and judgments", columns, tuple(rows), notes)


def _step(of: str, name: str, n: int, before: int | None = None, because: str | None = None) -> Step:
    is_whole = before is None or before == n
    return Step(of, name, n) if is_whole or before is None else Step(of, name, n, before - n, because)


def flow_in_words(document: Document) -> Iterator[str]:
    """Yield the flow as a paper tells it."""
    n = {(step.of, step.name): step.n for step in flow_steps(document)}
    if not n:
        return
    sampled = ""
    if ("tuples", "harvested") in n:
        drawn, population = n["tuples", "drawn"], n["tuples", "drawn from"]
        sample = "all were drawn" if drawn == population else f"{drawn:,} were drawn at random"
        sampled = (
            f"Of {counted(n['tuples', 'harvested'], 'tuple')} harvested, {n['tuples', 'within the cuts']:,} were "
            f"within the cuts and {population:,} left after curation, of which {sample} (seed {document['seed']}). "
        )
    counts = n["judgments", "counted"]
    yield (
        f"{sampled}{counted(n['people', 'joined'], 'person', 'people')} joined, {n['people', 'judged']:,} judged, and "
        f"{counted(counts, 'judgment')} by {n['people', 'counted']:,} of them count. Of "
        f"{counted(n['statements', 'to judge'], 'statement')}, {n['statements', 'with a verdict']:,} have a verdict."
    )


def _flow_of_tuples(conduct: Mapping[str, Any]) -> Iterator[Step]:
    framed = [cell for cell in conduct["cells"] if cell["population"] is not None]
    harvested, kept, population, drawn = (
        sum(cell[key] for cell in framed) for key in ("harvested", "kept", "population", "drawn")
    )
    if framed:
        sensitive = "" if conduct["design"]["include_sensitive"] else ", or with sensitive words"
        yield _step("tuples", "harvested", harvested)
        yield _step("tuples", "within the cuts", kept, harvested, "below a cut")
        yield _step("tuples", "drawn from", population, kept, f"hidden by curation{sensitive}")
        yield _step("tuples", "drawn", drawn, population, "not in the random sample")
    statements = conduct["statements"]
    n_tasks, n_begun = statements["n_tasks"], statements["n_begun"]
    n_complete = n_tasks - statements["incomplete"]
    yield _step("statements", "to judge", n_tasks, statements["n_drawn"], "drawn for several cells, judged once")
    yield _step("statements", "with a judgment", n_begun, n_tasks, "nobody’s judgment counts")
    yield _step("statements", "with a verdict", n_complete, n_begun, "incomplete")
    for verdict in ("accepted", "rejected", "undecided"):
        yield Step("statements", verdict, statements[verdict], is_part=True)


def _flow_of_people(conduct: Mapping[str, Any]) -> Iterator[Step]:
    people, training = conduct["people"], conduct["training"]
    if people["n_invited"]:
        yield _step("people", "invited by a link of their own", people["n_invited"])
    yield _step("people", "joined", people["n_joined"])
    before = people["n_joined"]
    if training["n_statements"]:
        before = people["n_trained"]
        yield _step("people", "finished the training", before, people["n_joined"], "did not finish it")
    yield _step("people", "judged", people["n_judged"], before, "judged nothing")
    if people["n_blocked_by_limits"]:
        yield Step("people", "of whom a limit paused", people["n_blocked_by_limits"], is_part=True)
    if people["n_with_full_share"]:
        yield Step("people", "of whom judged their full share", people["n_with_full_share"], is_part=True)
    because = "excluded, or nothing of theirs counts" if people["n_excluded"] else "nothing of theirs counts"
    yield _step("people", "counted", people["n_counted"], people["n_judged"], because)


def _flow_of_judgments(conduct: Mapping[str, Any]) -> Iterator[Step]:
    given = conduct["judgments"]
    current = given["n_given"] - given["n_superseded"]
    of_others = current - given["n_gold"]
    in_time = of_others - given["n_late"]
    yield _step("judgments", "given", given["n_given"])
    yield _step("judgments", "standing", current, given["n_given"], "taken back or changed by who gave them")
    yield _step("judgments", "not on gold", of_others, current, "on gold")
    yield _step("judgments", "in time", in_time, of_others, "came when their place was taken")
    yield _step("judgments", "counted", given["n_counted"], in_time, "of excluded annotators")


# -- rules and dates ---------------------------------------------------------------------------------------------------


def design_table(document: Document) -> Table:
    conduct = document.get("conduct")
    said = (*_rules(conduct), *_dates(conduct, document), *_trail(document)) if conduct else ()
    rows = [Row(row) for row in said if row[1]]
    notes = ("Times are in UTC.",)
    return Table("design", "How the round was made", (Column("what"), Column("how")), tuple(rows), notes)


def _trail(document: Document) -> Iterator[tuple[str, str | None]]:
    """Yield the head of the audit trail; older reports name none."""
    if audit := document.get("audit"):
        yield "audit trail", f"entry {audit['number']:,}, SHA-256 {audit['hash']}"


def _rules(conduct: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    design = conduct["design"]
    k, most = design["judgments_per_task"], design["max_per_annotator"]
    thirds = "two, and a third where they differ" if design["third_only_if_split"] else f"{k}, each by another person"
    agreeing = f", at least {design['quorum']} of them" if design["quorum"] > 1 else ""
    yield "judgments per statement", "as many as were imported" if design["quorum"] > 1 else thirds
    yield "verdict", f"of more than half of the judgments{agreeing}; else undecided"
    yield "gold", _gold(conduct["gold"], design["gold_share"])
    yield "training", _training(conduct["training"])
    yield "limits that pause an annotator", conduct["limits"]["sentence"]
    yield "most statements by one person", f"{most:,}" if most else "no limit"
    yield "largest share of one person", percent(cap) if (cap := design["dominance_cap"]) else "no limit"
    yield "tuples with sensitive words", "included" if design["include_sensitive"] else "left out"
    yield "consent", "asked for" if design["has_consent"] else "not asked for"
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
        f"{percent(gold_share)} of what an annotator sees: {gold['n_true']} true (seed tuples), "
        f"{gold['n_false']} false (corrupted seed tuples{confirmed}{when})"
    )


def _training(training: Mapping[str, Any]) -> str:
    if not training["n_statements"]:
        return "none"
    right = f", {percent(training['n_right'] / n)} of their answers right" if (n := training["n_answered"]) else ""
    return (
        f"{counted(training['n_statements'], 'statement')} with known answers; {training['n_finished']} of "
        f"{counted(training['n_begun'], 'person', 'people')} finished it{right}; nobody is turned away by it"
    )


def _adjudication(adjudications: Mapping[str, Any]) -> str:
    if not adjudications["n_statements"]:
        return "none"
    return (
        f"{counted(adjudications['n_statements'], 'statement')} by "
        f"{counted(adjudications['n_experts'], 'expert')}, {adjudications['n_blind']} without seeing who said what"
    )


def _import(imported: Mapping[str, Any]) -> str:
    n_rows, policy = imported["n_rows"], imported["duplicates"]
    rows = "" if n_rows is None else f" in {counted(n_rows, 'row')}"
    repeats = "" if policy is None else f"; repeats by one annotator: {policy} ({imported['n_duplicates']} of them)"
    return f"{counted(imported['n_judgments'], 'judgment')} from {imported['file']}{rows}{repeats}"


def _dates(conduct: Mapping[str, Any], document: Document) -> Iterator[tuple[str, str | None]]:
    dates = conduct["dates"]
    titles = {"opened_at": "opened", "first_judgment_at": "first judgment", "last_judgment_at": "last judgment"}
    for key, title in titles.items():
        yield title, _minute(dates[key])
    yield "closed", _minute(dates["closed_at"]) or "not yet"
    yield "report made", _minute(document.get("created_at"))


def _minute(at: str | None) -> str | None:
    return at[:16].replace("T", " ") if at else None


def _day(at: str | None) -> str:
    return (at or "")[:10]


def timeline_table(document: Document) -> Table:
    lines = (document.get("conduct") or {}).get("timeline", [])
    rows = [Row((_minute(line["at"]), line["by"], line["annotator"], line["what"])) for line in lines]
    columns = (Column("when"), Column("by"), Column("annotator"), Column("what"))
    notes = ("by: the role in the project; nobody where the system acted, or the operator at the command line.",)
    return Table("timeline", "What happened when", columns, tuple(rows), notes)


# -- exclusions --------------------------------------------------------------------------------------------------------


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
    notes = ("by: the role in the project. judgments: taken out of the count.",)
    return Table("exclusions", "Exclusions", columns, tuple(rows), notes)


def exclusion_effect_table(document: Document) -> Table:
    rows = [
        Row((exclusion["annotator"], lm_and_setting(effect), *_with_and_without(effect)))
        for exclusion in (document.get("conduct") or {}).get("exclusions", [])
        for effect in exclusion["effects"]
    ]
    columns = (
        Column("without"), Column("LM and setting"), Column("with", Kind.SHARE), Column("without", Kind.SHARE),
        Column("difference", Kind.POINTS),
    )  # fmt: skip
    notes = (
        "Accuracy, mean over relations, with and without the judgments of each excluded annotator; without is what "
        "this report says. With: all counted judgments and theirs together.",
    )
    return Table("exclusion-effects", "What the exclusions change", columns, tuple(rows), notes)


def _with_and_without(effect: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    included, excluded = effect["with"], effect["without"]
    return included, excluded, None if included is None or excluded is None else excluded - included
