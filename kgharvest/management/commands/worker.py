import os

from kgharvest.environment import PROGRAM
from kgharvest.errors import DomainError
from kgharvest.management.command import ProgramCommand, has_pending_migrations
from kgharvest.operations.programs import worker_command


class Command(ProgramCommand):
    help = "Run queued harvests and other jobs."
    arguments_help = "options of Celery's worker, for example --concurrency 2"

    def handle(self, *arguments: str, **options: object) -> None:
        if has_pending_migrations():
            raise DomainError("NotMigrated", f"The database is not set up. Run {PROGRAM} migrate first.")
        command = worker_command(*arguments)
        os.execv(command[0], command)  # noqa: S606 - a trusted command
