"""The facts of a study that the documents about it rest on, gathered once: the frozen report first, then the round.

Nobody who judged or worked can be told from them: people are codes, mail addresses and names are taken out of texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet

from annotation.judging.models import Judgment
from annotation.models import Annotator, JudgeRun, JudgmentTask, Round
from annotation.rounds.instructions import instructions_markdown
from evaluation.models import Report
from evaluation.paper.statements.questions import MAIL, Answers
from evaluation.paper.statements.services import proposed_on, statements_on
from kgharvest.audit.tables import sha256
from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob, LanguageModel, ProjectMember, Relation
from kgharvest.names import short_name
from kgharvest.pages.number_format import counted

LEAST_PEOPLE = 5  # in a group that anything is said of
NAME_LEFT_OUT, MAIL_LEFT_OUT = "[name left out]", "[mail address left out]"
SHORTEST_NAME = 3  # letters; shorter ones are initials, which words hold

Scrub = Callable[[str], str]


class RelationText(NamedTuple):
    """guide: what annotators read about it, beside the instructions of the round."""

    name: str
    statement: str
    guide: str


class Lm(NamedTuple):
    name: str
    revision: str
    is_demonstrator: bool


class JudgeFacts(NamedTuple):
    """A run of an LM that judged. ended_at: ISO 8601, empty while it goes on."""

    name: str
    model: str
    revision: str
    kind: str
    prompt_sha256: str
    temperature: float
    repeats: int
    seed: int
    ended_at: str


class Recruited(NamedTuple):
    """How people came into the round. n_members: accounts that work in its project; n_guests: without an account."""

    n_accounts: int
    n_members: int
    n_guests: int
    n_by_invite: int
    n_agreed: int


@dataclass(frozen=True)
class StudyFacts:
    """document: the report's (docs/report-json.md), without the log of events, names of files and of people.

    instructions_sha256: of the text that annotators saw; the text here may lack mail addresses and names. consent: what
    they had to agree to, empty if nothing. n_sensitive: statements with a word of the installation's list. answers:
    what people said, by the key of the question. created_at: of the report, ISO 8601.
    """

    report: int
    round: str
    document: Mapping[str, Any]
    created_at: str
    code_version: str
    instructions: str
    instructions_sha256: str
    consent: str
    consent_sha256: str
    relations: Sequence[RelationText]
    language_models: Sequence[Lm]
    judges: Sequence[JudgeFacts]
    recruited: Recruited
    n_sensitive: int
    n_comments: int
    answers: Answers

    def with_answers(self, licence: str, authors: Sequence[str]) -> StudyFacts:
        """Return the facts with a licence and authors, "Family, Given" each, that go before what was said."""
        given = {"licence": licence, "authors": "\n".join(authors)}
        return replace(self, answers={**self.answers, **{key: text for key, text in given.items() if text}})

    @property
    def conduct(self) -> Mapping[str, Any]:
        return self.document["conduct"]

    @property
    def design(self) -> Mapping[str, Any]:
        return self.conduct["design"]

    @property
    def is_of_people(self) -> bool:
        return self.document["source"] != Round.Source.SIMULATED

    @property
    def is_imported(self) -> bool:
        """Whether people judged elsewhere: records tell what they said, not how."""
        return self.document["source"] == Round.Source.IMPORTED


class NoConduct(DomainError):
    """A report from before it was recorded what happened in a round."""


def gather_facts(report: Report) -> StudyFacts:
    """Raises NoConduct."""
    if not report.document.get("conduct"):
        raise NoConduct("This report was made before reports recorded what happened in a round; make a new one.")
    round = report.round
    scrub = scrubber(round, report)
    instructions = instructions_markdown(round)
    return StudyFacts(
        report=report.pk,
        round=scrub(round.name),
        document=scrubbed_document(report.document, scrub),
        created_at=report.created_at.isoformat(timespec="seconds"),
        code_version=report.code_version,
        instructions=scrub(instructions),
        instructions_sha256=sha256(instructions),
        consent=scrub(round.consent),
        consent_sha256=sha256(round.consent) if round.consent else "",
        relations=_relations(round, scrub),
        language_models=_language_models(round),
        judges=_judges(round, report, scrub),
        recruited=_recruited(report),
        n_sensitive=round.tasks.without_gold().filter(knowledge_tuple__is_sensitive=True).count(),
        n_comments=_judgments(report).exclude(comment="").count(),
        answers={key: scrub(text) for key, text in proposed_on(report).items()} | statements_on(round),
    )


# -- who people are stays out ------------------------------------------------------------------------------------------


def scrubber(round: Round, report: Report) -> Scrub:
    """Return what takes mail addresses, and names of all who judged or worked in the round, out of a text."""
    names = sorted(_names(round, report), key=lambda name: (-len(name), name))
    alternatives = "|".join(re.escape(name) for name in names)
    # Between letters and digits of others a name is a part of a word; "_" parts words, as in names of rounds.
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
    """Return the report's document without its log and names of imported files; what people wrote in it is scrubbed."""
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
    """Return what happened in a round with its whole log; texts that people wrote, and names of files, are scrubbed."""
    texts = {"exclusions": "reason", "imports": "file", "timeline": "what"}
    return {**conduct} | {
        part: [{**line, key: line[key] and scrub(line[key])} for line in conduct[part]] for part, key in texts.items()
    }


def scrubbed_report(document: Mapping[str, Any], scrub: Scrub) -> dict[str, Any]:
    """Return the whole document of a report; what people wrote in it is scrubbed, all but the frozen plan."""
    scrubbed = {**document, "round": scrub(document["round"]), "conduct": scrubbed_texts(document["conduct"], scrub)}
    if registered := document.get("preregistration"):
        deviations = [{key: text and scrub(text) for key, text in line.items()} for line in registered["deviations"]]
        scrubbed["preregistration"] = {**registered, "deviations": deviations}
    return scrubbed


def people(n: int) -> str:
    """Return a number of people of one kind in words; of few only that they are few."""
    if not n:
        return "nobody"
    return "fewer than five people" if n < LEAST_PEOPLE else counted(n, "person", "people")


# -- rows --------------------------------------------------------------------------------------------------------------


def _relations(round: Round, scrub: Scrub) -> list[RelationText]:
    of_round = JudgmentTask.objects.filter(round=round).order_by().values("knowledge_tuple__relation")
    return [
        RelationText(
            scrub(relation.name), relation.statement, scrub(round.relation_instructions.get(str(relation.pk), ""))
        )
        for relation in Relation.objects.filter(pk__in=of_round).order_by("name", "pk")
    ]


def _language_models(round: Round) -> list[Lm]:
    jobs = HarvestJob.objects.filter(pk__in=round.strata.exclude(job=None).order_by().values("job"))
    lms = LanguageModel.objects.filter(pk__in=jobs.order_by().values("language_model")).order_by("name", "revision")
    return [Lm(lm.short_name, lm.revision, lm.is_demonstrator) for lm in lms]


def _judges(round: Round, report: Report, scrub: Scrub) -> list[JudgeFacts]:
    """Return the runs that a part of the sample or of the report rests on."""
    card = report.document.get("judge_card") or {}
    names = {name for name in (round.judge, card.get("name")) if name}
    runs = JudgeRun.objects.filter(Q(round=round, name__in=names)).order_by("name")
    return [
        JudgeFacts(
            scrub(run.name), scrub(short_name(run.model)), run.revision, run.get_judge_kind_display(),
            run.prompt_sha256, run.temperature, run.repeats, run.seed,
            run.finished_at.isoformat(timespec="seconds") if run.finished_at else "",
        )
        for run in runs
    ]  # fmt: skip


def _judgments(report: Report) -> QuerySet[Judgment]:
    """Return the judgments that there were when the report was made."""
    return Judgment.objects.filter(annotator__round=report.round_id, judged_at__lte=report.created_at).order_by()


def _recruited(report: Report) -> Recruited:
    judged = Annotator.objects.filter(round=report.round_id, pk__in=_judgments(report).values("annotator"))
    members = ProjectMember.objects.filter(project=report.round.project_id).values("user")
    return Recruited(
        n_accounts=judged.exclude(user=None).count(),
        n_members=judged.filter(user__in=members).count(),
        n_guests=judged.filter(user=None).count(),
        n_by_invite=judged.filter(invite__isnull=False).count(),
        n_agreed=judged.exclude(consented_at=None).count(),
    )
