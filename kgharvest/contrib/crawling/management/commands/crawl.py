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
    round_spec,
    why_unfinished,
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
from kgharvest.pages.number_format import counted, share_with_interval
from kgharvest.relations.names import relations_of_set, resolve_relation

REQUEST_NAMES = ("setting", "depth", "max_entities", "max_calls", "device", "dtype")
LIMITS = {
    "depth": "number of rounds of harvests",
    "max-entities": "maximum number of entities, including the seeds",
    "max-calls": "maximum number of calls: one entity in one relation each",
}
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
        for name, help_text in LIMITS.items():
            default = getattr(CrawlRequest, name.replace("-", "_"))
            start.add_argument(f"--{name}", type=positive, default=default, help=f"{help_text} (default: {default:,})")
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
        names, set_name, seeds = options["relation"], options["set_name"], read_heads(options["seeds"])
        if not names and set_name is None:
            raise DomainError("BadCrawl", "The crawl has no relation. Specify --relation or --set.")
        relations = [resolve_relation(name, set_name) for name in names] or relations_of_set(set_name)
        params = replace(PARAMS, **{name: options[name] for name in PARAM_NAMES if options[name] is not None})
        chosen = {name: options[name] for name in REQUEST_NAMES}
        request = CrawlRequest(seeds, relations, get_language_model(options["model"]), params=params, **chosen)
        crawl = create_crawl(request, project=project_for(None, options["project"]))
        if options["wait"]:
            self.run_here(crawl)
        else:
            ledger.enqueue(crawl)
            self.stdout.write(f"{crawl}: queued. See crawl show {crawl.pk}.")

    def resume(self, *, crawl, **options):
        crawl = find_crawl(crawl)
        if crawl.can_retry:
            ledger.retry(crawl)
        self.run_here(crawl)

    def run_here(self, crawl: Crawl) -> None:
        run_to_the_end(crawl)
        crawl = find_crawl(crawl.pk)
        if reason := why_unfinished(crawl):
            raise DomainError("CrawlFailed", reason)
        self.show(crawl=crawl.pk)

    def show(self, *, crawl, **options):
        crawl = find_crawl(crawl)
        self.stdout.write(f"{crawl}, {crawl.status}, from {counted(crawl.entities.filter(depth=0).count(), 'seed')}")
        if reason := why_unfinished(crawl):
            self.stderr.write(reason)
        for depth, summary in enumerate(depth_summaries(crawl), start=1):
            n_calls, n_unfit, n_tuples, n_entities, n_judged, accuracy = summary
            entities = counted(n_entities, "new entity", "new entities")
            numbers = f"{counted(n_calls, 'call')}, {n_unfit:,} skipped, {counted(n_tuples, 'tuple')}, {entities}"
            share = share_with_interval(accuracy.value, accuracy.low, accuracy.high) if accuracy.with_interval else ""
            judged = f"; accuracy {share} from {counted(n_judged, 'verdict')}" if share else ""
            self.stdout.write(f"depth {depth}: {numbers}{judged}")
        for step in crawl.steps.select_related("relation"):
            if step.suggestions:
                named = ", ".join(f"{name} ({n:,})" for name, n in step.suggestions.items())
                self.stdout.write(f"depth {step.depth}: relations named by the LM: {named}")
            if step.fault:
                self.stderr.write(f"depth {step.depth}: {step.relation or 'names of relations'}: {step.fault}")

    def draft(self, *, crawl, name, n, **options):
        crawl = find_crawl(crawl)
        draft = create_draft(round_spec(crawl, name, n), project=crawl.project)
        n_cells = counted(len(draft.spec["cells"]), "cell")
        self.stdout.write(f"Draft {draft.name}: {n_cells}. Open it on its page: {draft.get_absolute_url()}")
