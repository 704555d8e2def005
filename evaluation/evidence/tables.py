"""Tables that contain the rows of a report. Each table is declared once for the database, files, and reports.

In memory, a table is a mapping from column names to columns. Statements, judge runs, and strata are numbered from 1.
Tuples and harvests have arbitrary ids. Judgments refer to annotators by their position in `annotators`. A column with
`values` is an array of positions in `values`, in which -1 means empty. Columns of numbers are arrays of floats, in
which NaN means empty. Other columns are lists or arrays of integers, in which None or 0 means empty. Columns that only
files contain are absent from the rows of a report.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kgharvest.engine.language_models.networks.placement import DEVICE_HELP
from kgharvest.statistics.arrays import LABELS, VERDICTS
from kgharvest.statistics.paired_tests import CellKey

STATUSES = ("superseded", "gold", "counted", "excluded", "late")  # statuses of judgments
SUPERSEDED, GOLD, COUNTED, EXCLUDED, LATE = range(5)
LEFT_OUT = ("hidden", "sensitive")  # reasons for excluding tuples from samples
HIDDEN, SENSITIVE = range(2)
EMPTY = -1
PAPER_ORDER = ("human", "autoprompt", "top1", "multi")  # order of the settings in Table 5

Columns = Mapping[str, Any]
Rows = Mapping[str, Columns]  # columns by name of the table


class RowColumn(NamedTuple):
    """A column of rows. type: "string", "integer", "number", "boolean", or "datetime" (ISO 8601, UTC).

    values: the values of a coded column.
    """

    name: str
    type: str
    description: str
    values: tuple[str, ...] = ()


class RowTable(NamedTuple):
    name: str
    description: str
    columns: tuple[RowColumn, ...]

    @property
    def jsonl(self) -> str:
        """Return the path of the table's file in a replication package."""
        return f"rows/{self.name}.jsonl"

    @property
    def parquet(self) -> str:
        return f"rows/{self.name}.parquet"


STATEMENT = RowColumn("statement", "integer", "Number of the statement in this package, from 1.")
ANNOTATOR = RowColumn("annotator", "string", "Pseudonym, the same in all files of the package.")
HARVEST = RowColumn("harvest", "integer", "Number of the harvest in this package, from 1.")
TUPLE = RowColumn("tuple", "integer", "Number of the knowledge tuple in this package, from 1.")
RELATION = RowColumn("relation", "string", "Relation, named as in the report.")
MODEL = RowColumn("model", "string", "LM; empty for imported judgments without an LM.")
SETTING = RowColumn("setting", "string", "Prompt setting; empty for imported judgments without a setting.")
RUN = RowColumn("run", "integer", "Number of the judge run in this package; run 1 was used by the report.")

TABLES = (
    RowTable("statements", "Statements judged by people, and gold statements.", (
        STATEMENT,
        TUPLE,
        RowColumn("is_gold", "boolean", "True for gold statements, which have a known answer and affect no rate."),
        RowColumn("gold_label", "string", "Known answer of a gold statement: true or false.", LABELS),
        RELATION,
        RowColumn("entities", "string", "JSON list of the entities by slot; empty if curation hides the tuple."),
        RowColumn("text", "string", "Text of the statement as judged; empty if curation hides the tuple."),
        RowColumn("n_wanted", "integer", "Number of required judgments."),
        RowColumn("verdict", "string", "accepted, rejected, or undecided; empty if judgments are missing.",
                  VERDICTS[:3]),
        RowColumn("adjudication", "string", "Expert's label. It does not replace the verdict.", LABELS),
    )),
    RowTable("judgments", "All judgments, including those that do not count.", (
        STATEMENT,
        ANNOTATOR,
        RowColumn("label", "string", "true, false, or unjudgeable.", LABELS),
        RowColumn("seconds", "number", "Active time in seconds; empty if not measured."),
        RowColumn("judged_at", "datetime", "Time of the judgment."),
        RowColumn("status", "string", "counted, superseded (withdrawn by the annotator), excluded (with its "
                   "annotator), late (after the statement was reassigned), or gold.", STATUSES),
    )),
    RowTable("annotators", "Pseudonyms of the annotators who joined the round.", (
        ANNOTATOR,
        RowColumn("status", "string", "active, paused, or excluded."),
        RowColumn("is_trained", "boolean", "True if the annotator finished the training."),
        RowColumn("n_judged", "integer", "Number of statements judged, including gold."),
    )),
    RowTable("strata", "Parts of harvests from which simple random or clustered samples were drawn.", (
        RowColumn("stratum", "integer", "Number of the stratum in this package, from 1."),
        RELATION,
        MODEL,
        SETTING,
        HARVEST._replace(description="Sampled harvest; empty for imported judgments."),
        RowColumn("rank_from", "integer", "First rank of the stratum in the harvest."),
        RowColumn("rank_to", "integer", "Last rank of the stratum in the harvest."),
        RowColumn("population", "integer", "Number of tuples from which the sample was drawn; empty if unknown."),
        RowColumn("judge_label", "string", "Judge's label of the stratum's tuples, if strata are formed by label."),
        RowColumn("ranks", "string", "JSON list of the ranks if they are interleaved with those of other strata."),
    )),
    RowTable("draws", "Statements drawn for each stratum. A statement can be drawn for several strata.", (
        RowColumn("stratum", "integer", "Number of the stratum."),
        STATEMENT,
        RowColumn("rank", "integer", "Rank of the tuple in the harvest; 1 is best."),
        RowColumn("score", "number", "Score of the tuple in the harvest; empty if the harvest has no scores."),
        RowColumn("inclusion_probability", "number", "Inclusion probability of the draw."),
    )),
    RowTable("clusters", "Clusters of the draws, in the order of `draws`; only if the round has a cluster size.", (
        RowColumn("stratum", "integer", "Number of the stratum."),
        STATEMENT,
        RowColumn("cluster", "integer", "Number of the cluster with which the statement was drawn."),
    )),
    RowTable("harvests", "Sampled harvests and their parameters.", (
        HARVEST,
        RowColumn("fingerprint", "string", "Fingerprint of the parameters and the LM revision."),
        RELATION,
        MODEL,
        SETTING,
        RowColumn("origin", "string", "harvested or imported."),
        RowColumn("revision", "string", "Revision of the LM's weights."),
        RowColumn("dtype", "string", "Number format of the LM's weights."),
        RowColumn("device", "string", f"Device of the LM: {DEVICE_HELP}. Empty without an LM."),
        RowColumn("harvested_at", "string", "Time when the harvest finished, ISO 8601."),
        RowColumn("code_version", "string", "Version of kgharvest."),
        RowColumn("n_tuples", "integer", "Number of tuples."),
        RowColumn("score_scale", "string", "Scale of the scores: nats, log_share, own, or order (no scores)."),
        RowColumn("cut", "string", "Cut that was sampled; empty if the whole harvest was sampled."),
        RowColumn("last_rank", "integer", "Last rank of the population."),
        RowColumn("parameters", "string", "Parameters of the harvest as JSON."),
    )),
    RowTable("prompts", "Prompts of the harvests with their weights.", (
        HARVEST,
        RowColumn("text", "string", "The prompt; its slots are <ENT0>, <ENT1>, and so on."),
        RowColumn("origin", "string", "Origin of the prompt, for example initial or created."),
        RowColumn("weight", "number", "Weight; the weights of a harvest add up to 1."),
        RowColumn("compatibility", "number", "Compatibility in nats."),
    )),
    RowTable("harvested", "Ranks and scores of the tuples in the population.", (
        HARVEST,
        RowColumn("rank", "integer", "Rank; 1 is best."),
        TUPLE,
        RowColumn("score", "number", "Score on the scale of the harvest; empty if the harvest has no scores."),
        RowColumn("left_out", "string", "hidden or sensitive, if curation excludes the tuple from samples.", LEFT_OUT),
    )),
    RowTable("judge_runs", "Judge run used by the report, and other judge runs for comparison.", (
        RUN,
        RowColumn("name", "string", "Name of the run."),
        MODEL._replace(description="LM of the judge."),
        RowColumn("revision", "string", "Revision of the judge's LM, if the LM ran in kgharvest."),
        RowColumn("kind", "string", "chat, causal, score, or file."),
        RowColumn("prompt", "string", "Prompt template."),
        RowColumn("prompt_sha256", "string", "SHA-256 of the whole prompt, including the texts about each relation."),
        RowColumn("temperature", "number", "Sampling temperature."),
        RowColumn("seed", "integer", "Seed sent with each request."),
        RowColumn("repeats", "integer", "Number of requests per tuple."),
        RowColumn("threshold", "number", "Threshold of a score judge, in nats."),
        RowColumn("panel", "string", "Panel to which the run belongs; the runs of a panel judge together."),
        RowColumn("differs", "string", "JSON list of the options that differ from run 1."),
    )),
    RowTable("judge_answers", "Answers of the judges, one per request.", (
        RUN,
        TUPLE,
        RowColumn("repeat", "integer", "Number of the request, from 0."),
        RowColumn("label", "string", "true, false, or unjudgeable; empty if the answer is unparsable.", LABELS),
        RowColumn("score", "number", "Score from a score judge, or the probability of true from a causal LM."),
    )),
)  # fmt: skip


def report_order(cell: CellKey) -> tuple[str, int, str, str]:
    """Return the sort key of cells: by LM, setting (as in the paper, then by name), and relation."""
    place = PAPER_ORDER.index(cell.setting) if cell.setting in PAPER_ORDER else len(PAPER_ORDER)
    return cell.model or "", place, cell.setting or "", cell.relation or ""


def n_rows(columns: Columns) -> int:
    return len(next(iter(columns.values()), ()))
