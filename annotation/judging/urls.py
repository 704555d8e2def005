"""URLs of judging."""

from django.urls import path

from annotation.judging import views

urlpatterns = [
    path("rounds/<slug:name>/judge/", views.judge, name="judge"),
    path("rounds/<slug:name>/judge/page/", views.judge_page, name="judge_page"),
    path("rounds/<slug:name>/judge/skip/", views.judge_skip, name="judge_skip"),
    path("rounds/<slug:name>/judge/skipped/", views.judge_skipped, name="judge_skipped"),
    path("rounds/<slug:name>/judge/report/", views.judge_report, name="judge_report"),
    path("rounds/<slug:name>/judge/instructions/", views.judge_instructions, name="judge_instructions"),
    path("rounds/<slug:name>/judge/layout/", views.judge_layout, name="judge_layout"),
    path("rounds/<slug:name>/training/", views.training, name="training"),
]
