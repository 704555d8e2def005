"""`workers [--json] [--drain NAME] [--undrain NAME]`"""

from __future__ import annotations

import json

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from kgharvest.jobs import overview, workers
from kgharvest.jobs.api import WorkerSerializer
from kgharvest.jobs.overview import QueueRow, WorkerRow
from kgharvest.management.command import DomainCommand
from kgharvest.pages.number_format import duration


class Command(DomainCommand):
    help = "List the workers, what each does, and what waits in each queue; or send a worker away."

    def add_arguments(self, parser):
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--json", action="store_true", help="as JSON, for programs")
        what.add_argument("--drain", metavar="NAME", help="have it end the jobs in hand, take no other, and leave")
        what.add_argument("--undrain", metavar="NAME", help="have one that is still at its last job go on")

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
            self.stdout.write(f"{worker.name}  {row.state}, heard of {duration(row.silent_s)} ago")
            self.stdout.write(f"  {'; '.join(worker.devices)}  takes {', '.join(worker.queues)}")
            for name in worker.language_models:
                self.stdout.write(f"  in memory: {name}")
            for shown in row.jobs:
                job = shown.job
                progress = f", {job.done} of {job.total}" if job.total else ""
                self.stdout.write(f"  job {job.pk}: {shown.harvest or job.kind}, {job.stage}{progress}")
            self.stdout.write(
                f"  last hour: {done.n_jobs} jobs, {done.n_tuples} tuples, busy for {duration(done.busy_s)}"
            )
        if not rows:
            self.stdout.write("No worker was heard of within a day; start one with ./run worker.")
        for queue in queues:
            if queue.n_waiting or queue.n_workers:
                self.stdout.write(f"{queue.name}: {queue.n_waiting} wait, {queue.n_workers} workers  {queue.lacking}")
