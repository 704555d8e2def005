from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from django.conf import settings
from django.utils import timezone

from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.chat_models.options import add_arguments, from_arguments
from kgharvest.engine.filters import FILTERS
from kgharvest.engine.settings import SETTINGS
from kgharvest.engine.types import (
    CANDIDATES_PER_KEPT,
    MIN_CANDIDATES,
    ORDER_HELP,
    HarvestParams,
    ParaphraserKind,
    ParaphraserSettings,
    PatternBudget,
    TupleOrder,
)
from kgharvest.errors import DomainError
from kgharvest.harvests.heads import read_heads
from kgharvest.harvests.language_models import LM_NAMES_HELP, get_language_model, name_language_model
from kgharvest.harvests.launches import Plan, plan_launch, start_launch, summary_of_plan
from kgharvest.harvests.runner import CellUnderWay, HarvestRequest, check_harvest, create_harvest_job, requests_for
from kgharvest.harvests.tuple_files import export_tuples
from kgharvest.management.command import (
    DomainCommand,
    add_placement_arguments,
    add_project_argument,
    positive,
    run_to_the_end,
)
from kgharvest.models import HarvestJob, Job, Project
from kgharvest.pages.number_format import counted, seconds
from kgharvest.relations.names import relations_of_set, resolve_relation

PARAMS = (
    "max_tuples",
    "candidates",
    "max_entity_tokens",
    "max_entity_repeats",
    "pattern_budget",
    "order",
    "seed",
    "numbers",
    "min_score",
)


class Command(DomainCommand):
    help = "Harvest relations from an LM: queue jobs for a worker, or run them in this process with --wait."

    def add_arguments(self, parser):
        defaults = HarvestParams()
        cells = parser.add_argument_group("relations, LMs, and settings")
        cells.add_argument("--relation", action="append", default=[], help="name or set/name; repeatable")
        cells.add_argument("--set", dest="set_name", metavar="NAME", help="set of --relation, or whole set to harvest")
        cells.add_argument("--model", action="append", help=f"LM: {LM_NAMES_HELP}; repeatable (default: embedded)")
        cells.add_argument("--revision", default="", help="revision of the LM")
        cells.add_argument(
            "--setting",
            choices=SETTINGS,
            action="append",
            help="method that produces the prompts; repeatable (default: multi)",
        )
        cells.add_argument(
            "--prompt", action="append", default=[], help="prompt that replaces the relation's prompts; repeatable"
        )
        params = parser.add_argument_group("harvest parameters")
        params.add_argument("--max-tuples", type=positive, help="maximum tuples after re-scoring (default: all)")
        candidates_help = (
            f"tuples proposed by MTL (default: {MIN_CANDIDATES}, or {CANDIDATES_PER_KEPT} x --max-tuples if larger)"
        )
        params.add_argument("--candidates", type=positive, help=candidates_help)
        tokens_help = f"maximum tokens per entity (default: {defaults.max_entity_tokens})"
        params.add_argument("--max-entity-tokens", type=positive, help=tokens_help)
        repeats_help = f"maximum tuples with the same entity (default: {defaults.max_entity_repeats})"
        params.add_argument("--max-entity-repeats", type=positive, help=repeats_help)
        budget_help = (
            "whether the number of candidates applies to each token-count pattern or is shared by all patterns "
            f"(default: {defaults.pattern_budget})"
        )
        params.add_argument("--pattern-budget", choices=get_args(PatternBudget), help=budget_help)
        heads_help = "complete these heads: text or CSV file, one head per line; limits then apply to every head"
        params.add_argument("--heads", type=Path, metavar="FILE", help=heads_help)
        params.add_argument("--numbers", action="store_true", help="admit numbers as entities")
        params.add_argument("--min-score", type=float, metavar="X", help="minimum consistency of a tuple in nats")
        params.add_argument("--order", choices=get_args(TupleOrder), help=f"{ORDER_HELP} (default: {defaults.order})")
        params.add_argument("--no-filters", action="store_true", help="disable all entity filters")
        params.add_argument("--seed", type=int, help=f"random seed of prompt creation (default: {defaults.seed})")
        add_placement_arguments(params)
        chat = parser.add_argument_group("options for chat models (--setting llm)")
        chat.add_argument("--chat-model", action="append", default=[], help="model id at the endpoint; repeatable")
        add_arguments(chat)
        group = parser.add_argument_group("prompt creation, for relations without predefined prompts")
        kind_help = (
            "how prompts are rewritten: by rules and the LM (offline), a chat model, a seq2seq model, or "
            "back-translation with two seq2seq models (default: offline)"
        )
        group.add_argument("--paraphraser", choices=get_args(ParaphraserKind), default="offline", help=kind_help)
        model_help = "chat or seq2seq model; OUT,BACK for back-translation"
        group.add_argument("--paraphraser-model", default="", help=model_help)
        url_help = "URL of the chat endpoint, for example http://127.0.0.1:8080/v1"
        group.add_argument("--paraphraser-url", default="", help=url_help)
        execution = parser.add_argument_group("execution")
        add_project_argument(execution)
        execution.add_argument("--wait", action="store_true", help="run in this process with a progress bar")
        again_help = "repeat finished harvests with the same parameters"
        execution.add_argument("--again", action="store_true", help=again_help)
        execution.add_argument("--dry-run", action="store_true", help="only print the planned harvests and duration")
        execution.add_argument("--output", type=Path, metavar="F.jsonl", help="output file for tuples; needs --wait")

    def handle(self, **options):
        if options["output"] and not options["wait"]:
            raise DomainError("HarvestFailed", "--output needs --wait. For queued jobs, use export_tuples later.")
        requests = list(requests_of(options))
        for request in requests:
            check_harvest(request)
        plan = plan_launch(requests, timezone.now(), options["again"], project=project_for(None, options["project"]))
        if options["dry_run"]:
            for request in plan.requests:
                self.stdout.write(f"-\t{request.cell}\twould be harvested")
            self.list_skipped(plan)
            self.stderr.write(summary_of_plan(plan))
        elif options["wait"]:
            self.harvest_all_here(requests, plan, options["output"])
        else:
            self.launch(plan)

    def launch(self, plan: Plan) -> None:
        launch = None
        if plan.requests:
            launch, plan = start_launch(plan)
        self.list_skipped(plan)
        if launch:
            for job in launch.jobs.with_cell().order_by("pk"):
                self.stdout.write(f"{job.pk}\t{job}")
            self.stderr.write(f"{launch}: {settings.ORIGIN}{launch.get_absolute_url()}")
        self.stderr.write(summary_of_plan(plan))

    def list_skipped(self, plan: Plan) -> None:
        for _, job in plan.skipped:
            state = "harvested before" if job.status == Job.Status.SUCCEEDED else job.status
            self.stdout.write(f"{job.pk}\t{job}\t{state}")

    def harvest_all_here(self, requests: list[HarvestRequest], plan: Plan, output: Path | None) -> None:
        if output:
            check_writable(output)
        existing = dict(plan.skipped)
        jobs = [self.harvest_here(request, existing.get(request), plan.project) for request in dict.fromkeys(requests)]
        if output:
            write_atomically(output, (line for job in jobs for line in export_tuples(job)))
            n_written = sum(job.tuples.presentable(False, False).count() for job in jobs)
            excluded = ""
            if n_excluded := sum(job.n_tuples for job in jobs) - n_written:
                excluded = f"; {counted(n_excluded, 'hidden or sensitive tuple')} excluded"
                excluded += " (export_tuples --include-hidden --include-sensitive)"
            self.stdout.write(f"{output}: {counted(n_written, 'tuple')}{excluded}.")

    def harvest_here(self, request: HarvestRequest, existing: HarvestJob | None, project: Project) -> HarvestJob:
        """Return the finished harvest of the cell. If there is none, run the queued job or a new job in this process.

        Raises HarvestFailed unless the job succeeds, and CellUnderWay if a worker is running the job.
        """
        if existing and existing.status == Job.Status.SUCCEEDED:
            tuples = counted(existing.n_tuples, "tuple")
            self.stdout.write(f"Job {existing.pk}: {tuples} of {existing}, harvested before. Use --again to repeat it.")
            self.show_notices(existing)
            return existing
        if existing and existing.status == Job.Status.RUNNING:
            raise CellUnderWay(existing)
        job = existing or create_harvest_job(request, project=project)
        run_to_the_end(job)
        job = HarvestJob.objects.with_cell().get(pk=job.pk)
        if job.status != Job.Status.SUCCEEDED:
            raise DomainError("HarvestFailed", f"Job {job.pk}, {job}, {job.status}: {job.error or 'ended by a user.'}")
        took_s = (job.finished_at - job.started_at).total_seconds()
        self.stdout.write(f"Job {job.pk}: {counted(job.n_tuples, 'tuple')} of {job} in {seconds(took_s)}.")
        self.show_notices(job)
        return job

    def show_notices(self, job: HarvestJob) -> None:
        for sentence in job.sentences:
            self.stderr.write(f"Job {job.pk}: {sentence}")


def requests_of(options: dict[str, Any]) -> Iterator[HarvestRequest]:
    language_models = [get_language_model(name, options["revision"]) for name in options["model"] or ["embedded"]]
    chat = from_arguments({**options, "chat_model": None})
    if chat.scorer:
        chat = replace(chat, scorer=str(get_language_model(chat.scorer)))
    names, set_name = options["relation"], options["set_name"]
    if not names and not set_name:
        raise DomainError("HarvestFailed", "No relation selected. Use --relation, or --set for a whole set.")
    chosen = {name: options[name] for name in PARAMS if options[name] is not None}
    chosen["disabled_filters"] = frozenset(FILTERS) if options["no_filters"] else frozenset()
    chosen["heads"] = read_heads(options["heads"]) if options["heads"] else ()
    yield from requests_for(
        [resolve_relation(name, set_name) for name in names] or relations_of_set(set_name),
        language_models,
        options["setting"] or ["multi"],
        [name_language_model(name) for name in options["chat_model"]],
        params=HarvestParams(**chosen),
        prompts=tuple(options["prompt"]),
        paraphraser=paraphraser_of(options),
        device=options["device"],
        dtype=options["dtype"],
        chat=chat,
    )


def paraphraser_of(options: dict[str, Any]) -> ParaphraserSettings:
    kind, model, url = (options[name] for name in ("paraphraser", "paraphraser_model", "paraphraser_url"))
    if kind != "offline" and not model:
        raise DomainError("HarvestFailed", f"The {kind} paraphraser needs a model. Use --paraphraser-model.")
    if kind == "chat" and not url:
        raise DomainError("HarvestFailed", "The chat paraphraser needs a URL. Use --paraphraser-url.")
    return ParaphraserSettings(kind=kind, model=model, base_url=url)
