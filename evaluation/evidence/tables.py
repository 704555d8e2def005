"""Tables of the rows that a report is computed from: one declaration for the database, files and reports.

In memory, a table is its columns by name. Statements, judge runs and strata are numbered from 1; tuples and harvests
have any ids, and judgments name their annotator by the position in `annotators`. A column of coded values (`values`) is
an array of positions in these, -1 if empty; numbers are arrays of floats, NaN if empty; other columns are lists or
arrays of integers, None or 0 if empty. Columns that only files contain are absent from the rows of a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kgharvest.engine.language_models.networks.placement import DEVICE_HELP
from kgharvest.statistics.arrays import LABELS, VERDICTS

STATUSES = ("superseded", "gold", "counted", "excluded", "late")  # of judgments
SUPERSEDED, GOLD, COUNTED, EXCLUDED, LATE = range(5)
LEFT_OUT = ("hidden", "sensitive")  # of samples
HIDDEN, SENSITIVE = range(2)
EMPTY = -1

Columns = Mapping[str, Any]
Rows = Mapping[str, Columns]  # by the table's name


class RowColumn(NamedTuple):
    """A column of rows. type: "string", "integer", "number", "boolean" or "datetime" (ISO 8601, UTC).

    values: of a coded column.
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
        """Return the path in a replication package."""
        return f"rows/{self.name}.jsonl"

    @property
    def parquet(self) -> str:
        return f"rows/{self.name}.parquet"


STATEMENT = RowColumn("statement", "integer", "Number of the statement in this pack, from 1.")
ANNOTATOR = RowColumn("annotator", "string", "Pseudonym, the same in all files of the pack.")
HARVEST = RowColumn("harvest", "integer", "Number of the harvest in this pack, from 1.")
TUPLE = RowColumn("tuple", "integer", "Number of the knowledge tuple in this pack, from 1.")
RELATION = RowColumn("relation", "string", "Relation, named as in the report.")
MODEL = RowColumn("model", "string", "LM; empty where imported judgments name none.")
SETTING = RowColumn("setting", "string", "How prompts were obtained; empty where imported judgments name none.")
RUN = RowColumn("run", "integer", "Number of the judge run in this pack; 1 is the one that the report used.")

TABLES = (
    RowTable("statements", "The statements that people judged, and those with known answers (gold).", (
        STATEMENT,
        TUPLE,
        RowColumn("is_gold", "boolean", "Whether the answer was known; gold is in no rate."),
        RowColumn("gold_label", "string", "The known answer of gold: true or false.", LABELS),
        RELATION,
        RowColumn("entities", "string", "JSON list of the entities, by slot; empty where curation hides the tuple."),
        RowColumn("text", "string", "The statement as people saw it; empty where curation hides the tuple."),
        RowColumn("n_wanted", "integer", "How many judgments decide it."),
        RowColumn("verdict", "string", "accepted, rejected, undecided, or empty while judgments are missing.",
                  VERDICTS[:3]),
        RowColumn("adjudication", "string", "The label that an expert gave, beside the verdict.", LABELS),
    )),
    RowTable("judgments", "Every judgment that was given, those that do not count among them.", (
        STATEMENT,
        ANNOTATOR,
        RowColumn("label", "string", "true, false or unjudgeable.", LABELS),
        RowColumn("seconds", "number", "Active time spent; empty where nobody measured."),
        RowColumn("judged_at", "datetime", "When it was given."),
        RowColumn("status", "string", "counted, superseded (taken back by the annotator), excluded (with its "
                   "annotator), late (after the statement had gone to somebody else), or gold.", STATUSES),
    )),
    RowTable("annotators", "Who joined the round, under pseudonyms.", (
        ANNOTATOR,
        RowColumn("status", "string", "active, paused or excluded."),
        RowColumn("is_trained", "boolean", "Whether they finished the training."),
        RowColumn("n_judged", "integer", "How many statements they judged, gold among them."),
    )),
    RowTable("strata", "Parts of harvests from which simple random samples were drawn.", (
        RowColumn("stratum", "integer", "Number of the stratum in this pack, from 1."),
        RELATION,
        MODEL,
        SETTING,
        HARVEST._replace(description="Harvest that was drawn from; empty of imported judgments."),
        RowColumn("rank_from", "integer", "First rank of the harvest in it."),
        RowColumn("rank_to", "integer", "Last rank of the harvest in it."),
        RowColumn("population", "integer", "How many tuples were drawn from; empty where nobody knows."),
        RowColumn("judge_label", "string", "What a judge said of all its tuples, where strata are of its labels."),
        RowColumn("ranks", "string", "JSON list of its ranks, where they lie among those of others."),
    )),
    RowTable("draws", "Which statement was drawn for which stratum. One statement may be drawn for several.", (
        RowColumn("stratum", "integer", "Number of the stratum."),
        STATEMENT,
        RowColumn("rank", "integer", "Rank of the tuple in the harvest; 1 is best."),
        RowColumn("score", "number", "Its score there; empty where the harvest has none."),
        RowColumn("inclusion_probability", "number", "With which it was drawn."),
    )),
    RowTable("harvests", "The harvests that were drawn from, and how they were made.", (
        HARVEST,
        RowColumn("fingerprint", "string", "Equal for harvests with the same parameters and LM revision."),
        RELATION,
        MODEL,
        SETTING,
        RowColumn("origin", "string", "harvested or imported."),
        RowColumn("revision", "string", "Revision of the LM's weights."),
        RowColumn("dtype", "string", "Number format of the LM's weights."),
        RowColumn("device", "string", f"Where the LM's weights were: {DEVICE_HELP}. Empty where there was no LM."),
        RowColumn("harvested_at", "string", "When it ended, ISO 8601."),
        RowColumn("code_version", "string", "Version of kgharvest that made it."),
        RowColumn("n_tuples", "integer", "How many tuples it has."),
        RowColumn("score_scale", "string", "What scores are: nats, log_share, own, or order where it has none."),
        RowColumn("cut", "string", "Which part was drawn from; empty for all of it."),
        RowColumn("last_rank", "integer", "Last rank that was drawn from."),
        RowColumn("parameters", "string", "JSON of its parameters."),
    )),
    RowTable("prompts", "The prompts of the harvests with their weights.", (
        HARVEST,
        RowColumn("text", "string", "The prompt; <ENT0> and so on are its slots."),
        RowColumn("origin", "string", "How it came to be, e.g. initial, created."),
        RowColumn("weight", "number", "Its weight; those of a harvest add up to 1."),
        RowColumn("compatibility", "number", "In nats."),
    )),
    RowTable("harvested", "Ranks and scores of the tuples that were drawn from.", (
        HARVEST,
        RowColumn("rank", "integer", "1 is best."),
        TUPLE,
        RowColumn("score", "number", "On the scale of the harvest; empty where that has none."),
        RowColumn("left_out", "string", "hidden or sensitive, where curation leaves it out of samples.", LEFT_OUT),
    )),
    RowTable("judge_runs", "The LM judge that the report used, and the other runs that it is compared with.", (
        RUN,
        RowColumn("name", "string", "Name of the run."),
        MODEL._replace(description="LM that judged."),
        RowColumn("revision", "string", "Of an LM that ran here."),
        RowColumn("kind", "string", "chat, causal, score or file."),
        RowColumn("prompt", "string", "Template of what it was asked."),
        RowColumn("prompt_sha256", "string", "SHA-256 of the whole prompt with what it says of each relation."),
        RowColumn("temperature", "number", "Of sampling its answers."),
        RowColumn("seed", "integer", "Sent with each request."),
        RowColumn("repeats", "integer", "How often each tuple was asked."),
        RowColumn("threshold", "number", "Of a score judge, in nats."),
        RowColumn("panel", "string", "Runs with the same panel judge together."),
        RowColumn("differs", "string", "JSON list: in what it differs from run 1."),
    )),
    RowTable("judge_answers", "What the judges answered, each time that they were asked.", (
        RUN,
        TUPLE,
        RowColumn("repeat", "integer", "From 0."),
        RowColumn("label", "string", "true, false, unjudgeable, or empty where the answer could not be read.", LABELS),
        RowColumn("score", "number", "Of a score judge its score, of a causal LM its probability of true."),
    )),
)  # fmt: skip


def n_rows(columns: Columns) -> int:
    return len(next(iter(columns.values()), ()))
