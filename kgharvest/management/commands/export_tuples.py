"""`export_tuples --job ID [--cut base:10] [--format jsonl/csv/nt/ttl] [--include-hidden] [--include-sensitive]`"""

from kgharvest.bulk.file_writing import in_chunks
from kgharvest.harvests.cuts import by_score, parse_cut
from kgharvest.harvests.tuple_export import FILE_FORMATS, export_tuples, find_harvest_job
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = "Write the tuples of a finished harvest to standard output, best first."

    def add_arguments(self, parser):
        parser.add_argument("--job", required=True, help="number of the job, or the fingerprint that files name it by")
        parser.add_argument("--cut", help="keep the best part: top:100, share:0.5, base:10, score:-12, precision:0.8")
        parser.add_argument(
            "--format",
            dest="file_format",
            choices=FILE_FORMATS,
            default="jsonl",
            help="JSON lines (default), CSV, N-Triples or Turtle",
        )
        parser.add_argument("--include-hidden", action="store_true", help="tuples that researchers hid, too")
        parser.add_argument("--include-sensitive", action="store_true", help="tuples with sensitive words, too")

    def handle(self, *, job, cut, file_format, include_hidden, include_sensitive, **options):
        harvest_job = find_harvest_job(job)
        score_cut = by_score(harvest_job, parse_cut(cut)) if cut else None
        if score_cut and score_cut.sentence:
            self.stderr.write(score_cut.sentence)
        cut = score_cut and score_cut.cut
        lines = export_tuples(harvest_job, cut, file_format, include_hidden, include_sensitive)
        for piece in in_chunks(lines):
            self.stdout.write(piece, ending="")
