"""Permission checks in services, independent of pages and API: each service rejects a viewer.

Every function with a parameter `by` has a row here, or a reason for the missing row.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.utils import timezone

from annotation.exchange.judgment_import import import_judgments
from annotation.gold.candidates import decide_on_gold, gold_candidates, withdraw_gold
from annotation.invites.erasure import erase_account, erase_annotator
from annotation.invites.services import make_invites, revoke_invites
from annotation.judges.runs import continue_run, prepare_run
from annotation.judging.reservations import release_reservation, reserve_statements
from annotation.models import JudgeRun
from annotation.monitoring.progress import release_assigned
from annotation.quality.adjudication import adjudicate
from annotation.quality.exclusion import exclude_annotator, reinstate_annotator
from annotation.quality.limits import pause_annotator, resume_annotator, set_limits
from annotation.questionnaire.withdrawal import withdraw_annotator
from annotation.rounds.services import (
    clone_round,
    close_round,
    create_draft,
    delete_draft,
    edit_draft,
    open_draft,
    open_round,
    pause_round,
    reopen_round,
    save_instructions,
    set_who_can_join,
)
from evaluation.models import Study
from evaluation.reports.services import (
    create_report,
    prepare_report,
    store_report,
)
from evaluation.sharing.services import revoke_share, share_report
from evaluation.studies import steps
from evaluation.studies.services import store_study
from kgharvest.accounts.projects import (
    create_annotator,
    create_invite,
    create_project,
    hand_over,
    project_for,
    publish_knowledge,
    remove_member,
    rename_project,
    renew_annotator,
    revoke_invite,
    set_role,
)
from kgharvest.accounts.tokens import create_token, revoke_token, revoke_tokens
from kgharvest.archive import archive, restore
from kgharvest.contrib.publishing.packs.pack_jobs import queue_pack
from kgharvest.contrib.publishing.preregistration.services import freeze_preregistration
from kgharvest.contrib.publishing.statements.services import save_statements
from kgharvest.contrib.recruiting.panels.publishing import (
    create_panel,
    delete_panel,
    edit_panel,
    pause_panel,
    publish_panel,
    resume_panel,
    stop_panel,
)
from kgharvest.contrib.recruiting.panels.services import enter, free_place
from kgharvest.contrib.recruiting.pay.bonuses import grant_bonus, make_good, note_paid
from kgharvest.contrib.recruiting.pay.commands import approve, ask, decide, resend, settle_by_hand
from kgharvest.contrib.recruiting.reconciliation import ask_reconciliation
from kgharvest.entities.tables import delete_table, save_table
from kgharvest.errors import DomainError
from kgharvest.harvests.launches import cancel_launch, retry_cancelled, retry_failed
from kgharvest.jobs.ledger import cancel, retry
from kgharvest.jobs.workers import drain, undrain
from kgharvest.knowledge.curation import curate
from kgharvest.knowledge.sensitive_words import replace_words
from kgharvest.models import Role, Webhook
from kgharvest.relations.services import (
    change_set,
    delete_relation,
    delete_set,
    duplicate_set,
    editable_set,
    load_shipped_sets,
)
from kgharvest.webhooks.outbox import (
    create_webhook,
    delete_webhook,
    disable_webhook,
    edit_webhook,
    enable_webhook,
    rotate_secret,
    send_again,
    send_test,
)
from tests import factories
from tests.kgharvest.contrib.publishing.preregistration.planning import planned
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel

NOW = timezone.now()
URL, EVENTS = "https://example.org/", ["report.made"]

# Calls of the services by a viewer `by`.
CALLS: dict[Callable, Callable] = {
    project_for: lambda it, by: project_for(by, it.project),
    create_project: lambda it, by: create_project("New", by),
    rename_project: lambda it, by: rename_project(it.project, "Mine", by),
    publish_knowledge: lambda it, by: publish_knowledge(it.project, "all", by),
    set_role: lambda it, by: set_role(it.project, by, Role.OWNER, by),
    remove_member: lambda it, by: remove_member(it.project, it.owner, by),
    hand_over: lambda it, by: hand_over(it.project, it.owner, by),
    create_annotator: lambda it, by: create_annotator(it.project, "new-annotator", by=by),
    renew_annotator: lambda it, by: renew_annotator(it.project, by, by),
    create_invite: lambda it, by: create_invite(it.project, Role.OWNER, NOW + timedelta(days=1), by),
    revoke_invite: lambda it, by: revoke_invite(it.invite, NOW, by),
    revoke_token: lambda it, by: revoke_token(it.token, NOW, by),
    revoke_tokens: lambda it, by: revoke_tokens(it.project.api_tokens.all(), NOW, by),
    cancel_launch: lambda it, by: cancel_launch(it.launch, by),
    retry_failed: lambda it, by: retry_failed(it.launch, by),
    retry_cancelled: lambda it, by: retry_cancelled(it.launch, by),
    cancel: lambda it, by: cancel(it.queued, by),
    drain: lambda it, by: drain(it.worker, by),
    undrain: lambda it, by: undrain(it.worker, by),
    retry: lambda it, by: retry(it.queued, by),
    curate: lambda it, by: curate(it.tuple, "hide", "wrong", by),
    load_shipped_sets: lambda it, by: load_shipped_sets(by),
    replace_words: lambda it, by: replace_words(["word"], by),
    delete_relation: lambda it, by: delete_relation(it.relation, by),
    editable_set: lambda it, by: editable_set(it.relation.relation_set.name, by),
    duplicate_set: lambda it, by: duplicate_set(it.relation.relation_set, "copy", by, it.project),
    change_set: lambda it, by: change_set(it.relation.relation_set, "other", "", by),
    save_table: lambda it, by: save_table(it.relation.relation_set, True, False, by=by),
    delete_table: lambda it, by: delete_table(it.relation.relation_set, by),
    delete_set: lambda it, by: delete_set(it.relation.relation_set, by),
    create_webhook: lambda it, by: create_webhook(it.project.pk, URL, EVENTS, by),
    edit_webhook: lambda it, by: edit_webhook(it.webhook, URL, EVENTS, by),
    rotate_secret: lambda it, by: rotate_secret(it.webhook, by),
    disable_webhook: lambda it, by: disable_webhook(it.webhook, by),
    enable_webhook: lambda it, by: enable_webhook(it.webhook, by),
    delete_webhook: lambda it, by: delete_webhook(it.webhook, by),
    send_test: lambda it, by: send_test(it.webhook, by),
    send_again: lambda it, by: send_again(it.delivery, by),
    import_judgments: lambda it, by: import_judgments(it.file, it.round.name, project=it.project, by=by),
    decide_on_gold: lambda it, by: decide_on_gold(it.relation, {it.gold: True}, by),
    withdraw_gold: lambda it, by: withdraw_gold(it.decision, "wrong", by),
    adjudicate: lambda it, by: adjudicate(it.task, "true", uuid4(), by=by),
    exclude_annotator: lambda it, by: exclude_annotator(it.annotator, "guesses", by),
    reinstate_annotator: lambda it, by: reinstate_annotator(it.annotator, by),
    set_who_can_join: lambda it, by: set_who_can_join(it.round, "invite", by),
    set_limits: lambda it, by: set_limits(it.round, by, longest_run=9),
    pause_annotator: lambda it, by: pause_annotator(it.annotator, by),
    resume_annotator: lambda it, by: resume_annotator(it.annotator, by),
    withdraw_annotator: lambda it, by: withdraw_annotator(it.annotator, by),
    erase_annotator: lambda it, by: erase_annotator(it.annotator, by),
    erase_account: lambda it, by: erase_account(it.owner, by),
    make_invites: lambda it, by: make_invites(it.round, 1, NOW, by),
    revoke_invites: lambda it, by: revoke_invites(it.round, [], NOW, by),
    create_panel: lambda it, by: create_panel(it.round, {}, by),
    edit_panel: lambda it, by: edit_panel(it.panel, {"places": 3}, by),
    delete_panel: lambda it, by: delete_panel(it.panel, by),
    publish_panel: lambda it, by: publish_panel(it.panel, by),
    pause_panel: lambda it, by: pause_panel(it.panel, by=by),
    resume_panel: lambda it, by: resume_panel(it.panel, by),
    stop_panel: lambda it, by: stop_panel(it.panel, by),
    ask: lambda it, by: ask(it.submission, "approve", "approve", by=by),
    ask_reconciliation: lambda it, by: ask_reconciliation(it.panel, by),
    decide: lambda it, by: decide(it.submission, "return", by=by),
    approve: lambda it, by: approve(it.panel, None, by),
    resend: lambda it, by: resend(it.command, by),
    settle_by_hand: lambda it, by: settle_by_hand(it.command, True, by),
    grant_bonus: lambda it, by: grant_bonus(it.submission, 10, "Thank you.", by),
    note_paid: lambda it, by: note_paid(it.panel, [it.submission.pk], 10, by),
    make_good: lambda it, by: make_good(it.panel, by),
    free_place: lambda it, by: free_place(it.panel.submissions.create(entered_at=NOW), NOW, by),
    open_round: lambda it, by: open_round(it.document, by, it.project),
    create_draft: lambda it, by: create_draft(it.document, by, it.project),
    edit_draft: lambda it, by: edit_draft(it.draft, it.document, by),
    delete_draft: lambda it, by: delete_draft(it.draft, by),
    clone_round: lambda it, by: clone_round(it.round, by),
    open_draft: lambda it, by: open_draft(it.draft, by),
    save_instructions: lambda it, by: save_instructions(it.draft, it.relation, "Judge.", by),
    pause_round: lambda it, by: pause_round(it.round, by),
    reopen_round: lambda it, by: reopen_round(it.round, by),
    close_round: lambda it, by: close_round(it.round, by),
    prepare_run: lambda it, by: prepare_run(JudgeRun(), it.round, by),
    continue_run: lambda it, by: continue_run(JudgeRun(project=it.project), {}, by),
    reserve_statements: lambda it, by: reserve_statements(it.round, [it.annotator.code], pk__in=[1], by=by),
    release_reservation: lambda it, by: release_reservation(it.reservation, by),
    release_assigned: lambda it, by: release_assigned(it.round, by=by),
    create_report: lambda it, by: create_report(it.round, by),
    prepare_report: lambda it, by: prepare_report(it.round, by),
    store_report: lambda it, by: store_report(it.report, by),
    archive: lambda it, by: archive(it.report, by),
    restore: lambda it, by: restore(it.round, by),
    store_study: lambda it, by: store_study(it.study.document | {"project": it.project.slug}, by),
    steps.queue_harvests: lambda it, by: steps.queue_harvests(it.study, by),
    steps.open_study_round: lambda it, by: steps.open_study_round(it.study, by),
    steps.queue_judges: lambda it, by: steps.queue_judges(it.study, by),
    steps.queue_sections: lambda it, by: steps.queue_sections(it.study, by),
    steps.simulate: lambda it, by: steps.simulate(it.study, by),
    steps.report_now: lambda it, by: steps.report_now(it.study, by),
    queue_pack: lambda it, by: queue_pack(it.report, by),
    freeze_preregistration: lambda it, by: freeze_preregistration(it.draft, planned(), NOW, by),
    share_report: lambda it, by: share_report(it.report, "Reviewers", 1, NOW, by=by),
    revoke_share: lambda it, by: revoke_share(it.share, NOW, by),
    save_statements: lambda it, by: save_statements(it.round, {"languages": "English"}, by),
}

# Functions without a row, by reason.
CALL_PROJECT_FOR = {
    "plan_launch", "create_harvest_job", "queue_harvest", "prepared_import", "import_relation_file",
    "import_kg", "prepared_kg", "store_upload", "save_relation", "queue_score_job", "create_probe", "queue_probe",
    "create_crawl", "queue_text_task", "project_of", "import_study_relations", "plan_of", "checked_plan",
}  # fmt: skip
CALL_SERVICES_WITH_A_ROW = {
    "import_upload", "start_launch", "import_prompts", "create_run", "queue_run", "import_file", "import_answers",
    "advance", "make_report", "planned_study", "study_plan_lines",
}  # fmt: skip
WRITE_NOTHING = {
    "may_decide", "may_withdraw", "check_may_withdraw", "check_may_erase", "check_can_edit",
    "freeze_round", "plan_round", "estimated_usage", "populations", "default_instructions", "compute_report",
    "facts_of_content", "training_of_content", "parts_of", "check_harvest", "check_endpoint", "score_request",
    "find_study", "locked", "gold_candidates", "deciding_projects",
}  # fmt: skip
ALLOWED_FOR_ALL = {"remove"}  # the user's own second factor
CALLED_BY_SERVICES = {  # audit log, deletion of drafts, erasure and withdrawal
    "record", "record_run", "delete_runs", "note_deletion", "record_packed", "forget", "record_deletion",
    "record_relations",
}  # fmt: skip
APPS = ("kgharvest", "annotation", "evaluation")
INTERFACES = ("api", "views", "forms", "management", "migrations", "engine", "embedded_lm", "web_worker", "demo")


@pytest.fixture
def it(tmp_path) -> SimpleNamespace:
    """One object of each kind in a project, and its owner."""
    relation = factories.make_relation(relation_set=factories.make_relation_set("own"))
    launch = factories.make_launch()
    harvest = factories.make_harvest([("dog", "swim"), ("cat", "climb")], relation=relation, launch=launch)
    document = {"name": "draft", "cells": [{"job": harvest.pk, "n": None}]}
    round = factories.make_round(3, name="pilot")
    project = round.project
    owner = factories.make_member(Role.OWNER, project)
    gold = gold_candidates(relation)[0].code
    decide_on_gold(relation, {gold: True})
    webhook = Webhook.objects.create(project_id=project.pk, url=URL, events=EVENTS)
    file = tmp_path / "judgments.csv"
    file.write_text('relation,entities,annotator,label\ncan,"[""dog"", ""swim""]",ann,true\n')
    report = create_report(round)
    panel = make_panel(round)
    submission = enter(panel, "person", "", NOW)
    return SimpleNamespace(
        submission=submission,
        command=submission.commands.create(kind="bonus", key="bonus:1", amount=10),
        report=report,
        share=share_report(report, "Reviewers", 1, NOW),
        study=Study.objects.create(project=project, name="study", document={"name": "study"}, round=round),
        relation=relation,
        launch=launch,
        worker=factories.make_worker(timezone.now()),
        queued=factories.make_harvest_job(relation=relation, launch=launch, setting="human"),
        tuple=harvest.tuples.first().knowledge_tuple,
        document=document,
        round=round,
        panel=panel,
        draft=create_draft(document, project=project),
        task=round.tasks.first(),
        annotator=factories.make_annotators(round, 1)[0],
        reservation=round.reservations.create(n_reserved=0),
        project=project,
        owner=owner,
        invite=create_invite(project, Role.VIEWER, NOW + timedelta(days=1))[0],
        token=create_token(owner, "bound", "read", 1, NOW, project=project).token,
        gold=gold,
        decision=relation.gold_decisions.get(),
        webhook=webhook,
        delivery=send_test(webhook),
        file=file,
    )


@pytest.mark.django_db
def test_services_reject_viewers(it, enqueued):
    viewer = factories.make_member(Role.VIEWER, it.project)
    allowed = []
    for service, call in CALLS.items():
        try:
            call(it, viewer)
        except DomainError as refusal:
            if refusal.code not in {"NotAllowed", "NotYoursToErase"}:
                raise
            continue
        allowed.append(service.__name__)

    assert allowed == []


def test_every_service_with_an_actor_has_a_row():
    covered = {service.__name__ for service in CALLS}
    covered |= CALL_PROJECT_FOR | CALL_SERVICES_WITH_A_ROW | WRITE_NOTHING | ALLOWED_FOR_ALL | CALLED_BY_SERVICES

    assert set(services_with_actor()) == covered


def services_with_actor() -> Iterator[str]:
    """Yield the public functions of the apps with a parameter `by`, except those of interfaces."""
    for app in APPS:
        package = importlib.import_module(app)
        for module in pkgutil.walk_packages(package.__path__, f"{app}."):
            if module.name.endswith(".panels") and not module.ispkg:  # panels of pages, not of participants
                continue
            if {part for name in module.name.split(".") for part in (name, name.rpartition("_")[2])} & set(INTERFACES):
                continue
            for name, function in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction):
                is_defined_here = function.__module__ == module.name and not name.startswith("_")
                if is_defined_here and "by" in inspect.signature(function).parameters:
                    yield name
