"""Relations, LMs, jobs and the tuples they found."""

from kgharvest.models.jobs import HarvestJob, Job, JobPrompt, Launch, Prompt, Worker
from kgharvest.models.knowledge import (
    Curation,
    EntityOccurrence,
    HarvestedTuple,
    KnowledgeTuple,
    SensitiveWord,
    tuple_key,
)
from kgharvest.models.relations import LanguageModel, Relation, RelationSet

__all__ = [
    "Curation",
    "EntityOccurrence",
    "HarvestJob",
    "HarvestedTuple",
    "Job",
    "JobPrompt",
    "KnowledgeTuple",
    "LanguageModel",
    "Launch",
    "Prompt",
    "Relation",
    "RelationSet",
    "SensitiveWord",
    "Worker",
    "tuple_key",
]
