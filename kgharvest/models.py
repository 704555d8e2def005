"""Relations, LMs, jobs and the tuples they found; attempts that are limited."""

from kgharvest.accounts.models import Attempts
from kgharvest.harvests.models import HarvestedTuple, HarvestJob, JobPrompt, LanguageModel, Launch, Prompt
from kgharvest.jobs.models import Job, Worker
from kgharvest.knowledge.models import Curation, EntityOccurrence, KnowledgeTuple, SensitiveWord, tuple_key
from kgharvest.relations.models import Relation, RelationSet

__all__ = [
    "Attempts",
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
