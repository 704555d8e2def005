"""API to compare two reports, a report with the paper's Table 5, two harvests, or two cells over a relation set."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from evaluation.comparisons import harvest_overlap
from evaluation.comparisons.report_comparison import with_distinct_names
from evaluation.comparisons.views import find_report_side, report_comparison, shared_verdicts_in_words
from evaluation.models import Report
from kgharvest.api.input import Filters, IdField
from kgharvest.api.views import ApiView
from kgharvest.models import HarvestJob
from kgharvest.tables.table import Marked, Table, split_rates

MOST_RELATIONS = 100  # maximum per response, because each relation loads two harvests


# Reports


class TableSerializer(serializers.Serializer):
    """A table as shown on pages, but with unrounded numbers."""

    title = serializers.CharField()
    columns = serializers.ListField(child=serializers.CharField())
    rows = serializers.ListField(
        child=serializers.ListField(child=serializers.JSONField()), help_text="One value per column."
    )
    notes = serializers.ListField(child=serializers.CharField())


def table_document(table: Table) -> dict[str, Any]:
    flat = split_rates(table)
    rows = [[value.value if isinstance(value, Marked) else value for value in row.values] for row in flat.rows]
    return {
        "title": flat.caption,
        "columns": [column.whole_title for column in flat.columns],
        "rows": rows,
        "notes": flat.notes,
    }


class ReportComparisonSerializer(serializers.Serializer):
    """Comparison of two reports on their shared relations."""

    a = serializers.CharField(source="a.name")
    b = serializers.CharField(source="b.name")
    n_shared = serializers.IntegerField(help_text="Number of shared relations.")
    table = TableSerializer()
    differences = TableSerializer()
    comparisons = serializers.ListField(
        child=serializers.DictField(),
        help_text="Comparisons in the format of a report's document (docs/report-json.md).",
    )
    shared_verdicts = serializers.CharField(
        allow_null=True, help_text="Result of McNemar's test on the tuples judged in both rounds, as a sentence."
    )


class ReportPair(Filters):
    a = serializers.CharField(max_length=20, help_text="Report id, or `paper` for Table 5 of Hao et al. (2023).")
    b = serializers.CharField(max_length=20)


class ReportComparison(ApiView):
    serializer_class = ReportComparisonSerializer

    @extend_schema(summary="Compare two reports", parameters=[ReportPair])
    def get(self, request: Request) -> Response:
        """Compares two reports, or a report and the paper."""
        reports = Report.objects.visible_to(request.user).for_list()
        chosen = self.filtered_by(ReportPair)
        sides = (find_report_side(reports, choice) for choice in (chosen["a"], chosen["b"]))
        compared = report_comparison(*with_distinct_names(*sides))
        tables = {name: table_document(compared[name]) for name in ("table", "differences")}
        words = shared_verdicts_in_words(reports, chosen["a"], chosen["b"])
        return self.answer(compared | tables | {"shared_verdicts": words})


# Harvests


class RateSerializer(serializers.Serializer):
    """A share with its 95 % interval. Undefined values are null, with a `reason`."""

    value = serializers.FloatField(allow_null=True)
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)
    reason = serializers.CharField(allow_null=True)


class PartSerializer(serializers.Serializer):
    """Tuples found only by `a`, by both harvests, or only by `b`. `name` says which.

    n_judged: number of judged tuples.
    """

    name = serializers.ChoiceField(harvest_overlap.PARTS)
    n = serializers.IntegerField()
    n_judged = serializers.IntegerField()
    accuracy = RateSerializer()
    is_simulated = serializers.BooleanField()


class CorrelationSerializer(serializers.Serializer):
    """Correlations between the ranks of the shared tuples in the two harvests; null if undefined."""

    spearman = serializers.FloatField(allow_null=True)
    kendall = serializers.FloatField(allow_null=True)


class DepthSerializer(serializers.Serializer):
    """Number of tuples that are among the first `k` tuples of both harvests."""

    k = serializers.IntegerField()
    n_shared = serializers.IntegerField()
    share = serializers.FloatField()


class OverlapSerializer(serializers.Serializer):
    """Comparison of the best tuples of two harvests of one relation, at most 20,000 from each harvest."""

    relation = serializers.CharField(source="a.relation.path")
    a = serializers.IntegerField(source="a.pk")
    b = serializers.IntegerField(source="b.pk")
    jaccard = serializers.FloatField(allow_null=True)
    correlation = CorrelationSerializer()
    only_a = serializers.IntegerField(source="sizes.only_a")
    both = serializers.IntegerField(source="sizes.both")
    only_b = serializers.IntegerField(source="sizes.only_b")
    is_cut = serializers.BooleanField(help_text="True if a harvest has more tuples than the comparison includes.")


class HarvestComparisonSerializer(OverlapSerializer):
    depths = DepthSerializer(many=True)
    parts = PartSerializer(many=True, source="judged_parts")


class HarvestPair(Filters):
    a = IdField(help_text="Id of a finished harvest.")
    b = IdField()


class HarvestComparisonView(ApiView):
    def pair(self) -> tuple[HarvestJob, HarvestJob]:
        """Return the two harvests named in the query string. Raises NotFound."""
        ids = self.filtered_by(HarvestPair)
        finished = HarvestJob.objects.visible_to(self.request.user).with_cell().succeeded().defer("payload", "summary")
        jobs = finished.in_bulk([ids["a"], ids["b"]])
        if len(jobs) < len(set(ids.values())):
            raise exceptions.NotFound("Finished harvest not found.")
        return jobs[ids["a"]], jobs[ids["b"]]


class HarvestComparison(HarvestComparisonView):
    serializer_class = HarvestComparisonSerializer

    @extend_schema(summary="Compare two harvests", parameters=[HarvestPair])
    def get(self, request: Request) -> Response:
        """Compares two harvests of one relation: shared tuples, tuples in only one harvest, and their accuracies."""
        a, b = self.pair()
        if a.relation_id != b.relation_id:
            raise exceptions.NotFound("The harvests have different relations. Choose harvests of one relation.")
        overlap = harvest_overlap.overlap_of(a, b)
        accuracies = harvest_overlap.accuracy_of_parts(overlap, request.user)
        sizes = overlap.sizes._asdict()
        parts = [{"name": part, "n": sizes[part], **accuracies[part]._asdict()} for part in harvest_overlap.PARTS]
        names = ("a", "b", "jaccard", "correlation", "sizes", "is_cut", "depths")
        return self.answer({name: getattr(overlap, name) for name in names} | {"judged_parts": parts})


class SetTotalsSerializer(serializers.Serializer):
    """Totals over the relations of the set. Relations have equal weight, except in the `pooled` values."""

    n_relations = serializers.IntegerField()
    pooled_only_a = serializers.IntegerField(source="pooled.only_a")
    pooled_both = serializers.IntegerField(source="pooled.both")
    pooled_only_b = serializers.IntegerField(source="pooled.only_b")
    pooled_jaccard = serializers.FloatField(source="pooled.jaccard", allow_null=True)
    mean_jaccard = serializers.FloatField(allow_null=True)
    n_correlated = serializers.IntegerField()
    mean_spearman = serializers.FloatField(allow_null=True)
    mean_kendall = serializers.FloatField(allow_null=True)


class SetComparisonSerializer(serializers.Serializer):
    totals = SetTotalsSerializer()
    relations = OverlapSerializer(many=True, help_text="The first 100 relations.")


class SetComparison(HarvestComparisonView):
    serializer_class = SetComparisonSerializer

    @extend_schema(summary="Compare two cells over a set", parameters=[HarvestPair])
    def get(self, request: Request) -> Response:
        """Compares the cells (LM and setting) of two harvests.

        The comparison covers the relations of their set that both cells contain.
        """
        a, b = self.pair()
        if a.relation.relation_set_id != b.relation.relation_set_id:
            raise exceptions.NotFound("The harvests have different relation sets. Choose harvests of one set.")
        pairs = harvest_overlap.pairs_of_set(a, b, request.user)
        return self.answer(
            {
                "totals": harvest_overlap.totals_of(pairs),
                "relations": harvest_overlap.overlaps_of(pairs[:MOST_RELATIONS]),
            }
        )
