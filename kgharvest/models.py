"""All models of the app `kgharvest`."""

from kgharvest.accounts.models import ApiToken, Attempts, Project, ProjectInvite, ProjectMember, Role
from kgharvest.accounts.sign_in.models import GroupMembership, OpenIDIdentity, RecoveryCode, SecondFactor
from kgharvest.api.models import KeyedAnswer
from kgharvest.chat_models.models import ChatAnswer
from kgharvest.entities.models import EntityName, EntityTable
from kgharvest.events.models import Actor, AuditHead, Event
from kgharvest.harvests.models import HarvestedTuple, HarvestJob, HarvestPart, JobPrompt, LanguageModel, Launch, Prompt
from kgharvest.jobs.models import Job, Worker
from kgharvest.knowledge.models import Curation, EntityOccurrence, KnowledgeTuple, SensitiveWord, tuple_key
from kgharvest.relations.models import Relation, RelationSet
from kgharvest.webhooks.models import Delivery, Webhook
