"""URLs of relations."""

from django.urls import path

from kgharvest.relations import views

urlpatterns = [
    path("relations/", views.relation_list, name="relation_list"),
    path("relations/new/", views.relation_new, name="relation_new"),
    path("relations/import/", views.relation_import, name="relation_import"),
    path("relations/<int:pk>/", views.relation_detail, name="relation_detail"),
    path("relations/<int:pk>/edit/", views.relation_edit, name="relation_edit"),
    path("relations/<int:pk>/delete/", views.relation_delete, name="relation_delete"),
    path("relations/sets/<int:pk>/edit/", views.set_edit, name="set_edit"),
    path("relations/sets/<int:pk>/prompts/", views.set_prompts, name="set_prompts"),
    path("relations/sets/<int:pk>/duplicate/", views.set_duplicate, name="set_duplicate"),
    path("relations/sets/<int:pk>/delete/", views.set_delete, name="set_delete"),
    path("relations/sets/<int:pk>/relations.json", views.set_export, name="set_export"),
]
