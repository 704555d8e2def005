"""`link_entities --set NAME [FILE.tsv] [--keep-articles] [--singular] [--remove]`, or `--service URL`"""

from pathlib import Path

from django.core.management import CommandError

from kgharvest.bulk.file_reading import read_bytes
from kgharvest.entities.reconciliation import accept_matches, queue_lookup
from kgharvest.entities.tables import delete_table, save_table
from kgharvest.jobs.ledger import run_job
from kgharvest.management.command import DomainCommand
from kgharvest.pages.number_format import counted
from kgharvest.relations.names import resolve_set


class Command(DomainCommand):
    help = "Say what makes two entities of a set's relations one, for the tuples that are stored from then on."

    def add_arguments(self, parser):
        parser.add_argument("file", type=Path, nargs="?", metavar="FILE.tsv", help="label, aliases (a|b), id; by tabs")
        parser.add_argument("--set", dest="set_name", required=True, metavar="NAME", help="set of the relations")
        parser.add_argument("--keep-articles", action="store_true", help="“the dog” is not “dog”")
        parser.add_argument("--singular", action="store_true", help="“dogs” are “dog”, by the rules of English")
        parser.add_argument("--remove", action="store_true", help="take entities as they are written again")

        parser.add_argument("--service", metavar="URL", help="look entities up at this reconciliation service")
        parser.add_argument("--type", dest="entity_type", default="", metavar="ID", help="of the service, they have it")
        parser.add_argument("--accept-sure", action="store_true", help="link those of which the service is sure")

    def handle(self, *, file, set_name, keep_articles, singular, remove, **options):
        relation_set = resolve_set(set_name)
        if service := options["service"]:
            if file or remove:
                raise CommandError("--service goes without FILE and --remove; give one of them.")
            self._look_up(relation_set, service, options["entity_type"], options["accept_sure"])
            return
        if remove:
            delete_table(relation_set)
            self.stdout.write(f"{set_name}: entities are taken as they are written.")
            return
        named = (file.name, read_bytes(file)) if file else None
        table = save_table(relation_set, not keep_articles, singular, named)
        labels, aliases = counted(table.n_labels, "label"), counted(table.n_aliases, "alias", "aliases")
        ambiguous = f"; {table.n_ambiguous:,} names of several labels lead to none" if table.n_ambiguous else ""
        self.stdout.write(f"{set_name}: {labels}, {aliases}{ambiguous}.")

    def _look_up(self, relation_set, service, entity_type, accept_sure):
        job = queue_lookup(relation_set, service, entity_type)
        run_job(job.pk)  # here: does nothing if a worker was faster
        job.refresh_from_db()
        if job.error:
            raise CommandError(job.error)
        n_linked = accept_matches(relation_set) if accept_sure else 0
        n_waiting = relation_set.entity_candidates.values("name").distinct().count()
        linked = f"{counted(n_linked, 'name')} linked; " if accept_sure else ""
        self.stdout.write(f"{relation_set.name}: {linked}{counted(n_waiting, 'name')} to decide on, on the set's page.")
