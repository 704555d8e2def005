from kgharvest.bulk.file_writing import in_chunks
from kgharvest.harvests.cuts import by_score, parse_cut
from kgharvest.harvests.tuple_files import FILE_FORMATS, export_tuples, find_harvest_job
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = "Write the tuples of a finished harvest to standard output, best first."

    def add_arguments(self, parser):
        parser.add_argument("--job", required=True, help="job number or job fingerprint")
        cut_help = "export only the best tuples: top:100, share:0.5, base:10, score:-12, precision:0.8 (default: all)"
        parser.add_argument("--cut", help=cut_help)
        format_help = "JSON lines, CSV, N-Triples, or Turtle (default: jsonl)"
        parser.add_argument("--format", dest="file_format", choices=FILE_FORMATS, default="jsonl", help=format_help)
        parser.add_argument("--include-hidden", action="store_true", help="include hidden tuples")
        parser.add_argument("--include-sensitive", action="store_true", help="include tuples with sensitive words")

    def handle(self, *, job, cut, file_format, include_hidden, include_sensitive, **options):
        harvest_job = find_harvest_job(job)
        score_cut = by_score(harvest_job, parse_cut(cut)) if cut else None
        if score_cut and score_cut.sentence:
            self.stderr.write(score_cut.sentence)
        cut = score_cut and score_cut.cut
        lines = export_tuples(harvest_job, cut, file_format, include_hidden, include_sensitive)
        for chunk in in_chunks(lines):
            self.stdout.write(chunk, ending="")
