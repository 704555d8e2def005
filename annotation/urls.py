"""URLs of rounds and judging. Gold comes first: its pages stand where the name of a round could."""

from django.urls import path

from annotation.gold import views as gold_views
from annotation.judging import api as judging_api
from annotation.judging import training_views
from annotation.judging import views as judging_views
from annotation.judging.views import in_json_or_as_page
from annotation.quality import views as quality_views
from annotation.quality.exclusion import reinstate_annotator
from annotation.quality.limits import pause_annotator, resume_annotator
from annotation.recruiting import views as recruiting_views
from annotation.recruiting.erasure import erase_annotator
from annotation.rounds import draft_views
from annotation.rounds import views as rounds_views
from annotation.rounds.services import pause_round, reopen_round

app_name = "annotation"


urlpatterns = [
    # gold
    path("rounds/gold/", gold_views.gold_list, name="gold_list"),
    path("rounds/gold/<int:pk>/", gold_views.gold_of_relation, name="gold"),
    path("rounds/gold/<int:pk>/withdraw/<int:decision>/", gold_views.gold_withdraw, name="gold_withdraw"),
    # rounds
    path("rounds/", rounds_views.round_list, name="round_list"),
    path("rounds/new/", draft_views.round_new, name="round_new"),
    path("rounds/plan/", draft_views.round_plan, name="round_plan"),
    path("rounds/<slug:name>/", rounds_views.round_detail, name="round"),
    path("rounds/<slug:name>/edit/", draft_views.round_edit, name="round_edit"),
    path("rounds/<slug:name>/preview/", draft_views.round_preview, name="round_preview"),
    path(
        "rounds/<slug:name>/instructions/<int:pk>/",
        draft_views.relation_instructions,
        name="relation_instructions",
    ),
    path("rounds/<slug:name>/open/", draft_views.round_open, name="round_open"),
    path("rounds/<slug:name>/delete/", draft_views.round_delete, name="round_delete"),
    path("rounds/<slug:name>/clone/", draft_views.round_clone, name="round_clone"),
    path("rounds/<slug:name>/pause/", rounds_views.round_change, {"change": pause_round}, name="round_pause"),
    path("rounds/<slug:name>/reopen/", rounds_views.round_change, {"change": reopen_round}, name="round_reopen"),
    path("rounds/<slug:name>/close/", rounds_views.round_close, name="round_close"),
    path("rounds/<slug:name>/judgments.<slug:file_format>", rounds_views.round_export, name="round_export"),
    path("rounds/<slug:name>/progress.json", rounds_views.round_progress, name="round_progress"),
    path("rounds/<slug:name>/events/", rounds_views.round_events, name="round_events"),
    path("rounds/<slug:name>/events.jsonl", rounds_views.round_events_file, name="round_events_file"),
    # quality
    path("rounds/<slug:name>/statements/", quality_views.statement_list, name="statement_list"),
    path("rounds/<slug:name>/statements/<int:pk>/", quality_views.statement_detail, name="statement"),
    path("rounds/<slug:name>/adjudicate/", quality_views.adjudication, name="adjudication"),
    path("rounds/<slug:name>/limits/", quality_views.round_limits, name="round_limits"),
    path("rounds/<slug:name>/annotators/", quality_views.annotator_list, name="annotator_list"),
    path("rounds/<slug:name>/annotators/<slug:code>/", quality_views.annotator_detail, name="annotator"),
    path(
        "rounds/<slug:name>/annotators/<slug:code>/exclude/", quality_views.annotator_exclude, name="annotator_exclude"
    ),
    *(
        path(
            f"rounds/<slug:name>/annotators/<slug:code>/{verb}/",
            quality_views.annotator_change,
            {"change": change},
            name=f"annotator_{verb}",
        )
        for verb, change in (
            ("pause", pause_annotator),
            ("resume", resume_annotator),
            ("reinstate", reinstate_annotator),
            ("erase", erase_annotator),
        )
    ),
    # judging
    path("rounds/<slug:name>/judge/", in_json_or_as_page(judging_api.Judge, judging_views.judge), name="judge"),
    path("rounds/<slug:name>/judge/page/", judging_views.judge_page, name="judge_page"),
    path(
        "rounds/<slug:name>/judge/skip/",
        in_json_or_as_page(judging_api.Skip, judging_views.judge_skip),
        name="judge_skip",
    ),
    path("rounds/<slug:name>/judge/skipped/", judging_views.judge_skipped, name="judge_skipped"),
    path(
        "rounds/<slug:name>/judge/report/",
        in_json_or_as_page(judging_api.Report, judging_views.judge_report),
        name="judge_report",
    ),
    path("rounds/<slug:name>/judge/instructions/", judging_views.judge_instructions, name="judge_instructions"),
    path("rounds/<slug:name>/judge/layout/", judging_views.judge_layout, name="judge_layout"),
    path("rounds/<slug:name>/training/", training_views.training, name="training"),
    # recruiting
    path("rounds/<slug:name>/invites/", recruiting_views.round_invites, name="round_invites"),
    path("rounds/<slug:name>/invites/revoke/", recruiting_views.invites_revoke, name="invites_revoke"),
    path("rounds/<slug:name>/invites.csv", recruiting_views.invites_csv, name="invites_csv"),
    path("rounds/<slug:name>/device/", recruiting_views.device, name="device"),
    path("join/<slug:token>/", recruiting_views.join, name="join"),
    path("invite/<slug:token>/", recruiting_views.invite, name="invite"),
    path("return/", recruiting_views.return_by_code, name="return_by_code"),
    path("return/<str:code>/", recruiting_views.return_by_code, name="return_by_code"),
]
