import os

from django.conf import settings
from django.core.management import call_command

from kgharvest.management.command import ProgramCommand
from kgharvest.operations.programs import check_port, web_command


class Command(ProgramCommand):
    help = (
        "Migrate the database and serve the website on 127.0.0.1. Set the variable PORT to change the port. Prints a "
        "link for the first owner if there is none."
    )
    arguments_help = "options of gunicorn, for example --workers 4"

    def handle(self, *arguments: str, **options: object) -> None:
        if not any(argument.startswith(("--bind", "-b")) for argument in arguments):
            check_port()
        call_command("migrate", interactive=False, verbosity=0)
        call_command("members", first_owner=True)
        if settings.PRODUCTION:  # in production, static files have hashed names, which collectstatic creates
            call_command("collectstatic", interactive=False, verbosity=0)
        command = web_command(*arguments)
        os.execv(command[0], command)  # noqa: S606 - a trusted command
