"""`harvest --relation R --model M --setting multi ...`: launch harvests or, with --wait, do them here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from django.conf import settings
from django.core.management.base import CommandParser
from django.utils import timezone

from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.chat_models.options import add_arguments, from_arguments
from kgharvest.engine.filters import FILTERS
from kgharvest.engine.settings import SETTINGS
from kgharvest.engine.types import (
    CANDIDATES_PER_KEPT,
    MIN_CANDIDATES,
    HarvestParams,
    ParaphraserKind,
    ParaphraserSettings,
    PatternBudget,
)
from kgharvest.errors import DomainError
from kgharvest.harvests.language_models import LM_NAMES_HELP, get_language_model, name_language_model
from kgharvest.harvests.launches import Plan, plan_launch, start_launch
from kgharvest.harvests.runner import CellUnderWay, HarvestRequest, check_harvest, create_harvest_job, requests_for
from kgharvest.harvests.tuple_export import export_tuples
from kgharvest.management.command import (
    DomainCommand,
    ProgressBar,
    add_placement_arguments,
    add_project_argument,
    positive,
    run_to_the_end,
    warnings_unlogged,
)
from kgharvest.models import HarvestJob, Job, Project, Relation
from kgharvest.pages.number_format import counted, duration, seconds
from kgharvest.relations.names import relations_of_set, resolve_relation

PARAMS = ("max_tuples", "candidates", "max_entity_tokens", "max_entity_repeats", "pattern_budget", "seed")


class Command(DomainCommand):
    help = "Harvest relations from an LM: queue jobs for a worker and print their numbers, or --wait for them here."

    def add_arguments(self, parser):
        defaults = HarvestParams()
        what = parser.add_argument_group("what")
        what.add_argument("--relation", action="append", default=[], help="name, or set/name; repeatable")
        what.add_argument("--set", dest="set_name", metavar="NAME", help="set of the relations; alone: all of the set")
        what.add_argument("--model", action="append", help=f"embedded (default), {LM_NAMES_HELP}; repeatable")
        what.add_argument("--revision", default="", help="revision of the LM")
        what.add_argument("--setting", choices=SETTINGS, action="append", help="multi (default), ...; repeatable")
        what.add_argument("--prompt", action="append", default=[], help="use instead of the relation's; repeatable")
        how = parser.add_argument_group("how")
        how.add_argument("--max-tuples", type=positive, help="tuples kept after re-scoring (default: all)")
        how.add_argument(
            "--candidates",
            type=positive,
            help=f"tuples proposed by MTL ({MIN_CANDIDATES}, or {CANDIDATES_PER_KEPT} x --max-tuples if more)",
        )
        how.add_argument("--max-entity-tokens", type=positive, help=f"per entity ({defaults.max_entity_tokens})")
        how.add_argument(
            "--max-entity-repeats", type=positive, help=f"tuples that share an entity ({defaults.max_entity_repeats})"
        )
        how.add_argument("--pattern-budget", choices=get_args(PatternBudget), help=f"({defaults.pattern_budget})")
        how.add_argument("--no-filters", action="store_true", help="reject no entity")
        how.add_argument("--seed", type=int, help=f"of the random draws in prompt creation ({defaults.seed})")
        add_placement_arguments(how)
        chat = parser.add_argument_group("the chat model that --setting llm asks")
        chat.add_argument("--chat-model", action="append", default=[], help="its name at the endpoint; repeatable")
        add_arguments(chat)
        add_paraphraser_arguments(parser)
        where = parser.add_argument_group("where")
        add_project_argument(where)
        where.add_argument("--wait", action="store_true", help="do it in this process, with a progress bar")
        where.add_argument(
            "--again",
            action="store_true",
            help="also what has been harvested with the same parameters",
        )
        where.add_argument("--dry-run", action="store_true", help="say what would be harvested and how long it takes")
        where.add_argument("--output", type=Path, metavar="F.jsonl", help="with --wait: write the tuples there")

    def handle(self, **options):
        if options["output"] and not options["wait"]:
            raise DomainError(
                "HarvestFailed",
                "--output needs --wait; without it a worker harvests, and export_tuples writes the file.",
            )
        requests = list(requests_of(options))
        for request in requests:
            check_harvest(request)
        plan = plan_launch(requests, timezone.now(), options["again"], project=project_for(None, options["project"]))
        if options["dry_run"]:
            self.show(plan)
        elif options["wait"]:
            self.harvest_all_here(requests, plan, options["output"])
        else:
            self.launch(plan)

    def show(self, plan: Plan) -> None:
        for request in plan.requests:
            self.stdout.write(f"-\t{request.cell}\twould be harvested")
        self.list_skipped(plan)
        self.stderr.write(summary_of(plan))

    def launch(self, plan: Plan) -> None:
        launch = None
        if plan.requests:
            launch, plan = start_launch(plan)
        self.list_skipped(plan)
        if launch:
            for job in launch.jobs.with_cell().order_by("pk"):
                self.stdout.write(f"{job.pk}\t{job}")
            self.stderr.write(f"{launch}: {settings.ORIGIN}{launch.get_absolute_url()}")
        self.stderr.write(summary_of(plan))

    def list_skipped(self, plan: Plan) -> None:
        for _, job in plan.skipped:
            state = "harvested before" if job.status == Job.Status.SUCCEEDED else job.status
            self.stdout.write(f"{job.pk}\t{job}\t{state}")

    def harvest_all_here(self, requests: list[HarvestRequest], plan: Plan, output: Path | None) -> None:
        if output:
            check_writable(output)
        earlier = dict(plan.skipped)
        done = [self.harvest_here(request, earlier.get(request), plan.project) for request in dict.fromkeys(requests)]
        if output:
            write_atomically(output, (line for job in done for line in export_tuples(job)))
            self.say_what_was_written(output, done)

    def say_what_was_written(self, output: Path, jobs: Sequence[HarvestJob]) -> None:
        n_written = sum(job.tuples.presentable(False, False).count() for job in jobs)
        n_left_out = sum(job.n_tuples for job in jobs) - n_written
        left_out = ""
        if n_left_out:
            left_out = f"; {counted(n_left_out, 'tuple')} left out as hidden or with sensitive words"
            left_out += " (export_tuples --include-hidden --include-sensitive)"
        self.stdout.write(f"{output}: {counted(n_written, 'tuple')}{left_out}.")

    def harvest_here(self, request: HarvestRequest, earlier: HarvestJob | None, project: Project) -> HarvestJob:
        """Return the earlier harvest of the cell, or do the job in this process; one that is queued is taken over.

        Raises HarvestFailed unless it succeeds, and CellUnderWay if a worker is harvesting it.
        """
        if earlier and earlier.status == Job.Status.SUCCEEDED:
            tuples = counted(earlier.n_tuples, "tuple")
            self.stdout.write(f"Job {earlier.pk}: {tuples} of {earlier}, harvested before; --again harvests it anew.")
            self.say_what_it_has_to_say(earlier)
            return earlier
        if earlier and earlier.status == Job.Status.RUNNING:
            raise CellUnderWay(earlier)
        job = earlier or create_harvest_job(request, project=project)
        with ProgressBar(str(job)) as bar, warnings_unlogged():
            run_to_the_end(job, bar)
        job = HarvestJob.objects.with_cell().get(pk=job.pk)
        if job.status != Job.Status.SUCCEEDED:
            raise DomainError(
                "HarvestFailed", f"Job {job.pk}, {job}, {job.status}: {job.error or 'somebody cancelled it.'}"
            )
        took_s = (job.finished_at - job.started_at).total_seconds()
        self.stdout.write(f"Job {job.pk}: {counted(job.n_tuples, 'tuple')} of {job} in {seconds(took_s)}.")
        self.say_what_it_has_to_say(job)
        return job

    def say_what_it_has_to_say(self, job: HarvestJob) -> None:
        for sentence in filter(None, (job.summary.get("notice"), job.summary.get("warning"))):
            self.stderr.write(f"Job {job.pk}: {sentence}")


def summary_of(plan: Plan) -> str:
    """Return how many harvests the plan asks for, how many it skips and how long it takes, in a sentence."""
    n, skipped = len(plan.requests), len(plan.skipped)
    how_long = f", {duration_of(plan)}" if n else ""
    skips = (
        f"; {skipped} skipped, as harvested before or under way (--again harvests anew what has ended)"
        if skipped
        else ""
    )
    return f"{n} of {plan.n_cells} cells to harvest{how_long}{skips}."


def duration_of(plan: Plan) -> str:
    estimate = plan.estimate
    at_once = f"{plan.n_parallel} at once" if plan.n_parallel > 1 else "one after the other"
    if estimate.is_complete:
        return f"about {duration(estimate.seconds)}, {at_once}"
    no_past = f"no past harvests of {', '.join(plan.without_past)}"
    if not estimate.n_estimated:
        return f"duration unknown ({no_past})"
    return f"at least {duration(estimate.seconds)} for {estimate.n_estimated} of them, {at_once} ({no_past})"


def requests_of(options: dict[str, Any]) -> Iterator[HarvestRequest]:
    language_models = [get_language_model(name, options["revision"]) for name in options["model"] or ["embedded"]]
    chat = from_arguments({**options, "chat_model": None})
    if chat.scorer:
        chat = replace(chat, scorer=str(get_language_model(chat.scorer)))
    chosen = {name: options[name] for name in PARAMS if options[name] is not None}
    disabled = frozenset(FILTERS) if options["no_filters"] else frozenset()
    yield from requests_for(
        relations_of(options["relation"], options["set_name"]),
        language_models,
        options["setting"] or ["multi"],
        [name_language_model(name) for name in options["chat_model"]],
        params=HarvestParams(**chosen, disabled_filters=disabled),
        prompts=tuple(options["prompt"]),
        paraphraser=paraphraser_of(options),
        device=options["device"],
        dtype=options["dtype"],
        chat=chat,
    )


def add_paraphraser_arguments(parser: CommandParser) -> None:
    """Add what `paraphraser_of` reads."""
    words = parser.add_argument_group("prompt creation, where a relation has no ready prompts")
    words.add_argument(
        "--paraphraser",
        choices=get_args(ParaphraserKind),
        default="offline",
        help="who rewrites prompts: rules and the LM (offline, default), a chat model, a seq2seq model, "
        "or two of them that translate out and back",
    )
    words.add_argument("--paraphraser-model", default="", help="chat model, or a seq2seq model; OUT,BACK to translate")
    words.add_argument("--paraphraser-url", default="", help="of the chat endpoint, such as http://127.0.0.1:8080/v1")


def paraphraser_of(options: dict[str, Any]) -> ParaphraserSettings:
    kind, model, url = (options[name] for name in ("paraphraser", "paraphraser_model", "paraphraser_url"))
    if kind != "offline" and not model:
        raise DomainError("HarvestFailed", f"The {kind} paraphraser needs a model; name it with --paraphraser-model.")
    if kind == "chat" and not url:
        raise DomainError("HarvestFailed", "The chat paraphraser needs an address; give it with --paraphraser-url.")
    return ParaphraserSettings(kind=kind, model=model, base_url=url)


def relations_of(names: list[str], set_name: str | None) -> list[Relation]:
    if names:
        return [resolve_relation(name, set_name) for name in names]
    if set_name:
        return relations_of_set(set_name)
    raise DomainError("HarvestFailed", "No relation is named; give --relation, or --set for all relations of a set.")
