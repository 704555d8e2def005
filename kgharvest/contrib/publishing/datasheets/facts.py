"""Facts about a study. They are gathered once from the frozen report and the round, for all documents of a package.

Facts are a plain dictionary that does not identify any annotator or project member. People have pseudonyms, and names
and email addresses are removed from texts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from annotation.judging.models import Judgment, Label
from annotation.models import Annotator, JudgeRun, JudgmentTask, Round
from annotation.rounds.instructions import instructions_markdown
from evaluation.models import Report
from evaluation.rendering.documents import lm_and_setting
from evaluation.reports.sections.conduct import design_table, flow_in_words
from kgharvest.audit.tables import sha256
from kgharvest.contrib.publishing.statements.services import MAIL, authors_of, missing, proposed_on, statements_on
from kgharvest.errors import DomainError
from kgharvest.models import ProjectMember, Relation
from kgharvest.names import short_name
from kgharvest.pages.number_format import share_with_interval

LEAST_PEOPLE = 5  # documents do not state the exact size of smaller groups
NAME_LEFT_OUT, MAIL_LEFT_OUT = "[name omitted]", "[email address omitted]"
SHORTEST_NAME = 3  # number of letters; shorter names are not removed, because initials occur within words
LABELS = tuple(label.label for label in Label)  # labels as shown on the judging page's buttons
SPDX = "https://spdx.org/licenses/"

Scrub = Callable[[str], str]
Facts = Mapping[str, Any]


def gather_facts(report: Report) -> dict[str, Any]:
    """Return the facts of a study. Raises DomainError "NoConduct" for a report without conduct.

    document: the report's document (docs/report-json.md) without the timeline, file names, and people's names.
    instructions_sha256, consent_sha256: hashes of the texts that annotators saw, before names and email addresses are
    removed from these texts. consent: empty if the round has no consent text. guides: instructions for single
    relations. n_sensitive: number of statements with a word from the list of sensitive words. answers: answers by
    question key.
    """
    if not report.document.get("conduct"):
        raise DomainError(
            "NoConduct", "This report was created before reports recorded the conduct of a round. Create a new report."
        )
    round = report.round
    scrub = scrubber(round, report)
    instructions = instructions_markdown(round)
    relations = JudgmentTask.objects.filter(round=round).order_by().values("knowledge_tuple__relation")
    guides = [
        {"name": scrub(relation.name), "guide": scrub(round.relation_instructions.get(str(relation.pk), ""))}
        for relation in Relation.objects.filter(pk__in=relations).order_by("name", "pk")
    ]
    return {
        "report": report.pk,
        "round": scrub(round.name),
        "document": scrubbed_document(report.document, scrub),
        "created_at": report.created_at.isoformat(timespec="seconds"),
        "code_version": report.code_version,
        "instructions": scrub(instructions),
        "instructions_sha256": sha256(instructions),
        "consent": scrub(round.consent),
        "consent_sha256": sha256(round.consent) if round.consent else "",
        "guides": [guide for guide in guides if guide["guide"]],
        "judges": _judges(round, report, scrub),
        "recruited": _recruited(report),
        "n_sensitive": round.tasks.without_gold().filter(knowledge_tuple__is_sensitive=True).count(),
        "answers": {key: scrub(text) for key, text in proposed_on(report).items()} | statements_on(round),
    }


def with_answers(facts: Facts, licence: str, authors: Sequence[str]) -> dict[str, Any]:
    """Return the facts with this license and these authors ("Family, Given" each) in place of the stored answers."""
    replacements = {"licence": licence, "authors": "\n".join(authors)}
    return {**facts, "answers": facts["answers"] | {key: text for key, text in replacements.items() if text}}


def with_derived(facts: Facts) -> dict[str, Any]:
    """Return the facts with derived values for the templates. This function is pure.

    draw: how statements were drawn ("simple", "ranks", or "judge"). in_force: exclusions in force. missing: questions
    without an answer.
    """
    document, answers = facts["document"], facts["answers"]
    conduct, cells = document["conduct"], document["cells"]
    origins = {cell.get("origin") for cell in conduct["cells"]}
    drawn: dict[str, int] = {}
    for cell in conduct["cells"]:
        drawn[lm_and_setting(cell)] = drawn.get(lm_and_setting(cell), 0) + cell["drawn"]
    if any(stratum.get("judge_label") for cell in cells for stratum in cell["strata"]):
        draw = "judge"
    else:
        draw = "ranks" if any(len(cell["strata"]) > 1 for cell in cells) else "simple"
    rules = dict(row.values[:2] for row in design_table(document).rows)
    medians = [a["median_seconds"] for a in document["annotators"] if a.get("median_seconds") is not None]
    alpha, licence = document["alpha"], answers.get("licence")
    in_force = [exclusion for exclusion in conduct["exclusions"] if exclusion["reinstated_at"] is None]
    has_gold = bool(conduct["gold"]["n_true"] + conduct["gold"]["n_false"])
    checks = {  # whether each option of HEDS 3.3.3.1 applies
        2: has_gold or conduct["limits"]["sentence"] != "none",
        3: conduct["exclusions"] or conduct["adjudications"]["n_statements"],
        4: in_force,
    }
    return {
        **facts,
        "conduct": conduct,
        "design": conduct["design"],
        "is_simulated": document["source"] == Round.Source.SIMULATED,
        "is_imported": document["source"] == Round.Source.IMPORTED,
        "systems": [lm_and_setting(total) for total in document["totals"]],
        "n_relations": len({cell["relation"] for cell in cells}),
        "all_imported": origins == {"imported"},
        "some_imported": "imported" in origins,
        "revisions": sorted({
            (cell["model"], cell["revision"])
            for cell in conduct["cells"] if cell.get("model") and cell.get("revision")
        }),
        "draw": draw,
        "drawn": list(drawn.items()),
        "flow": list(flow_in_words(document)),
        "labels": f"{', '.join(LABELS[:-1])}, and {LABELS[-1]}",
        "n_labels": len(LABELS),
        "n_open": document["n_tasks"] - document["n_complete"],
        "has_gold": has_gold,
        "checks": [option for option, applies in checks.items() if applies],
        "gold_rule": rules["gold"],
        "adjudication_rule": rules["adjudication"],
        "in_force": in_force,
        "n_timed": len(medians),
        "few_timed": len(medians) < LEAST_PEOPLE,
        "fastest": min(medians, default=None),
        "slowest": max(medians, default=None),
        "has_unknown_population": any(cell.get("population") is None for cell in cells),
        "alpha": share_with_interval(alpha["value"], alpha["low"], alpha["high"]),
        "results": [
            {
                "side": lm_and_setting(total), "n": total["n"], "n_relations": total["n_relations"],
                "rate": share_with_interval(
                    total["macro_accuracy"], total["macro_accuracy_these_low"], total["macro_accuracy_these_high"]
                ),
            }
            for total in document["totals"]
        ],
        "plans": [
            plan["sentence"] for plan in (document.get("planner") or {}).get("totals", []) if plan.get("sentence")
        ],
        "missing": missing(answers, document),
        "authors": authors_of(answers),
        "licence_url": f"{SPDX}{licence}" if licence else "",
    }  # fmt: skip


def scrubber(round: Round, report: Report) -> Scrub:
    """Return a function that removes email addresses, and names of annotators and project members, from a text."""
    names = sorted(_names(round, report), key=lambda name: (-len(name), name))
    alternatives = "|".join(re.escape(name) for name in names)
    # A name next to letters or digits is part of a word and not removed. An underscore separates words, as in names of
    # rounds.
    name_of_somebody = re.compile(rf"(?<![^\W_])(?:{alternatives})(?![^\W_])", re.IGNORECASE) if names else None

    def scrub(text: str) -> str:
        text = MAIL.sub(MAIL_LEFT_OUT, text)
        return name_of_somebody.sub(NAME_LEFT_OUT, text) if name_of_somebody else text

    return scrub


def _names(round: Round, report: Report) -> set[str]:
    columns = ("username", "first_name", "last_name", "email")
    rows = [
        *round.annotators.exclude(user=None).values_list(*(f"user__{column}" for column in columns)),
        *ProjectMember.objects.filter(project=round.project_id).values_list(*(f"user__{column}" for column in columns)),
        *round.annotators.exclude(name="").values_list("name"),
    ]
    for user in (report.created_by, round.created_by):
        rows += [tuple(getattr(user, column) for column in columns)] if user else []
    return {name for row in rows for name in row if len(name) >= SHORTEST_NAME}


def scrubbed_document(document: Mapping[str, Any], scrub: Scrub) -> dict[str, Any]:
    """Return the report's document with scrubbed free text, without the timeline and the names of imported files."""
    conduct = document["conduct"]
    exclusions = [
        {**exclusion, "annotator": scrub(exclusion["annotator"]), "reason": scrub(exclusion["reason"])}
        for exclusion in conduct["exclusions"]
    ]
    imports = [{**imported, "file": "a file"} for imported in conduct["imports"]]
    annotators = [{**annotator, "annotator": scrub(annotator["annotator"])} for annotator in document["annotators"]]
    return {
        **document,
        "annotators": annotators,
        "conduct": {**conduct, "exclusions": exclusions, "imports": imports, "timeline": []},
    }


def scrubbed_texts(conduct: Mapping[str, Any], scrub: Scrub) -> dict[str, Any]:
    """Return the conduct of a round with its timeline, and with scrubbed free text and file names."""
    texts = {"exclusions": "reason", "imports": "file", "timeline": "what"}
    return {**conduct} | {
        part: [{**line, key: line[key] and scrub(line[key])} for line in conduct[part]] for part, key in texts.items()
    }


def scrubbed_report(document: Mapping[str, Any], scrub: Scrub) -> dict[str, Any]:
    """Return the whole document of a report with scrubbed free text. The frozen plan is unchanged."""
    scrubbed = {**document, "round": scrub(document["round"]), "conduct": scrubbed_texts(document["conduct"], scrub)}
    if registered := document.get("preregistration"):
        deviations = [{key: text and scrub(text) for key, text in line.items()} for line in registered["deviations"]]
        scrubbed["preregistration"] = {**registered, "deviations": deviations}
    return scrubbed


def _judges(round: Round, report: Report, scrub: Scrub) -> list[dict[str, Any]]:
    """Return the judge runs used by the sample or the report. ended_at: end of the run, empty for an unfinished run."""
    card = report.document.get("judge_card") or {}
    names = {name for name in (round.judge, card.get("name")) if name}
    return [
        {
            "name": scrub(run.name),
            "model": scrub(short_name(run.model)),
            "revision": run.revision,
            "kind": run.get_judge_kind_display(),
            "prompt_sha256": run.prompt_sha256,
            "temperature": f"{run.temperature:g}",
            "repeats": run.repeats,
            "ended_at": run.finished_at.isoformat(timespec="seconds") if run.finished_at else "",
        }
        for run in JudgeRun.objects.filter(round=round, name__in=names).order_by("name")
    ]


def _recruited(report: Report) -> dict[str, int]:
    """Return numbers of annotators who judged. n_members: number of project members.

    n_guests: number of annotators without an account.
    """
    judgments = Judgment.objects.filter(annotator__round=report.round_id, judged_at__lte=report.created_at).order_by()
    judged = Annotator.objects.filter(round=report.round_id, pk__in=judgments.values("annotator"))
    members = ProjectMember.objects.filter(project=report.round.project_id).values("user")
    return {
        "n_accounts": judged.exclude(user=None).count(),
        "n_members": judged.filter(user__in=members).count(),
        "n_guests": judged.filter(user=None).count(),
        "n_by_invite": judged.filter(invite__isnull=False).count(),
        "n_agreed": judged.exclude(consented_at=None).count(),
    }
