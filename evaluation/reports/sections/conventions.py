"""Accuracy of the whole population under each convention of the field. See "Conventions" in docs/report-json.md."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from evaluation.evidence.evidence import DrawnVerdicts, Evidence, drawn_verdicts
from evaluation.rendering.documents import Document
from kgharvest.pages.number_format import counted, share
from kgharvest.statistics.arrays import ACCEPTED, INCOMPLETE, REJECTED, UNDECIDED, Codes, Floats
from kgharvest.statistics.rates import Rate, VerdictSample, sample_rate, whole_statements
from kgharvest.statistics.reliability import reliability_weights, verdicts_by_reliability
from kgharvest.statistics.verdicts import unjudgeable_as_false
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

DEFAULT, DECIDED, AS_FALSE, RELIABILITY = (
    "default", "true_among_decided", "unjudgeable_as_false", "by_reliability",
)  # fmt: skip
RULES = {
    DEFAULT: "the verdicts of this report; undecided statements count as not accepted",
    DECIDED: "the same verdicts, without undecided statements",
    AS_FALSE: "Unjudgeable counts as False",
    RELIABILITY: "labels weighted by the reliability of their annotators, without undecided statements",
}
METHOD_PARTS = {
    "conventions": (
        "Conventions: the accuracy of the whole population is also computed by three other conventions of the field. "
        "In the convention by reliability (Marchesin, Silvello, and Alonso, HCOMP 2024), the weight of an annotator "
        "is sigmoid(5 kappa). Here, kappa is Cohen's kappa with linear weights (False < Unjudgeable < True) between "
        "the annotator's labels and the most frequent label of the other annotators. A single label decides, and two "
        "labels decide if they are equal. Of three or more labels, the label with the largest total weight decides. "
        "Statements of a round without all their judgments do not count. "
        "Strata are weighted by their sizes if all sizes are known; otherwise, every cell has the same weight."
    ),
    "clustered_draws": (
        "In each stratum, the tuples of a subject were divided at random into clusters of at most the cluster size. "
        "The clusters were put in random order on a circle, and consecutive tuples were drawn from a random tuple on, "
        "so every tuple had the same inclusion probability and shares need no weights."
    ),
    "clusters": (
        "Clusters: statements that were sampled together count as fewer statements. Their number is divided by the "
        "design effect of their stratum (Korn and Graubard 1998), with a correction for finite populations. This "
        "applies to accuracy, rejection, their averages, cuts, judge-assisted and corrected rates, the conventions, "
        "and the differences between sides. Agreement and the performance of annotators and judges treat statements as "
        "independent. Anytime-valid intervals are not computed."
    ),
}


def convention_entries(evidence: Evidence, drawn: DrawnVerdicts) -> list[dict[str, Any]]:
    """Return `conventions` of docs/report-json.md."""
    accepted, rejected = (drawn.of_groups(verdict) for verdict in (ACCEPTED, REJECTED))
    as_false = drawn_verdicts(evidence, rule=unjudgeable_as_false)
    samples = {  # with the statements (S,) of which the denominator is a part
        DEFAULT: (accepted, accepted.n, evidence.accuracy_effects),
        DECIDED: (_among_decided(accepted, rejected), accepted.n, _effects(evidence, evidence.verdict, REJECTED)),
        AS_FALSE: (as_false.of_groups(ACCEPTED), accepted.n, _effects(evidence, _as_false(evidence), UNDECIDED)),
        RELIABILITY: _by_reliability(evidence),
    }
    n_drawn = np.maximum(np.bincount(evidence.draws.stratum, minlength=len(evidence.strata)), 1)
    entries = []
    for name, (sample, n_judged, effects) in samples.items():
        # The tuples that undecided statements represent do not belong to the denominator.
        share_of_frame = np.minimum(sample.n / np.where(n_judged > 0, n_judged, n_drawn), 1)
        rate = _whole_population(evidence, sample, share_of_frame, effects)
        n = int(np.rint(sample.n).sum())
        entries.append({
            "name": name, "n": n, "accuracy": rate.value, "accuracy_low": rate.low, "accuracy_high": rate.high,
            "reason": rate.reason,
        })  # fmt: skip
    return entries


def _whole_population(evidence: Evidence, sample: VerdictSample, share_of_frame: Floats, effects: Floats) -> Rate:
    """Return the share of hits over all strata (S,). effects (S,): design effects."""
    population = evidence.population_of_stratum
    weights = None
    if not population.all():
        sizes = np.where(evidence.size_of_stratum > 0, evidence.size_of_stratum, 1)
        of_cell = np.bincount(evidence.cell_of_stratum, sizes, len(evidence.cells))
        weights = sizes / of_cell[evidence.cell_of_stratum] / len(evidence.cells)
    effective = sample.effective(effects)
    in_frame = np.maximum(np.rint(population * share_of_frame), whole_statements(effective.n))
    return sample_rate(effective, np.where(population > 0, in_frame, 0), weights)


def _among_decided(accepted: VerdictSample, rejected: VerdictSample) -> VerdictSample:
    """Return the evidence for acceptance, restricted to accepted and rejected statements."""
    decided = accepted.n_hits + rejected.n_hits
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.nan_to_num(accepted.least / (accepted.least + rejected.most))
        most = np.nan_to_num(accepted.most / (accepted.most + rejected.least))
    is_exact = (accepted.least == accepted.most) & (rejected.least == rejected.most)
    bounds = (np.where(is_exact, accepted.n_hits, decided * limit) for limit in (least, most))
    return VerdictSample(decided, accepted.n_hits, *bounds)


def _by_reliability(evidence: Evidence) -> tuple[VerdictSample, Codes, Floats]:
    """Return the evidence of complete statements, their number (S,), and the design effects (S,)."""
    task, annotator, label, _ = evidence.judgments
    weights = reliability_weights(task, annotator, label, len(evidence.annotators))
    verdict = verdicts_by_reliability(task, annotator, label, evidence.n_tasks, weights)
    verdict = np.where(evidence.is_complete, verdict, INCOMPLETE)
    drawn = verdict[evidence.draws.task]
    n_accepted, n_rejected, n_complete = (
        np.bincount(evidence.draws.stratum[chosen], minlength=len(evidence.strata))
        for chosen in (drawn == ACCEPTED, drawn == REJECTED, drawn != INCOMPLETE)
    )
    sample = VerdictSample.of_complete(n_accepted + n_rejected, n_accepted)
    return sample, n_complete, _effects(evidence, verdict, REJECTED)


def _as_false(evidence: Evidence) -> Codes:
    verdict = unjudgeable_as_false(evidence.counts, evidence.quorum)
    return np.where(evidence.is_complete, verdict, INCOMPLETE)


def _effects(evidence: Evidence, verdict: Codes, last: int) -> Floats:
    """Return the design effects (S,) on the share of ACCEPTED among the verdicts up to `last`."""
    return evidence.effects(verdict == ACCEPTED, verdict <= last)


def why_conventions_differ(document: Mapping[str, Any]) -> str:
    """Return a sentence that explains the differences between the conventions, or an empty text if there are none."""
    entries = {entry["name"]: entry for entry in document.get("conventions") or ()}
    if not entries or entries[DEFAULT]["accuracy"] is None:
        return ""
    values = [entry["accuracy"] for entry in entries.values()]
    if all(value == values[0] for value in values):
        return ""
    if not (entries[DEFAULT]["n"] - entries[DECIDED]["n"]):
        return (
            f"The conventions differ because {RELIABILITY} ({share(entries[RELIABILITY]['accuracy'])}) weights labels "
            f"by the reliability of their annotators, and {DEFAULT} ({share(entries[DEFAULT]['accuracy'])}) follows "
            "the majority."
        )
    n = {name: entry["n"] for name, entry in entries.items()}
    n_undecided = n[DEFAULT] - n[DECIDED]
    n_decided = n[RELIABILITY] - n[DECIDED]
    more = f"{counted(abs(n_decided), 'statement')} {'more' if n_decided >= 0 else 'fewer'}"
    return (
        f"The conventions differ because {counted(n_undecided, 'statement')} of {n[DEFAULT]:,} "
        f"{'is' if n_undecided == 1 else 'are'} undecided (ties, single judgments of imported files, and Unjudgeable): "
        f"{DEFAULT} ({share(entries[DEFAULT]['accuracy'])}) counts them as not accepted, {DECIDED} leaves them out of "
        f"the denominator, and {RELIABILITY} ({share(entries[RELIABILITY]['accuracy'])}) decides {more} by the "
        "reliability of the annotators and leaves the rest out."
    )


def convention_table(document: Document) -> Table:
    rows = [
        Row(
            (
                entry["name"],
                entry["n"],
                entry["accuracy"],
                entry["accuracy_low"],
                entry["accuracy_high"],
                RULES[entry["name"]],
            )
        )
        for entry in document.get("conventions") or ()
    ]
    columns = (
        Column("convention"),
        Column("statements", Kind.COUNT),
        *of_kind(Kind.SHARE, "Acc", "low", "high"),
        Column("rule"),
    )
    reasons = {entry["reason"] for entry in document.get("conventions") or () if entry["reason"]}
    notes = tuple(filter(None, (why_conventions_differ(document), *sorted(reasons))))
    return Table("conventions", "Accuracy of the whole population by convention", columns, tuple(rows), notes)
