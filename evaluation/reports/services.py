"""Create reports: compute a round's document from one snapshot of the database, and freeze it."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from annotation.judges.models import JudgeRun
from annotation.judging.sealing import seal_judgments
from annotation.judging.verdict_check import wrong_verdicts
from annotation.models import Round
from evaluation.evidence.reference_kg import compare_with_reference
from evaluation.evidence.rows import conduct_facts, rows_of_round, rules_of_round
from evaluation.models import Report
from evaluation.reports.document import document_of_rows, method_of
from evaluation.reports.report_sections import report_sections
from kgharvest import code_version
from kgharvest.access import Action, check_may
from kgharvest.audit.tables import AuditedTable
from kgharvest.errors import DomainError
from kgharvest.events.chain import Head, head, seal_events
from kgharvest.events.recording import record
from kgharvest.statistics.paired_tests import MARGIN

MOST_NAMED = 5  # altered statements that an error names
REPORTS = AuditedTable(Report, "round_id", "document", "method", "code_version", "created_at")


def create_report(round: Round, by=None, **options: Any) -> Report:
    """Create a report on the current state of the round. options: see `compute_report`. Raises NotAllowed."""
    return store_report(prepare_report(round, by, **options), by)


def prepare_report(round: Round, by=None, **options: Any) -> Report:
    """Return an unstored report. Do not call this in a transaction: it needs a new snapshot. Raises NotAllowed."""
    check_may(by, Action.WORK, round.project)
    seal_judgments(round)
    seal_events()
    return compute_report(round, by=by, **options)


@transaction.atomic
def store_report(report: Report, by=None) -> Report:
    """Store the report and record the event. Raises NotAllowed."""
    check_may(by, Action.WORK, report.round.project)
    report.save()
    record("report.made", report, by, round=report.round, report=report.pk)
    return report


def reported_heads() -> Iterator[tuple[str, Head]]:
    """Yield the name of each report, and the head of the audit log that the report contains."""
    rows = Report.objects.filter(document__has_key="audit").order_by("pk").values_list("pk", "document__audit")
    for pk, audit in rows:
        yield f"report {pk}", Head(audit["number"], audit["hash"])


def compute_report(
    round: Round,
    by=None,
    reference: Path | None = None,
    equivalence_margin: float = MARGIN,
    judge: JudgeRun | None = None,
) -> Report:
    """Return an unstored report on the current state of the round. It is reproducible, except for its date.

    reference: reference KG for novelty. equivalence_margin: margin as a share. judge: run of the round for
    judge-assisted estimates. Raises SeveralJudges, or DomainError BadReference, or VerdictsAltered if
    stored verdicts differ from the judgments.
    """
    now, version = timezone.now(), code_version()
    with one_moment():
        if errors := list(islice(wrong_verdicts(round), MOST_NAMED)):
            raise DomainError("VerdictsAltered", f"{' '.join(errors)} Run `audit verify`, and restore a backup.")
        rows = rows_of_round(round, judge)
        facts = rules_of_round(round) | {"equivalence_margin": equivalence_margin, "conduct": conduct_facts(round)}
        novelty = compare_with_reference(round, reference) if reference else None
        section_facts = {section.key: section.gather(round) for section in report_sections()}
        last_entry = head()
    document = document_of_rows(rows, facts, section_facts)
    document |= {"novelty": novelty, "audit": last_entry._asdict()}
    method = method_of(document)
    stamp = {"created_at": now.isoformat(timespec="seconds"), "code_version": version, "method": method}
    return Report(
        round=round, document=document | stamp, method=method, code_version=version, created_by=by, created_at=now
    )


@contextmanager
def one_moment() -> Iterator[None]:
    """Run all queries in the block on one snapshot of the database, so that concurrent judgments have no effect."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield
