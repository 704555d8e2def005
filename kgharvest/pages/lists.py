"""Base class of list pages: filters, sorting, and pagination of visible rows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from django.views.generic import TemplateView

from kgharvest.access import researcher_required
from kgharvest.api.input import ArchiveFilters, Filters
from kgharvest.bulk.pagination import containing, page_of, sort_key, sorted_by
from kgharvest.models import Project


class ListPage(ABC, TemplateView):
    """List for researchers. Ignores invalid filters and page numbers in the URL.

    filters: query parameters, as in the API. searched: columns searched for the parameter `q`. project_path: lookup of
    the project; "" for lists without a project filter. columns: sortable columns by query key; if empty, the order of
    the rows is unchanged. order: default sort key.
    """

    filters: type[Filters] = Filters
    searched: tuple[str, ...] = ()
    project_path = "project"
    columns: Mapping[str, str] = {}
    order = ""

    @classmethod
    def as_view(cls, **options: Any):
        return researcher_required(super().as_view(**options))

    @abstractmethod
    def rows(self):
        """Return the rows visible to the user."""

    def context(self, page) -> dict[str, Any]:
        """Return additional template context."""
        return {}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        query = {name: text for name, value in self.request.GET.items() if (text := value.strip())}
        filters = self.filters(data={name: text for name, text in query.items() if name != "project"})
        if not filters.is_valid():
            valid = {name: text for name, text in filters.initial_data.items() if name not in filters.errors}
            filters = self.filters(data=valid)
            filters.is_valid()
        rows = containing(filters.narrow(self.rows()), query.get("q", "") if self.searched else "", self.searched)
        projects = list(Project.objects.visible_to(self.request.user)[:200]) if self.project_path else []
        if len(projects) > 1 and "project" in query:
            rows = rows.filter(**{f"{self.project_path}__slug": query["project"]})
        sort = sort_key(self.request, self.columns, self.order)
        page = page_of(self.request, sorted_by(rows, sort, self.columns) if self.columns else rows)
        context = {
            "page_obj": page,
            "sort": sort,
            "filters": query,
            "is_filtered": any(name in query for name in ("q", *filters.fields) if name != "project"),
            "has_archived": issubclass(self.filters, ArchiveFilters) and self.rows().archived().exists(),
            "filter_projects": projects if len(projects) > 1 else [],
        }
        return super().get_context_data(**kwargs) | context | self.context(page)
