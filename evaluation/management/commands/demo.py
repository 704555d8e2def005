"""`demo [--once]`: set up and run everything on this machine."""

import os
import shlex
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

from django.conf import settings
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone
from tqdm import tqdm

from annotation.models import Round
from evaluation import demo
from evaluation.demo import Login
from evaluation.demo_results import write_results
from evaluation.models import Report
from evaluation.reports.document import tables_to_read
from kgharvest.errors import DomainError
from kgharvest.harvests.language_models import get_language_model
from kgharvest.harvests.launches import progress_of
from kgharvest.jobs.queues import URGENT
from kgharvest.management.command import DomainCommand
from kgharvest.models import HarvestJob, Job, LanguageModel
from kgharvest.operations.child_processes import Supervisor
from kgharvest.operations.programs import HOST, check_port, own_command, web_command, worker_command
from kgharvest.pages.number_format import seconds
from kgharvest.relations.services import load_shipped_sets
from kgharvest.tables.formats import markdown_of

LOOK_EVERY_S = 0.3
MAX_PROCESSES = 4
SHOWN = ("relations", "comparisons")  # tables of the report that --once prints


class Command(DomainCommand):
    help = "Set up and run kgharvest on this machine: web server, worker, sample harvests, an open round, and a report."

    def add_arguments(self, parser):
        parser.add_argument(
            "--once", action="store_true", help="print the report as a table and exit, without a web server"
        )
        parser.add_argument(
            "--lm", default="embedded", help="LM of the relations harvested while the pages are open, such as smollm2"
        )
        parser.add_argument(
            "--save-results",
            action="store_true",
            help="for releases: write the finished harvests and LM judgments of this demo to the package, and exit",
        )

    def handle(self, *, once, save_results, lm, **options):
        if save_results:
            write_results(demo.queue_missing_harvests(), demo.queue_missing_judge_run())
            return
        if not once:
            check_port()
        self.started = time.monotonic()
        # Handle these signals like Ctrl-C: a shell may make background processes ignore Ctrl-C.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        self.say(f"Preparing the database in {settings.DATA_DIR}")
        call_command("migrate", interactive=False, verbosity=0)
        with Supervisor(settings.DATA_DIR / "logs") as programs:
            if not once:
                programs.start("web", web_command())
            self.show(programs, once, lm)

    def show(self, programs: Supervisor, once: bool, lm: str) -> None:
        language_model = get_language_model(lm)
        load_shipped_sets()
        logins = demo.create_logins()
        self.harvest(programs)
        round = demo.open_people_round()
        demo.open_simulated_round()
        self.judge(programs)
        report = demo.simulated_report()
        self.say(f"Ready: round {round} for people, and round {report.round} with simulated judgments")
        self.print_logins(logins)
        if once:
            tables = [table for table in tables_to_read(report.document) if table.name in SHOWN]
            self.stdout.write("\n" + markdown_of(report.document["round"], tables))
        else:
            self.print_addresses(round, report)
            self.start_worker(programs)
            self.serve(programs, language_model)

    def start_worker(self, programs: Supervisor) -> None:
        """Start the worker if it is not running. The worker is only needed for jobs without saved results."""
        if not any(program.name == "worker" for program in programs.programs):
            n_processes = min(os.cpu_count() or 1, MAX_PROCESSES)
            programs.start("worker", worker_command("--concurrency", str(n_processes)), OMP_NUM_THREADS="1")

    def harvest(self, programs: Supervisor) -> None:
        """Wait for all harvests of the demo."""
        jobs = demo.finished_or_queued_harvests()
        waiting = {job.pk for job in jobs if job.is_unfinished}
        rest = "; running the others with the embedded LM" if waiting else ""
        self.say(f"{len(jobs) - len(waiting)} of {len(jobs)} harvests finished{rest}")
        while waiting:
            self.start_worker(programs)
            programs.check()
            waiting -= {job.pk for job in self.newly_done(waiting)}
            time.sleep(LOOK_EVERY_S)

    def judge(self, programs: Supervisor) -> None:
        """Wait for the run of the demo's judge."""
        run = demo.finished_or_queued_judge_run()
        while run.is_unfinished:
            self.start_worker(programs)
            programs.check()
            time.sleep(LOOK_EVERY_S)
            run.refresh_from_db()
        if run.status != Job.Status.SUCCEEDED:
            raise DomainError(
                "HarvestFailed", f"The judge run {run} (job {run.pk}) {run.status}: {run.error or 'Start it again.'}"
            )
        self.say(f"  {run.model}, also a demonstrator, has labeled {run.done} tuples as an LM judge")

    def newly_done(self, waiting: set[int]) -> list[HarvestJob]:
        finished = list(HarvestJob.objects.with_cell().filter(pk__in=waiting).exclude(pk__in=Job.objects.unfinished()))
        for job in finished:
            if job.status != Job.Status.SUCCEEDED:
                raise DomainError(
                    "HarvestFailed", f"The harvest {job} (job {job.pk}) {job.status}: {job.error or 'Start it again.'}"
                )
            self.say(f"  {job}: {job.n_tuples} tuples in {seconds((job.finished_at - job.started_at).total_seconds())}")
        return finished

    def serve(self, programs: Supervisor, lm: LanguageModel) -> None:
        # This worker never loads an LM. Therefore, urgent jobs do not wait for harvests.
        urgent_worker = worker_command("--queues", URGENT, "--pool", "solo", "--hostname", "urgent@%h")
        programs.start("urgent-worker", urgent_worker, OMP_NUM_THREADS="1")
        launch = demo.launch_more_harvests(lm)
        n_harvests = launch.jobs.count() if launch else 0
        bar = tqdm(desc="Harvesting more relations", total=n_harvests, unit="harvest", disable=None if launch else True)
        with suppress(KeyboardInterrupt), bar:
            while True:
                if launch:
                    bar.update(progress_of(launch, timezone.now()).n_over - bar.n)
                for program in programs.restart_ended():
                    self.say(f"The {program.name} stopped and was restarted; no data is lost")
                time.sleep(LOOK_EVERY_S)
        self.say("Stopping; this takes a few seconds")

    def print_logins(self, logins: Sequence[Login]) -> None:
        self.stdout.write("")
        if all(login.password is None for login in logins):
            self.stdout.write("The users already exist; their passwords were printed by the first run.")
            command = shlex.join(own_command("changepassword", demo.RESEARCHER))
            self.stdout.write(f"To set a new password: {command}")
        for login in logins:
            self.stdout.write(f"  {login.username:<12} {login.password or '(password unchanged)'}")

    def print_addresses(self, round: Round, report: Report) -> None:
        base = f"http://{HOST}:{settings.PORT}"
        self.stdout.write("")
        self.stdout.write(f"  Start          {base}/")
        self.stdout.write(f"  Round          {base}{round.get_absolute_url()}")
        self.stdout.write(f"  Join it        {base}{reverse('annotation:join', args=[round.join_token])}")
        self.stdout.write(f"  Report         {base}{report.get_absolute_url()}  (simulated, not people)")
        self.stdout.write("\nLog in on the home page. Press Ctrl-C to stop everything.")
        self.stdout.flush()

    def say(self, text: str) -> None:
        self.stdout.write(f"{time.monotonic() - self.started:5.1f} s  {text}")
        self.stdout.flush()
