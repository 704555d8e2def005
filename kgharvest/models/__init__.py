"""Relations, LMs, jobs and the tuples they found."""

from kgharvest.models.jobs import HarvestJob, Job, JobPrompt, Launch, Prompt, Worker
from kgharvest.models.knowledge import HarvestedTuple, KnowledgeTuple, tuple_key
from kgharvest.models.relations import LanguageModel, Relation, RelationSet

__all__ = [
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
    "Worker",
    "tuple_key",
]
