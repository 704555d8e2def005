"""`study init|check|plan|run|status|report|schema STUDY`: a study from one file (docs/studies.md)."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.urls import reverse
from django.utils import timezone

from annotation.models import Round
from evaluation.models import Report, Study
from evaluation.studies.files import (
    BUILT_IN,
    built_in_studies,
    folder_of,
    has_small_version,
    read_study,
    study_path,
    written_study,
)
from evaluation.studies.outputs import is_available, published_tables, write_outputs
from evaluation.studies.plan import planned_study, study_plan_lines
from evaluation.studies.schema import json_schema
from evaluation.studies.sections import job_sections_of
from evaluation.studies.services import changes, check_changes, find_study, queued_jobs, relations_of, store_study
from evaluation.studies.steps import advance, failed_jobs, is_judged, report_now, stages, waits_for_people
from kgharvest.bulk.file_writing import write_atomically
from kgharvest.environment import PROGRAM, RUN, create_data_folder
from kgharvest.errors import DomainError, NotFound
from kgharvest.jobs import ledger
from kgharvest.management.command import DomainCommand, run_to_the_end
from kgharvest.models import Job
from kgharvest.pages.number_format import counted
from kgharvest.relations.checks import set_name_error
from kgharvest.tables.formats import terminal_text

LOOK_EVERY_S = 0.3  # interval while waiting for jobs
LOOK_FOR_JUDGMENTS_EVERY_S = 5
TEMPLATE = BUILT_IN.parent / "template.toml"
PACK = "pack.zip"  # an output of the template
SCHEMA_FILE = "kgharvest-study.schema.json"


class Command(DomainCommand):
    help = "Run a study that is described in one file: harvests, round, LM judges, and report."

    def add_arguments(self, parser):
        verbs = parser.add_subparsers(dest="verb", required=True, help="action")
        init = verbs.add_parser("init", help="write a commented study file and its JSON Schema for editors")
        init.add_argument("file", type=Path, metavar="NAME.toml", help="new file; an existing file is not replaced")
        verbs.add_parser("schema", help="print the JSON Schema of study files")
        verbs.add_parser("list", help="list the built-in studies")
        check = verbs.add_parser("check", help="check the file without loading an LM; nothing is stored")
        plan = verbs.add_parser("plan", help="print work, duration, hours, margins of error, and cost")
        run = verbs.add_parser("run", help="run all remaining steps; repeat the command to continue")
        status = verbs.add_parser("status", help="print the stages of the study")
        report = verbs.add_parser("report", help="create a report now, even if judgments are missing, and write it")
        for verb in (check, plan, run, status, report):
            study_help = "study file (.toml or .json), or name of a built-in study"
            verb.add_argument("study", metavar="STUDY", help=study_help)
            verb.add_argument(
                "--small", action="store_true", help="run the small version, with the sections below [small]"
            )
        run.add_argument("--yes", action="store_true", help="apply the changes of a changed file")
        run.add_argument("--queue", action="store_true", help="leave harvests and judge runs to the workers")
        run.add_argument("--wait", action="store_true", help="wait for workers and for the judgments of people")
        report.add_argument("--store", action="store_true", help="store the report even if the round has no judgments")
        for verb in (run, report):
            output_help = "folder for the report's files (default: NAME-results in the folder of the file)"
            verb.add_argument("--output", type=Path, metavar="DIR", help=output_help)

    def handle(self, *, verb, **options):
        if "study" in options:
            prepare_database()
        getattr(self, f"do_{verb}")(**options)

    def do_init(self, file, **options):
        if file.suffix != ".toml":
            raise DomainError("BadStudyFile", f"{file} is not a study file. Its name must end in .toml.")
        if reason := set_name_error(file.stem):
            raise DomainError("BadStudyFile", f"{file}: {reason}.")
        if file.exists():
            raise DomainError("FileExists", f"{file} already exists. Choose another name, or delete it first.")
        text = TEMPLATE.read_text(encoding="utf-8").replace('name = "my-study"', f"name = {json.dumps(file.stem)}")
        if not is_available(PACK):
            text = text.replace(f', "{PACK}"', "")
        write_atomically(file, [f"#:schema ./{SCHEMA_FILE}\n", text])
        write_atomically(file.with_name(SCHEMA_FILE), [schema_text()])
        self.stdout.write(f"{file} is ready to edit, and {SCHEMA_FILE} describes it for editors.")
        self.stdout.write(f"Then: {PROGRAM} study check {file}")

    def do_schema(self, **options):
        self.stdout.write(schema_text(), ending="")

    def do_list(self, **options):
        for name, path in built_in_studies().items():
            self.stdout.write(f"{name:<26} {written_study(path).get('description', '')}")

    def do_check(self, study, small, **options):
        path = study_path(study)
        document = read_study(path, small)
        if not small and has_small_version(path):
            check_small_version(path)
        with planned_study(document) as (stored, plan):
            work = [counted(len(relations_of(stored)), "relation")]
        work += [counted(plan.n_cells, "harvest")] if plan.n_cells else []
        work += [counted(len(document[section.key]), section.noun) for section in job_sections_of(document)]
        self.stdout.write(f"{path.name}: no errors. {', '.join(work)}.")

    def do_plan(self, study, small, **options):
        document = read_study(study_path(study), small)
        for line in list(study_plan_lines(document)):  # a slow terminal must not delay the end of the transaction
            self.stdout.write(line)

    def do_run(self, study, small, yes, queue, wait, output, **options):
        path = study_path(study)
        document = read_study(path, small)
        self.confirm_changes(document, path, yes)
        stored = store_study(document)
        self.say(f"Study {stored.name} in project {stored.project}")
        for job in failed_jobs(stored):
            self.say(f"{job} failed: {job.error} It starts again.")
        shown: set[str] = set()
        self.do_steps(stored, shown, queue, wait)
        if waits_for_people(stored):
            self.show_judgments(stored, wait)
            if wait:
                wait_for_people(stored)
                self.do_steps(stored, shown, queue, wait)
        self.write(stored, stored.report, output or results_folder(path, stored))

    def do_steps(self, study: Study, shown: set[str], queue: bool, wait: bool) -> None:
        """Run all steps of the study that do not wait for people."""
        while jobs := advance(study):
            self.finish(jobs, is_here=not queue, wait=wait)
            self.show_stages(study, shown)
        self.show_stages(study, shown)

    def confirm_changes(self, document: dict[str, Any], path: Path, yes: bool) -> None:
        existing = find_study(document)
        if existing is None or existing.document == document:
            return
        changed = list(changes(existing.document, document))
        for change in changed:
            self.say(f"changed since the last run: {change}")
        check_changes(existing, document)
        if not yes:
            raise DomainError(
                "StudyChanged",
                f"{path.name} has {counted(len(changed), 'change')}. Apply with --yes: missing harvests are added, and "
                "existing ones are kept.",
            )

    def finish(self, jobs: Sequence[Job], is_here: bool, wait: bool) -> None:
        """Run the jobs in this process, or wait until workers have run them. Raises JobFailed."""
        if not is_here and not wait:
            raise DomainError(
                "StudyWaits",
                f"{counted(len(jobs), 'job')} queued for workers. Run the study again when they have ended.",
            )
        for job in jobs:
            self.finish_one(job, is_here)

    def finish_one(self, job: Job, is_here: bool) -> None:
        is_announced = False
        while job.is_unfinished:
            ledger.recover(timezone.now())  # Workers usually do this, but there may be no worker.
            if is_here and Job.objects.claimable(timezone.now()).filter(pk=job.pk).exists():
                run_to_the_end(job)
            else:
                if not is_announced and is_here:
                    self.say(f"{job} is running in another process, or was interrupted and continues within "
                             f"{settings.JOB_LEASE_S} s")  # fmt: skip
                is_announced = True
                time.sleep(LOOK_EVERY_S)
            job.refresh_from_db()
        if job.status != Job.Status.SUCCEEDED:
            raise DomainError("JobFailed", f"Job {job.pk}, {job}, {job.status}: {job.error or 'cancelled by a user.'}")

    def show_stages(self, study: Study, shown: set[str]) -> None:
        """Print warnings of harvests and the stages that are done, except lines that were printed before."""
        lines = [f"{job}: {sentence}" for job in queued_jobs(study) for sentence in job.sentences]
        lines += [f"{stage.name}: {stage.text}" for stage in stages(study) if stage.state == "done"]
        for line in lines:
            if line not in shown:
                shown.add(line)
                self.say(line)

    def show_judgments(self, study: Study, wait: bool) -> None:
        """Print the judgments for which the study waits."""
        round = study.round
        stage = next(stage for stage in stages(study) if stage.name == "Judgments")
        self.say(f"Judgments: {stage.text}")
        if round.status == Round.Status.OPEN:
            self.say(f"Join link: {settings.ORIGIN}{reverse('annotation:join', args=[round.join_token])}")
            self.say(f"If the website is not running: {RUN} web")
        self.say(f"Round: {settings.ORIGIN}{round.get_absolute_url()}")
        if not wait:
            self.say("Run the study again when people have judged, or add --wait.")

    def do_status(self, study, small, **options):
        stored = stored_study(written_study(study_path(study), small))
        for stage in stages(stored):
            self.stdout.write(f"{stage.name:<10} {stage.state:<12} {stage.text}")

    def do_report(self, study, small, store, output, **options):
        path = study_path(study)
        stored = stored_study(written_study(path, small))
        report = report_now(stored, is_stored=store) if "round" in stored.document else None
        if not report and not published_tables(stored, None):
            raise NotFound(f"Study {stored.name} has no results yet. Continue it with study run.")
        if report and not is_judged(stored.round):
            document = report.document
            n_complete, n_tasks = document["n_complete"], document["n_tasks"]
            self.say(f"The report is incomplete: {n_complete} of {counted(n_tasks, 'statement')} complete.")
        self.write(stored, report, output or results_folder(path, stored))

    def write(self, study: Study, report: Report | None, folder: Path) -> None:
        """Print the results of the study next to the published results, and write the files of finished parts."""
        tables = published_tables(study, report)
        if not report and not tables and not job_sections_of(study.document):
            return
        for table in tables:
            self.stdout.write(f"\n{table.caption}\n\n{terminal_text(table)}")
            self.stdout.write("".join(f"{note}\n" for note in table.notes))
        written = list(write_outputs(study, report, folder))
        if report and report.pk is None:
            self.say("The round has no judgments, so the report is not stored.")
        elif report:
            self.say(f"Report {report.pk}: {settings.ORIGIN}{report.get_absolute_url()}")
        self.say(f"{folder}: {', '.join(path.name for path in written) or 'up to date'}")

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def prepare_database() -> None:
    """Create the data folder, and migrate a new database.

    An existing database is not migrated; that is the operator's decision.
    """
    create_data_folder(settings.DATA_DIR)
    if not MigrationRecorder(connection).applied_migrations():
        call_command("migrate", interactive=False, verbosity=0)


def check_small_version(path: Path) -> None:
    """Raise the errors of the small version. If its round is open, the old document is kept, which is not an error."""
    document = read_study(path, small=True)
    existing = find_study(document)
    if existing is None or existing.round is None:
        with planned_study(document):
            pass


def wait_for_people(study: Study) -> None:
    """Wait until no more judgments are expected. Raises NotFound if the study or its round is deleted meanwhile."""
    name = study.round.name
    while not is_judged(study.round):
        time.sleep(LOOK_FOR_JUDGMENTS_EVERY_S)
        try:
            study.refresh_from_db()
        except Study.DoesNotExist:
            raise NotFound(f"Study {study.name} was deleted. Run it again to start a new one.") from None
        if study.round is None:
            raise NotFound(f"Round {name} was deleted. Run the study again to open a new one.")


def stored_study(document: dict[str, Any]) -> Study:
    study = find_study(document)
    if study is None:
        raise NotFound(f"Study {document['name']} has not been started. Start it with study run.")
    return study


def results_folder(path: Path, study: Study) -> Path:
    return folder_of(path) / f"{study.name}-results"


def schema_text() -> str:
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
