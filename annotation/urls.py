"""Addresses of rounds and judging."""

from django.urls import path

from annotation.services.exclusion import reinstate_annotator
from annotation.services.quality import pause_annotator, resume_annotator
from annotation.services.rounds import pause_round, reopen_round
from annotation.views import (
    adjudication,
    annotators,
    drafts,
    gold,
    invites,
    joining,
    judging,
    preview,
    progress,
    relation_instructions,
    rounds,
    statements,
    training,
)

app_name = "annotation"

urlpatterns = [
    path("rounds/", rounds.round_list, name="round_list"),
    path("rounds/new/", drafts.round_new, name="round_new"),
    path("rounds/plan/", drafts.round_plan, name="round_plan"),
    path("rounds/gold/", gold.gold_list, name="gold_list"),
    path("rounds/gold/<int:pk>/", gold.gold_of_relation, name="gold"),
    path("rounds/gold/<int:pk>/withdraw/<int:decision>/", gold.gold_withdraw, name="gold_withdraw"),
    path("rounds/<slug:name>/", progress.round_detail, name="round"),
    path("rounds/<slug:name>/edit/", drafts.round_edit, name="round_edit"),
    path("rounds/<slug:name>/preview/", preview.round_preview, name="round_preview"),
    path(
        "rounds/<slug:name>/instructions/<int:pk>/",
        relation_instructions.relation_instructions,
        name="relation_instructions",
    ),
    path("rounds/<slug:name>/open/", drafts.round_open, name="round_open"),
    path("rounds/<slug:name>/delete/", drafts.round_delete, name="round_delete"),
    path("rounds/<slug:name>/clone/", drafts.round_clone, name="round_clone"),
    path("rounds/<slug:name>/pause/", rounds.round_change, {"change": pause_round}, name="round_pause"),
    path("rounds/<slug:name>/reopen/", rounds.round_change, {"change": reopen_round}, name="round_reopen"),
    path("rounds/<slug:name>/close/", rounds.round_close, name="round_close"),
    path("rounds/<slug:name>/judgments.<slug:file_format>", rounds.round_export, name="round_export"),
    path("rounds/<slug:name>/progress.json", progress.round_progress, name="round_progress"),
    path("rounds/<slug:name>/events/", progress.round_events, name="round_events"),
    path("rounds/<slug:name>/events.jsonl", progress.round_events_file, name="round_events_file"),
    path("rounds/<slug:name>/statements/", statements.statement_list, name="statement_list"),
    path("rounds/<slug:name>/statements/<int:pk>/", statements.statement_detail, name="statement"),
    path("rounds/<slug:name>/adjudicate/", adjudication.adjudication, name="adjudication"),
    path("rounds/<slug:name>/limits/", annotators.round_limits, name="round_limits"),
    path("rounds/<slug:name>/annotators/", annotators.annotator_list, name="annotator_list"),
    path("rounds/<slug:name>/annotators/<slug:code>/", annotators.annotator_detail, name="annotator"),
    path("rounds/<slug:name>/annotators/<slug:code>/exclude/", annotators.annotator_exclude, name="annotator_exclude"),
    *(
        path(
            f"rounds/<slug:name>/annotators/<slug:code>/{verb}/",
            annotators.annotator_change,
            {"change": change},
            name=f"annotator_{verb}",
        )
        for verb, change in (
            ("pause", pause_annotator),
            ("resume", resume_annotator),
            ("reinstate", reinstate_annotator),
        )
    ),
    path("rounds/<slug:name>/invites/", invites.round_invites, name="round_invites"),
    path("rounds/<slug:name>/invites/revoke/", invites.invites_revoke, name="invites_revoke"),
    path("rounds/<slug:name>/invites.csv", invites.invites_csv, name="invites_csv"),
    path("rounds/<slug:name>/judge/", judging.judge, name="judge"),
    path("rounds/<slug:name>/judge/page/", judging.judge_page, name="judge_page"),
    path("rounds/<slug:name>/judge/skip/", judging.judge_skip, name="judge_skip"),
    path("rounds/<slug:name>/judge/skipped/", judging.judge_skipped, name="judge_skipped"),
    path("rounds/<slug:name>/judge/report/", judging.judge_report, name="judge_report"),
    path("rounds/<slug:name>/judge/instructions/", judging.judge_instructions, name="judge_instructions"),
    path("rounds/<slug:name>/judge/layout/", judging.judge_layout, name="judge_layout"),
    path("rounds/<slug:name>/training/", training.training, name="training"),
    path("rounds/<slug:name>/device/", joining.device, name="device"),
    path("join/<slug:token>/", joining.join, name="join"),
    path("invite/<slug:token>/", joining.invite, name="invite"),
    path("return/", joining.come_back, name="come_back"),
    path("return/<str:code>/", joining.come_back, name="come_back"),
]
