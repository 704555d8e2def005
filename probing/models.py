"""The models of this app, for Django: they are defined in probes/models.py."""

from probing.probes.models import LearnedPrompt, Probe, ProbedRelation, ProbeRecord

__all__ = ["LearnedPrompt", "Probe", "ProbeRecord", "ProbedRelation"]
