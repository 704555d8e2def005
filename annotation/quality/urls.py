"""URLs of quality."""

from django.urls import path

from annotation.quality import views
from annotation.quality.exclusion import reinstate_annotator
from annotation.quality.limits import pause_annotator, resume_annotator

urlpatterns = [
    path("rounds/<slug:name>/statements/", views.statement_list, name="statement_list"),
    path("rounds/<slug:name>/statements/<int:pk>/", views.statement_detail, name="statement"),
    path("rounds/<slug:name>/adjudicate/", views.adjudication, name="adjudication"),
    path("rounds/<slug:name>/limits/", views.round_limits, name="round_limits"),
    path("rounds/<slug:name>/annotators/", views.annotator_list, name="annotator_list"),
    path("rounds/<slug:name>/annotators/<slug:code>/", views.annotator_detail, name="annotator"),
    path("rounds/<slug:name>/annotators/<slug:code>/exclude/", views.annotator_exclude, name="annotator_exclude"),
    *(
        path(
            f"rounds/<slug:name>/annotators/<slug:code>/{verb}/",
            views.annotator_change,
            {"change": change},
            name=f"annotator_{verb}",
        )
        for verb, change in (
            ("pause", pause_annotator),
            ("resume", resume_annotator),
            ("reinstate", reinstate_annotator),
        )
    ),
]
