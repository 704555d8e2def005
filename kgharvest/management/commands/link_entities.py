"""`link_entities --set NAME [FILE.tsv] [--keep-articles] [--singular] [--remove]`"""

from pathlib import Path

from kgharvest.bulk.file_reading import read_bytes
from kgharvest.entities.tables import delete_table, save_table
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

    def handle(self, *, file, set_name, keep_articles, singular, remove, **options):
        relation_set = resolve_set(set_name)
        if remove:
            delete_table(relation_set)
            self.stdout.write(f"{set_name}: entities are taken as they are written.")
            return
        named = (file.name, read_bytes(file)) if file else None
        table = save_table(relation_set, not keep_articles, singular, named)
        labels, aliases = counted(table.n_labels, "label"), counted(table.n_aliases, "alias", "aliases")
        ambiguous = f"; {table.n_ambiguous:,} names of several labels lead to none" if table.n_ambiguous else ""
        self.stdout.write(f"{set_name}: {labels}, {aliases}{ambiguous}.")
