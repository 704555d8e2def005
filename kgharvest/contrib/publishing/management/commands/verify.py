"""`verify PACK`"""

import sys
from pathlib import Path

from kgharvest.contrib.publishing.packs.verification import verify_pack
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = "Compute every number of a paper pack again from its raw rows; exit 1 and name what differs. No database."
    requires_system_checks = ()

    def add_arguments(self, parser):
        parser.add_argument("pack", type=Path, help="folder or ZIP file of a pack")

    def handle(self, *, pack, **options):
        verification = verify_pack(pack)
        out = self.stderr if verification.problems else self.stdout
        for line in verification.lines():
            out.write(line)
        if verification.problems:
            sys.exit(1)
