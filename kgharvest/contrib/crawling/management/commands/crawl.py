from dataclasses import replace
from pathlib import Path

from annotation.rounds.services import create_draft
from kgharvest.accounts.projects import project_for
from kgharvest.contrib.crawling.models import Crawl
from kgharvest.contrib.crawling.services import (
    PARAMS,
    CrawlRequest,
    create_crawl,
    depth_summaries,
    find_crawl,
    queue_crawl,
    round_spec,
)
from kgharvest.engine.settings import PROMPT_SETTINGS
from kgharvest.errors import DomainError
from kgharvest.harvests.heads import read_heads
from kgharvest.harvests.language_models import LM_NAMES_HELP, get_language_model
from kgharvest.jobs import ledger
from kgharvest.management.command import (
    DomainCommand,
    add_placement_arguments,
    add_project_argument,
    positive,
    run_to_the_end,
)
from kgharvest.models import Job
from kgharvest.pages.number_format import counted, share_with_interval
from kgharvest.relations.names import relations_of_set, resolve_relation

PARAM_NAMES = ("max_tuples", "candidates", "max_entity_tokens", "min_score")


class Command(DomainCommand):
    help = "Crawl an LM: harvest seed entities in several relations, then the entities found, up to a depth and budget."

    def add_arguments(self, parser):
        verbs = parser.add_subparsers(dest="verb", required=True, help="action")
        start = verbs.add_parser("start", help="start a crawl")
        start.add_argument("--seeds", type=Path, required=True, metavar="FILE", help="seed entities, one per line")
        start.add_argument("--relation", action="append", default=[], help="name or set/name; repeatable")
        start.add_argument("--set", dest="set_name", metavar="NAME", help="set of --relation, or whole set")
        start.add_argument("--model", default="embedded", help=f"LM: {LM_NAMES_HELP} (default: embedded)")
        start.add_argument("--setting", choices=PROMPT_SETTINGS, default="multi", help="setting (default: multi)")
        defaults = {name: getattr(CrawlRequest, name) for name in ("depth", "max_entities", "max_calls")}
        for name, help_text in (
            ("depth", "number of rounds of harvests"),
            ("max_entities", "maximum number of entities, including the seeds"),
            ("max_calls", "maximum number of calls: one entity in one relation each"),
        ):
            option = f"--{name.replace('_', '-')}"
            help_text = f"{help_text} (default: {defaults[name]:,})"
            start.add_argument(option, type=positive, default=defaults[name], help=help_text)
        start.add_argument("--max-tuples", type=positive, help=f"tuples per call (default: {PARAMS.max_tuples})")
        start.add_argument("--candidates", type=positive, help=f"candidates per call (default: {PARAMS.candidates})")
        start.add_argument("--max-entity-tokens", type=positive, help="maximum tokens per entity (default: 2)")
        least_help = "minimum score of a tuple in nats (default: median score of the relation's seed tuples)"
        start.add_argument("--min-score", type=float, metavar="X", help=least_help)
        start.add_argument("--wait", action="store_true", help="run in this process with a progress bar")
        add_placement_arguments(start)
        add_project_argument(start)
        resume = verbs.add_parser("continue", help="continue an interrupted, failed, or canceled crawl in this process")
        show = verbs.add_parser("show", help="print the numbers and the accuracy of each depth")
        draft = verbs.add_parser("round", help="create the draft of a round with every relation at every depth")
        for verb in (resume, show, draft):
            verb.add_argument("crawl", type=positive, metavar="NUMBER", help="number of the crawl")
        draft.add_argument("--name", required=True, help="name of the round")
        draft.add_argument("--n", type=positive, default=30, help="tuples per relation and depth (default: 30)")

    def handle(self, *, verb, **options):
        {"start": self.start, "continue": self.resume, "show": self.show, "round": self.draft}[verb](**options)

    def start(self, **options):
        chosen = {name: options[name] for name in PARAM_NAMES if options[name] is not None}
        names, set_name = options["relation"], options["set_name"]
        request = CrawlRequest(
            read_heads(options["seeds"]),
            [resolve_relation(name, set_name) for name in names] or relations_of_set(set_name),
            get_language_model(options["model"]),
            params=replace(PARAMS, **chosen),
            **{name: options[name] for name in ("setting", "depth", "max_entities", "max_calls", "device", "dtype")},
        )
        project = project_for(None, options["project"])
        if options["wait"]:
            self.run_here(create_crawl(request, project=project))
        else:
            crawl = queue_crawl(request, project=project)
            self.stdout.write(f"{crawl}: queued. See crawl show {crawl.pk}.")

    def resume(self, *, crawl, **options):
        crawl = find_crawl(crawl)
        if crawl.can_retry:
            ledger.retry(crawl)
        self.run_here(crawl)

    def run_here(self, crawl: Crawl) -> None:
        run_to_the_end(crawl)
        crawl = find_crawl(crawl.pk)
        if crawl.status != Job.Status.SUCCEEDED:
            reason = crawl.error or f"{crawl.status}; wait for its worker, or continue it when the worker has stopped."
            raise DomainError("CrawlFailed", f"{crawl}: {reason}")
        self.show(crawl=crawl.pk)

    def show(self, *, crawl, **options):
        crawl = find_crawl(crawl)
        self.stdout.write(f"{crawl}, {crawl.status}, from {counted(crawl.entities.filter(depth=0).count(), 'seed')}")
        for depth in depth_summaries(crawl):
            n_calls, n_tuples = counted(depth.n_calls, "call"), counted(depth.n_tuples, "tuple")
            words = f"{n_calls}, {n_tuples}, {counted(depth.n_entities, 'new entity', 'new entities')}"
            judged = ""
            if interval := depth.accuracy.with_interval:
                judged = f"; accuracy {share_with_interval(*interval)} from {counted(depth.n_judged, 'verdict')}"
            self.stdout.write(f"depth {depth.depth}: {words}{judged}")
            if depth.suggestions:
                named = ", ".join(f"{name} ({n:,})" for name, n in depth.suggestions.items())
                self.stdout.write(f"  relations named by the LM: {named}")
        for fault in crawl.steps.exclude(fault="").select_related("relation"):
            self.stderr.write(f"{fault.relation or 'names of relations'}: {fault.fault}")

    def draft(self, *, crawl, name, n, **options):
        crawl = find_crawl(crawl)
        draft = create_draft(round_spec(crawl, name, n), project=crawl.project)
        self.stdout.write(f"Draft {draft.name}: {counted(len(draft.spec['cells']), 'cell')}. Open it on its page.")
