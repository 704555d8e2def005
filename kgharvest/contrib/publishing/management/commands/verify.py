"""Verify a replication package."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kgharvest.contrib.publishing.packs.archive import BadPack
from kgharvest.contrib.publishing.packs.verification import verify_pack
from kgharvest.management.command import DomainCommand

MAX_MEMORY = 300  # MB
LEAST_MEMORY = 50  # MB


class Command(DomainCommand):
    help = "Recompute and verify every number in a replication package. Needs no database. Exits with 1 on differences."
    requires_system_checks = ()

    def add_arguments(self, parser):
        parser.add_argument("pack", type=Path, help="folder or ZIP file of a replication package")
        parser.add_argument(
            "--max-memory",
            type=int,
            default=MAX_MEMORY,
            metavar="MB",
            help="maximum memory of this process (default: %(default)s). Increase it for packages that you trust.",
        )

    def handle(self, *, pack, max_memory, **options):
        try:
            with memory_limit(max_memory):
                verification = verify_pack(pack)
        except MemoryError:
            raise BadPack(
                f"Verification of {pack} needs more than {max_memory} MB. If you trust the package, set --max-memory "
                f"to {4 * max_memory}, for example."
            ) from None
        for line in verification.lines():
            (self.stderr if verification.problems else self.stdout).write(line)
        if verification.problems:
            sys.exit(1)


@contextmanager
def memory_limit(megabytes: int) -> Iterator[None]:
    """Limit the memory of this process on Linux. Beyond the limit, Python raises MemoryError.

    The limit is at least LEAST_MEMORY above the current memory.
    """
    try:
        pages = [int(number) for number in Path("/proc/self/statm").read_text().split()]
    except OSError:
        yield  # other systems do not enforce the limit
        return
    resident, data = (pages[field] * resource.getpagesize() for field in (1, 5))
    growth = max((megabytes << 20) - resident, LEAST_MEMORY << 20)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data + growth if hard == resource.RLIM_INFINITY else hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
