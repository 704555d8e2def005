import json
from pathlib import Path

from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.contrib.knowledge_graphs.imports.conceptnet import filtered_facts
from kgharvest.errors import DomainError
from kgharvest.management.command import DomainCommand, natural, positive
from kgharvest.pages.number_format import counted
from kgharvest.relations.names import relations_of_set


class Command(DomainCommand):
    help = "Filter ConceptNet's assertions as in BertNet (Appendix B) and write them as facts for evaluate_scores."

    def add_arguments(self, parser):
        parser.add_argument("file", type=Path, metavar="FILE", help="assertions of ConceptNet 5 (uncompressed .csv)")
        parser.add_argument(
            "--set", dest="set_name", required=True, metavar="NAME", help="set of the relations to write"
        )
        weight_help = "write only facts with a larger weight (default: 1)"
        parser.add_argument("--min-weight", type=float, default=1.0, help=weight_help)
        facts_help = "omit relations with fewer facts (default: 1000)"
        parser.add_argument("--min-facts", type=natural, default=1000, help=facts_help)
        parser.add_argument(
            "--per-relation", type=positive, metavar="N", help="draw N facts per relation (default: all)"
        )
        parser.add_argument("--seed", type=int, default=0, help="random seed of the sample (default: 0)")
        parser.add_argument("--output", required=True, type=Path, metavar="F.jsonl", help="file of facts to write")

    def handle(self, *, file, set_name, min_weight, min_facts, per_relation, seed, output, **options):
        check_writable(output)
        names = {relation.name for relation in relations_of_set(set_name)}
        facts, skipped = filtered_facts(file, names, min_weight, min_facts, per_relation, seed)
        if not facts and not skipped:
            raise DomainError("ImportRefused", f"{file} is empty. Provide tab-separated assertions of ConceptNet 5.")
        rows = [row | {"relation": f"{set_name}/{row['relation']}"} for row in facts]
        write_atomically(output, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        n_relations = len({row["relation"] for row in rows})
        self.stdout.write(f"{output}: {counted(len(rows), 'fact')} of {counted(n_relations, 'relation')}.")
        for reason, n in skipped.items():
            self.stdout.write(f"Skipped: {n:,} {reason}.")
