"""URLs of gold."""

from django.urls import path

from annotation.gold import views

urlpatterns = [
    path("rounds/gold/", views.gold_list, name="gold_list"),
    path("rounds/gold/<int:pk>/", views.gold_of_relation, name="gold"),
    path("rounds/gold/<int:pk>/withdraw/<int:decision>/", views.gold_withdraw, name="gold_withdraw"),
]
