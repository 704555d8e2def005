"""Probes and what they learned, for Django; they live in their room."""

from probing.probes.models import LearnedPrompt, Probe, ProbedRelation, ProbeRecord

__all__ = ["LearnedPrompt", "Probe", "ProbeRecord", "ProbedRelation"]
