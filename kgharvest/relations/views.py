"""Pages of relations and relation sets."""

from django.contrib import messages
from django.db.models import Count, Q
from django.forms import Form
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from kgharvest.access import MAY, Action, allowed_actions, researcher_required, visible_or_404, worker_required
from kgharvest.accounts.forms import chosen_project, offer_projects
from kgharvest.bulk.pagination import number_in, page_of
from kgharvest.harvests.forms import LaunchForm
from kgharvest.harvests.runner import MIN_SEED_TUPLES
from kgharvest.harvests.views import launch_new
from kgharvest.models import HarvestJob, Project, Relation, RelationSet
from kgharvest.pages.lists import ListPage
from kgharvest.pages.number_format import counted
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form
from kgharvest.relations import services
from kgharvest.relations.api import RelationFilters
from kgharvest.relations.checks import advice_on
from kgharvest.relations.files import export_relations, read_relation_file
from kgharvest.relations.forms import DuplicateSetForm, ImportForm, PromptsForm, RelationForm, SetForm, initial_values
from kgharvest.relations.prompt_files import PromptFile, import_prompts, prompts_with_origins
from kgharvest.tables.downloads import download

N_EXAMPLES = 5  # number of seed tuples that are shown as filled statements
FIRST_SET = "mine"  # name to suggest for a user's first set
RELATIONS = Relation.objects.select_related("relation_set__project")
SETS = RelationSet.objects.select_related("project")


class RelationList(ListPage):
    template_name = "kgharvest/relations/relation_list.html"
    filters = RelationFilters
    project_path = "relation_set__project"
    columns = {"name": "name", "set": "relation_set__name", "arity": "arity", "harvests": "n_harvests"}
    order = "name"

    def rows(self):
        harvests = HarvestJob.objects.visible_to(self.request.user)
        relations = Relation.objects.visible_to(self.request.user).select_related("relation_set")
        return relations.annotate(n_harvests=Count("jobs", filter=Q(jobs__in=harvests)))

    def context(self, page):
        sets = list(RelationSet.objects.visible_to(self.request.user).select_related("project"))
        set_name = self.request.GET.get("set", "")
        shown_set = next((relation_set for relation_set in sets if relation_set.name == set_name), None)
        may = allowed_actions(self.request.user, shown_set.project if shown_set else None)
        return {"sets": sets, "shown_set": shown_set, "may": may}


@researcher_required
def relation_detail(request: HttpRequest, pk: int) -> HttpResponse:
    relation = visible_or_404(request.user, RELATIONS, pk=pk)
    context = {
        "relation": relation,
        "may": allowed_actions(request.user, relation.project),
        "page_obj": page_of(
            request, HarvestJob.objects.visible_to(request.user).with_cell().filter(relation=relation).order_by("-pk")
        ),
        "can_harvest": len(relation.seed_tuples) >= MIN_SEED_TUPLES,
        "examples": relation.seed_tuples[:N_EXAMPLES],
        "predefined_prompts": prompts_with_origins(relation),
    }
    return render(request, "kgharvest/relations/relation_detail.html", context)


@worker_required
def relation_new(request: HttpRequest) -> HttpResponse:
    """Create a relation. Query parameters: `set` preselects a set; `copy` copies the relation with this id."""
    original_id = number_in(request.GET.get("copy"))
    original = None if original_id is None else visible_or_404(request.user, RELATIONS, pk=original_id)
    initial = {"set_name": request.GET.get("set", "")}
    if original:  # the copy needs a new name or, if the original is in a built-in set, a new set
        initial = initial_values(original)
        initial |= {"set_name": ""} if original.relation_set.is_shipped else {"name": f"{original.name[:95]}-copy"}
    return _relation_form(request, {"original": original}, initial)


@researcher_required
def relation_edit(request: HttpRequest, pk: int) -> HttpResponse:
    relation = visible_or_404(request.user, RELATIONS, Action.WORK, pk=pk, relation_set__is_shipped=False)
    return _relation_form(request, {"relation": relation}, initial_values(relation))


def _relation_form(request: HttpRequest, context: dict, initial: dict[str, str]) -> HttpResponse:
    """Show the form, or perform the submitted action: "preview", "harvest" (save and launch), or save the relation."""
    editable_sets = RelationSet.objects.filter(project__in=Project.objects.with_role(request.user, MAY[Action.WORK]))
    if not initial["set_name"]:
        if newest := editable_sets.order_by("-pk").first():
            initial["set_name"] = newest.name
        elif not RelationSet.objects.filter(name=FIRST_SET).exists():
            initial["set_name"] = FIRST_SET
    form = RelationForm(request.POST or None, initial=initial, relation=context.get("relation"), sets=editable_sets)
    offer_projects(form, request)
    context["fixed_fields"] = f"{services.FIXED_FIELDS} {services.EDITABLE_FIELDS}" if form.is_in_use else ""
    if form.is_valid() and "preview" in request.POST:
        entry = form.entry()
        advice = advice_on(entry.statement)
        context |= {"preview": entry, "examples": entry.seed_tuples[:N_EXAMPLES], "advice": advice}
    elif form.is_valid():
        with refusal_in_form(form):
            set_name, project = form.cleaned_data["set_name"], chosen_project(form, request)
            relation = services.save_relation(form.entry(), set_name, form.relation, request.user, project)
            messages.success(request, f"Relation {relation.path} saved.")
            if "harvest" in request.POST:
                return launch_new(request, QueryDict(f"{request.POST.urlencode()}&relations={relation.pk}"))
            return redirect(relation)
    harvest = None if form.relation else LaunchForm(request.POST or None)
    if harvest:
        harvest.offer_relations(request.user)
    return render(request, "kgharvest/relations/relation_edit.html", {"form": form, "harvest": harvest, **context})


@researcher_required
def relation_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation page (GET), or delete the object (POST)."""
    relation = visible_or_404(request.user, RELATIONS, Action.WORK, pk=pk, relation_set__is_shipped=False)
    if request.method != "POST":
        context = {"relation": relation, "is_in_use": services.is_in_use(relation)}
        return render(request, "kgharvest/relations/relation_delete.html", context)
    with refusal_as_message(request):
        services.delete_relation(relation, request.user)
        messages.success(request, f"Relation {relation.path} deleted.")
        return redirect("kgharvest:relation_list")
    return redirect(relation)


@worker_required
def relation_import(request: HttpRequest) -> HttpResponse:
    form = ImportForm(request.POST or None, request.FILES or None, initial={"set_name": request.GET.get("set", "")})
    offer_projects(form, request)
    if form.is_valid():
        with refusal_in_form(form):
            uploaded = form.cleaned_data["file"]
            file = read_relation_file(uploaded.name, uploaded.read())
            set_name = form.cleaned_data["set_name"].strip() or None
            project = chosen_project(form, request)
            relation_set = services.import_relation_file(file, set_name, by=request.user, project=project)
            messages.success(request, f"{counted(len(file.entries), 'relation')} imported from {file.source}.")
            return redirect(relation_set)
    return render(request, "kgharvest/relations/relation_import.html", {"form": form})


@worker_required
@require_POST
def load_shipped(request: HttpRequest) -> HttpResponse:
    sets = services.load_shipped_sets(request.user)
    n_relations = Relation.objects.filter(relation_set__in=sets).count()
    messages.success(request, f"{counted(n_relations, 'relation')} in {counted(len(sets), 'set')} loaded.")
    if "try" in request.POST:
        demo = Relation.objects.get(relation_set__name="demo", name="capital_of")
        return redirect(f"{reverse('kgharvest:harvest_new')}?relation={demo.pk}")
    return redirect("kgharvest:relation_list")


@researcher_required
def set_prompts(request: HttpRequest, pk: int) -> HttpResponse:
    """Import predefined prompts for the relations of a set."""
    relation_set = visible_or_404(request.user, SETS, Action.WORK, pk=pk, is_shipped=False)
    form = PromptsForm(request.POST or None, request.FILES or None)
    if form.is_valid():
        with refusal_in_form(form):
            origin, min_weight = form.cleaned_data["origin"], form.cleaned_data["least_weight"]
            files = [PromptFile(file.name, origin, file.read()) for file in form.cleaned_data["files"]]
            imported = import_prompts(files, relation_set, min_weight, request.user)
            messages.success(request, f"{imported}.")
            if imported.unknown:
                names = ", ".join(imported.unknown)
                messages.warning(request, f"Skipped: {relation_set.name} has no binary relation {names}.")
            return redirect(relation_set)
    context = {"form": form, "relation_set": relation_set}
    return render(request, "kgharvest/relations/set_prompts.html", context)


@researcher_required
def set_export(request: HttpRequest, pk: int) -> HttpResponse:
    relation_set = visible_or_404(request.user, SETS, pk=pk)
    return download(export_relations(relation_set), f"{relation_set.name}.json")


@worker_required
def set_duplicate(request: HttpRequest, pk: int) -> HttpResponse:
    relation_set = visible_or_404(request.user, SETS, pk=pk)
    form = DuplicateSetForm(request.POST or None, initial={"name": f"{relation_set.name[:90]}-copy"})
    offer_projects(form, request)
    if form.is_valid():
        with refusal_in_form(form, "name"):
            project = chosen_project(form, request)
            return redirect(services.duplicate_set(relation_set, form.cleaned_data["name"], request.user, project))
    return _set_form(request, form, relation_set, f"Duplicate {relation_set.name}", "Duplicate set")


@researcher_required
def set_edit(request: HttpRequest, pk: int) -> HttpResponse:
    relation_set = visible_or_404(request.user, SETS, Action.WORK, pk=pk, is_shipped=False)
    initial = {"name": relation_set.name, "description": relation_set.description}
    form = SetForm(request.POST or None, initial=initial)
    if form.is_valid():
        with refusal_in_form(form, "name"):
            services.change_set(relation_set, **form.cleaned_data, by=request.user)
            return redirect(relation_set)
    return _set_form(request, form, relation_set, f"Edit {relation_set.name}", "Save set")


@researcher_required
def set_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation page (GET), or delete the object (POST)."""
    relation_set = visible_or_404(request.user, SETS, Action.WORK, pk=pk, is_shipped=False)
    if request.method == "POST":
        with refusal_as_message(request):
            services.delete_set(relation_set, request.user)
            messages.success(request, f"Set {relation_set.name} deleted.")
            return redirect("kgharvest:relation_list")
        return redirect(relation_set)
    heading = f"Delete {relation_set.name} and its {counted(relation_set.relations.count(), 'relation')}?"
    return _set_form(request, Form(), relation_set, heading, "Delete set")


def _set_form(request: HttpRequest, form: Form, relation_set: RelationSet, heading: str, button: str) -> HttpResponse:
    context = {"form": form, "relation_set": relation_set, "heading": heading, "button": button}
    return render(request, "kgharvest/relations/set_form.html", context)
