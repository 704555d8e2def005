"""Verify a replication package."""

import sys
from pathlib import Path

from kgharvest.contrib.publishing.packs.verification import verify_pack
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = "Recompute and verify every number in a replication package. Needs no database. Exits with 1 on differences."
    requires_system_checks = ()

    def add_arguments(self, parser):
        parser.add_argument("pack", type=Path, help="folder or ZIP file of a replication package")

    def handle(self, *, pack, **options):
        verification = verify_pack(pack)
        for line in verification.lines():
            (self.stderr if verification.problems else self.stdout).write(line)
        if verification.problems:
            sys.exit(1)
