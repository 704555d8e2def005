import json

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from kgharvest.environment import RUN
from kgharvest.jobs import overview, workers
from kgharvest.jobs.api import WorkerSerializer
from kgharvest.jobs.overview import QueueRow, WorkerRow
from kgharvest.management.command import DomainCommand
from kgharvest.pages.number_format import duration


class Command(DomainCommand):
    help = "List workers with their running jobs and the queues, or drain a worker."

    def add_arguments(self, parser):
        actions = parser.add_mutually_exclusive_group()
        actions.add_argument("--json", action="store_true", help="print JSON")
        actions.add_argument("--drain", metavar="NAME", help="let a worker finish its running jobs and exit")
        actions.add_argument("--undrain", metavar="NAME", help="let a drained worker accept jobs again")

    def handle(self, *, drain, undrain, **options):
        if drain:
            workers.drain(workers.find_worker(drain))
            self.stdout.write(f"{drain} is draining. It exits after its running jobs.")
        elif undrain:
            workers.undrain(workers.find_worker(undrain))
            self.stdout.write(f"{undrain} accepts jobs again.")
        else:
            now = timezone.now()
            rows, queues = overview.worker_rows(None, now), overview.queue_rows(now)
            if options["json"]:
                workers_json = WorkerSerializer(rows, many=True).data
                document = {"workers": workers_json, "queues": [row._asdict() for row in queues]}
                self.stdout.write(json.dumps(document, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2))
            else:
                self.print_rows(rows, queues)

    def print_rows(self, rows: list[WorkerRow], queues: list[QueueRow]) -> None:
        for row in rows:
            worker, done = row.worker, row.throughput
            self.stdout.write(f"{worker.name}  {row.state}, last heartbeat {duration(row.silent_s)} ago")
            self.stdout.write(f"  {'; '.join(worker.devices)}  queues: {', '.join(worker.queues)}")
            for name in worker.language_models:
                self.stdout.write(f"  loaded: {name}")
            for running in row.jobs:
                job = running.job
                progress = f", {job.done} of {job.total}" if job.total else ""
                self.stdout.write(f"  job {job.pk}: {running.harvest or job.kind}, {job.stage}{progress}")
            throughput = f"{done.n_jobs} jobs, {done.n_tuples} tuples, busy for {duration(done.busy_s)}"
            self.stdout.write(f"  last hour: {throughput}")
        if not rows:
            self.stdout.write(f"No worker heartbeat in the last day. Start a worker with {RUN} worker.")
        for queue in queues:
            if queue.n_waiting or queue.n_workers:
                counts = f"{queue.n_waiting} queued, {queue.n_workers} workers"
                self.stdout.write(f"{queue.name}: {counts}  {queue.lacking}")
