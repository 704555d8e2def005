"""Factories of probes with made-up measures."""

from __future__ import annotations

from django.utils import timezone

from kgharvest.contrib.probing.models import Probe, ProbeRecord
from kgharvest.contrib.probing.probes.facts import ProbeRelation
from kgharvest.contrib.probing.probes.services import ProbeRequest, create_probe, document_of
from kgharvest.models import Job
from tests.factories import make_language_model

METHODS = ("majority", "manual", "soft", "bertese")
RELATIONS = {"capital_of": "1-1", "language_of": "N-1", "made_of": "N-M", "colour_of": "N-1"}


def make_probe() -> Probe:
    """Create a finished probe of four relations with control records and a learned prompt of every kind."""
    relations = [
        ProbeRelation(name, ("<ENT0> of <ENT1> .",), {}, relation_type) for name, relation_type in RELATIONS.items()
    ]
    probe = create_probe(ProbeRequest(make_language_model(), relations, METHODS, "demo", "made up"))
    for position, relation in enumerate(probe.relations.all()):
        for method in METHODS:
            for is_control in (False, True):
                record = make_record(relation, method, is_control, p1=0.0 if is_control else 0.2 * (1 + position % 3))
                if not is_control:
                    add_prompt(record)
    now = timezone.now()
    Probe.objects.filter(pk=probe.pk).update(
        status=Job.Status.SUCCEEDED, started_at=now, finished_at=now, document=document_of(probe)
    )
    return Probe.objects.get(pk=probe.pk)


def make_record(relation, method: str, is_control: bool, **measures) -> ProbeRecord:
    shares = {"p1": 0.5, "p10": 0.8, "mrr": 0.6, "nll": 1.0, "dev_nll": 1.1}
    counts = {"n_train": 8, "n_dev": 4, "n_test": 10, "n_prompts": 1, "n_parameters": 5, "forwards": 60, "seconds": 2.0}
    left_out = {"train": {}, "dev": {}, "test": {"object of several tokens": 1}}
    return ProbeRecord.objects.create(
        relation=relation,
        method=method,
        is_control=is_control,
        left_out=left_out,
        ranks=[1] * 5 + [7] * 5,
        **{**shares, **counts, "effective_prompts": 1.0, **measures},
    )


def add_prompt(record: ProbeRecord) -> None:
    """Store the kind of prompt that the record's method learns."""
    if record.method == "bertese":
        record.prompts.create(text="[MASK] , capital france", rewritten_from="[MASK] of france", weight=1)
    elif record.method == "soft":
        nearest = [[["of", 0.02], ["in", 0.7]]]
        word = {"word": "of", "p": 0.2, "original": "in", "original_p": 0.4, "norm_ratio": 1.25}
        record.prompts.create(
            text="<ENT0> ‹of› <ENT1>", weight=0.9, nearest=nearest, vectors=b"\x93NUMPY", learned=[0, word, 1]
        )
    elif record.method == "manual":
        record.prompts.create(text="<ENT0> of <ENT1> .", weight=1)
