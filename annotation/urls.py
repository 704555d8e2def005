"""URLs of rounds (`/projects/PROJECT/rounds/NAME/`) and of judging (`/judge/NUMBER/`, without the project).

The old URLs `/rounds/NAME/` redirect to the project's URLs.
"""

from django.urls import path, register_converter

from annotation.exchange import api as exchange_api
from annotation.gold import api as gold_api
from annotation.gold import views as gold_views
from annotation.invites import api as invites_api
from annotation.invites import views as invites_views
from annotation.invites.erasure import erase_annotator
from annotation.judges import api as judges_api
from annotation.judges import views as judges_views
from annotation.judging import api as judging_api
from annotation.judging import views as judging_views
from annotation.judging.views import in_json_or_as_page
from annotation.quality import api as quality_api
from annotation.quality import views as quality_views
from annotation.quality.exclusion import reinstate_annotator
from annotation.quality.limits import pause_annotator, resume_annotator
from annotation.questionnaire import api as questionnaire_api
from annotation.questionnaire import views as questionnaire_views
from annotation.questionnaire.withdrawal import withdraw_annotator
from annotation.rounds import api as rounds_api
from annotation.rounds import draft_views
from annotation.rounds import views as rounds_views
from annotation.rounds.models import RoundPathConverter
from annotation.rounds.services import pause_round, reopen_round
from annotation.training import api as training_api
from annotation.training import views as training_views
from kgharvest.access import Action
from kgharvest.api.views import routes
from kgharvest.archive import archive, restore

app_name = "annotation"

ROUND = "projects/<round:path>/"

register_converter(RoundPathConverter, "round")

urlpatterns = [
    # gold
    path("rounds/gold/", gold_views.GoldList.as_view(), name="gold_list"),
    path("rounds/gold/<int:pk>/", gold_views.gold_of_relation, name="gold"),
    path("rounds/gold/<int:pk>/withdraw/<int:decision>/", gold_views.gold_withdraw, name="gold_withdraw"),
    # rounds
    path("rounds/", rounds_views.RoundList.as_view(), name="round_list"),
    path("rounds/new/", draft_views.round_new, name="round_new"),
    path("rounds/plan/", draft_views.round_plan, name="round_plan"),
    path(ROUND, rounds_views.round_detail, name="round"),
    path(f"{ROUND}edit/", draft_views.round_edit, name="round_edit"),
    path(f"{ROUND}preview/", draft_views.round_preview, name="round_preview"),
    path(f"{ROUND}instructions/<int:pk>/", draft_views.relation_instructions, name="relation_instructions"),
    path(f"{ROUND}open/", draft_views.round_open, name="round_open"),
    path(f"{ROUND}delete/", draft_views.round_delete, name="round_delete"),
    path(f"{ROUND}clone/", draft_views.round_clone, name="round_clone"),
    path(f"{ROUND}pause/", rounds_views.round_change, {"change": pause_round}, name="round_pause"),
    path(f"{ROUND}reopen/", rounds_views.round_change, {"change": reopen_round}, name="round_reopen"),
    path(f"{ROUND}archive/", rounds_views.round_change, {"change": archive}, name="round_archive"),
    path(f"{ROUND}restore/", rounds_views.round_change, {"change": restore}, name="round_restore"),
    path(f"{ROUND}close/", rounds_views.round_close, name="round_close"),
    path(f"{ROUND}release/", rounds_views.round_release, name="round_release"),
    path(f"{ROUND}reservations/", quality_views.round_reservations, name="round_reservations"),
    path(f"{ROUND}reservations/<int:pk>/release/", quality_views.reservation_release, name="reservation_release"),
    path(f"{ROUND}judgments.<slug:file_format>", rounds_views.round_export, name="round_export"),
    path(f"{ROUND}progress.json", rounds_views.round_progress, name="round_progress"),
    path(f"{ROUND}events/", rounds_views.round_events, name="round_events"),
    path(f"{ROUND}events.jsonl", rounds_views.round_events_file, name="round_events_file"),
    # judges
    path(f"{ROUND}judges/", judges_views.judge_run_list, name="judge_runs"),
    path(f"{ROUND}judges/new/", judges_views.judge_run_new, name="judge_run_new"),
    path(f"{ROUND}judges/<slug:name>/", judges_views.judge_run, name="judge_run"),
    path(f"{ROUND}judges/<slug:name>/cancel/", judges_views.judge_run_cancel, name="judge_run_cancel"),
    path(f"{ROUND}judges/<slug:name>/continue/", judges_views.judge_run_continue, name="judge_run_continue"),
    path(f"{ROUND}judges/<slug:name>/answers/<slug:file_format>/", judges_views.judge_run_file, name="judge_run_file"),
    # quality
    path(f"{ROUND}statements/", quality_views.statement_list, name="statement_list"),
    path(f"{ROUND}statements/<int:pk>/", quality_views.statement_detail, name="statement"),
    path(f"{ROUND}adjudicate/", quality_views.adjudication, name="adjudication"),
    path(f"{ROUND}limits/", quality_views.round_limits, name="round_limits"),
    path(f"{ROUND}annotators/", quality_views.annotator_list, name="annotator_list"),
    path(f"{ROUND}annotators/<slug:code>/", quality_views.annotator_detail, name="annotator"),
    path(f"{ROUND}annotators/<slug:code>/exclude/", quality_views.annotator_exclude, name="annotator_exclude"),
    *(
        path(
            f"{ROUND}annotators/<slug:code>/{verb}/",
            quality_views.annotator_change,
            {"change": change, "action": action},
            name=f"annotator_{verb}",
        )
        for verb, change, action in (
            ("pause", pause_annotator, Action.WORK),
            ("resume", resume_annotator, Action.WORK),
            ("reinstate", reinstate_annotator, Action.WORK),
            ("withdraw", withdraw_annotator, Action.WORK),
            ("erase", erase_annotator, Action.MANAGE),
        )
    ),
    path("projects/<slug:slug>/erase/", invites_views.person_erase, name="person_erase"),
    # judging
    path("judge/offline_worker.js", judging_views.offline_worker, name="offline_worker"),
    path("judge/<int:round_id>/", in_json_or_as_page(judging_api.Judge, judging_views.judge), name="judge"),
    path("judge/<int:round_id>/page/", judging_views.judge_page, name="judge_page"),
    path(
        "judge/<int:round_id>/skip/", in_json_or_as_page(judging_api.Skip, judging_views.judge_skip), name="judge_skip"
    ),
    path("judge/<int:round_id>/skipped/", judging_views.judge_skipped, name="judge_skipped"),
    path(
        "judge/<int:round_id>/report/",
        in_json_or_as_page(judging_api.Report, judging_views.judge_report),
        name="judge_report",
    ),
    path("judge/<int:round_id>/answers/", judging_views.judge_answers, name="judge_answers"),
    path("judge/<int:round_id>/instructions/", judging_views.judge_instructions, name="judge_instructions"),
    path("judge/<int:round_id>/layout/", judging_views.judge_layout, name="judge_layout"),
    path("judge/<int:round_id>/questions/", questionnaire_views.questions, name="questions"),
    path("judge/<int:round_id>/withdraw/", questionnaire_views.withdraw, name="withdraw"),
    path("judge/<int:round_id>/training/", training_views.training, name="training"),
    # invites
    path(f"{ROUND}invites/", invites_views.round_invites, name="round_invites"),
    path(f"{ROUND}invites/revoke/", invites_views.invites_revoke, name="invites_revoke"),
    path(f"{ROUND}invites/joining/", invites_views.who_can_join, name="who_can_join"),
    path(f"{ROUND}invites.csv", invites_views.invites_csv, name="invites_csv"),
    path("judge/<int:round_id>/device/", invites_views.device, name="device"),
    path("join/<slug:token>/", invites_views.join, name="join"),
    path("invite/<slug:token>/", invites_views.invite, name="invite"),
    path("return/", invites_views.return_by_code, name="return_by_code"),
    path("return/<str:code>/", invites_views.return_by_code, name="return_by_code"),
    # the API
    *routes("rounds", rounds_api.RoundViewSet, "api_round"),
    *routes("rounds", quality_api.RoundQualityViewSet, "api_round"),
    *routes("rounds/<int:round_id>/events", quality_api.EventViewSet, "api_event"),
    *routes("rounds/<int:round_id>/annotators", quality_api.AnnotatorViewSet, "api_annotator"),
    *routes("rounds", rounds_api.MonitoringViewSet, "api_round"),
    *routes("rounds", exchange_api.ExchangeViewSet, "api_round"),
    *routes("rounds", questionnaire_api.QuestionnaireViewSet, "api_round"),
    *routes("rounds/<int:round_id>/judgments", exchange_api.JudgmentViewSet, "api_judgment"),
    *routes("rounds/<int:round_id>/invites", invites_api.InviteViewSet, "api_invite"),
    *routes("rounds/<int:round_id>/reservations", quality_api.ReservationViewSet, "api_reservation"),
    *routes("rounds/<int:round_id>/judge-runs", judges_api.RoundJudgeRunViewSet, "api_round_judge_run"),
    *routes("judge-runs", judges_api.JudgeRunViewSet, "api_judge_run"),
    *routes("judge-runs/<int:pk>/answers", judges_api.JudgeAnswerViewSet, "api_judge_answer"),
    *routes("rounds/<int:round_id>/tasks", quality_api.TaskViewSet, "api_task"),
    *routes("rounds/<int:round_id>/adjudication", quality_api.AdjudicationQueueViewSet, "api_queued_task"),
    *routes("gold", gold_api.CandidateViewSet, "api_gold"),
    *routes("gold/decisions", gold_api.DecisionViewSet, "api_gold_decision"),
    path("api/v1/judging/", invites_api.JoinedRounds.as_view(), name="api_joined"),
    *(
        path(f"api/v1/judging/<int:round_id>/{rest}", view.as_view(), name=f"api_{name}")
        for rest, view, name in (
            ("", judging_api.Judge, "judge"),
            ("skip/", judging_api.Skip, "judge_skip"),
            ("skipped/", judging_api.Reassign, "judge_skipped"),
            ("release/", judging_api.Release, "judge_release"),
            ("report/", judging_api.Report, "judge_report"),
            ("recent/", judging_api.Recent, "judge_recent"),
            ("instructions/", judging_api.Instructions, "judge_instructions"),
            ("questions/", questionnaire_api.Questions, "judge_questions"),
            ("withdraw/", questionnaire_api.Withdraw, "judge_withdraw"),
            ("training/", training_api.TrainingStatements, "judge_training"),
        )
    ),
    # old URLs without projects
    path("rounds/<slug:name>/", rounds_views.old_address, name="old_round"),
    path("rounds/<slug:name>/<path:rest>", rounds_views.old_address, name="old_round"),
]
