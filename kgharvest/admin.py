"""Read-only admin pages. Every write goes through a service."""

from django.contrib import admin

from kgharvest.models import HarvestJob, LanguageModel, Launch, Relation, RelationSet, Worker


class ReadOnlyAdmin(admin.ModelAdmin):
    def has_add_permission(self, request, obj=None) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission


@admin.register(Relation)
class RelationAdmin(ReadOnlyAdmin):
    list_display = ["name", "relation_set", "arity", "statement"]
    list_filter = ["relation_set"]
    search_fields = ["name", "statement"]


@admin.register(HarvestJob)
class HarvestJobAdmin(ReadOnlyAdmin):
    list_display = ["pk", "relation", "language_model", "setting", "status", "attempts", "n_tuples", "created_at"]
    list_filter = ["status", "origin", "setting"]
    list_select_related = ["relation", "language_model"]


admin.site.register([RelationSet, LanguageModel, Launch, Worker], ReadOnlyAdmin)
