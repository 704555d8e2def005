"""URLs of knowledge."""

from django.urls import path

from kgharvest.knowledge import views
from kgharvest.knowledge.views import sensitive_words

urlpatterns = [
    path("knowledge/", views.tuple_list, name="tuple_list"),
    path("knowledge/tuples/<int:pk>/", views.tuple_detail, name="tuple_detail"),
    path("knowledge/entity/", views.entity_detail, name="entity"),
    path("knowledge/entity.svg", views.entity_graph, name="entity_graph"),
    path("knowledge/sensitive-words/", sensitive_words, name="sensitive_words"),
]
