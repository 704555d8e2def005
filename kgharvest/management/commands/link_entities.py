from pathlib import Path

from kgharvest.bulk.file_reading import read_bytes
from kgharvest.entities.tables import delete_table, save_table
from kgharvest.management.command import DomainCommand
from kgharvest.pages.number_format import counted
from kgharvest.relations.names import resolve_set


class Command(DomainCommand):
    help = "Save or remove the entity table of a relation set. It applies to tuples stored from now on."

    def add_arguments(self, parser):
        file_help = "tab-separated file with label, aliases (a|b), and id (default: keep the current names)"
        parser.add_argument("file", type=Path, nargs="?", metavar="FILE.tsv", help=file_help)
        parser.add_argument("--set", dest="set_name", required=True, metavar="NAME", help="relation set")
        parser.add_argument("--keep-articles", action="store_true", help="do not ignore the articles a, an, and the")
        parser.add_argument("--singular", action="store_true", help="singularize by English rules")
        parser.add_argument("--remove", action="store_true", help="remove the entity table")

    def handle(self, *, file, set_name, keep_articles, singular, remove, **options):
        relation_set = resolve_set(set_name)
        if remove:
            delete_table(relation_set)
            self.stdout.write(f"{set_name}: entity table removed.")
            return
        table = save_table(relation_set, not keep_articles, singular, (file.name, read_bytes(file)) if file else None)
        counts = [counted(table.n_labels, "label"), counted(table.n_aliases, "alias", "aliases")]
        if table.n_ambiguous:
            counts.append(f"{counted(table.n_ambiguous, 'ambiguous name')} (not linked)")
        self.stdout.write(f"{set_name}: {', '.join(counts)}.")
