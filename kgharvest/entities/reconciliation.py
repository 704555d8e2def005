"""Look entities up at a reconciliation service, and let people accept what it proposes.

The protocol is the W3C community group's Reconciliation Service API, 0.2 (https://www.w3.org/community/reports/reconciliation/CG-FINAL-specs-0.2-20230410/):
a batch of queries is posted as a form field, each is answered with candidates that have id, name and score, and `match`
where the service is sure. Nothing that it says links an entity before somebody accepts it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import httpx
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from kgharvest.access import owns_installation
from kgharvest.engine.chat_completions import retry_after_s
from kgharvest.engine.filters import LONGEST_ENTITY
from kgharvest.engine.types import Progress
from kgharvest.entities.models import EntityCandidate, EntityName, EntityTable
from kgharvest.entities.tables import LONGEST_ID
from kgharvest.errors import DomainError
from kgharvest.jobs import ledger
from kgharvest.models import EntityOccurrence, Job, RelationSet
from kgharvest.relations.services import check_is_own
from kgharvest.webhooks.addresses import BadAddress, resolve, split

JOB_KIND = "reconcile_entities"
QUERIES_AT_ONCE = 20
CANDIDATES_OF_A_NAME = 3
MOST_ENTITIES = 20_000  # looked up by one job
ACCEPTED_AT_ONCE = 2000  # candidates linked by one transaction
TIMEOUT_S = 60.0
MOST_ATTEMPTS = 5
LONGEST_WAIT_S = 60.0
LARGEST_ANSWER = 4 << 20  # bytes
WORTH_A_RETRY = {408, 429, 500, 502, 503, 504}
LONGEST_DESCRIPTION = 300


class LookupFailed(DomainError):
    """A reconciliation service that cannot be reached or says something else than it should."""


class NothingToLookUp(DomainError):
    """A set whose entities all have ids, or that has none."""


class Candidate(NamedTuple):
    """What a service proposes for a name. score: None where it gives none. is_match: whether it is sure."""

    name: str
    label: str
    identifier: str
    description: str
    score: float | None
    is_match: bool


# -- asking a service --------------------------------------------------------------------------------------------------


class ReconciliationService:
    """A service at `url`. is_trusted: whether it may lie in this machine's network. Raises BadAddress, LookupFailed."""

    def __init__(
        self,
        url: str,
        entity_type: str = "",
        is_trusted: bool = False,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ):
        _, self.host, _, _ = split(url)
        self._type, self._sleep = entity_type, sleep
        address, headers, extensions = httpx.URL(url), {"Accept": "application/json"}, {}
        if not is_trusted:  # a name is resolved once, so that it leads nowhere else a moment later
            try:
                target = resolve(url)
            except OSError:
                raise LookupFailed(f"The host {self.host} is not known here; check the address.") from None
            headers["Host"] = address.netloc.decode()
            extensions = {"sni_hostname": address.host}
            address = address.copy_with(host=str(target.address))
        self._address, self._extensions = address, extensions
        self._client = httpx.Client(headers=headers, timeout=TIMEOUT_S, transport=transport)

    def candidates(self, names: Sequence[str]) -> list[Candidate]:
        """Return what the service proposes for names, at most CANDIDATES_OF_A_NAME each, best first."""
        shared = {"limit": CANDIDATES_OF_A_NAME, **({"type": self._type} if self._type else {})}
        queries = {f"q{number}": {"query": name, **shared} for number, name in enumerate(names)}
        answer = self._answer({"queries": json.dumps(queries, ensure_ascii=False)})
        try:
            found = [
                _candidate(name, result)
                for number, name in enumerate(names)
                for result in answer[f"q{number}"]["result"][:CANDIDATES_OF_A_NAME]
            ]
        except (LookupError, TypeError, AttributeError, ValueError):
            raise LookupFailed(
                f"{self.host} answers, but not as a reconciliation service does; check its address."
            ) from None
        return [candidate for candidate in found if candidate is not None]

    def _answer(self, form: Mapping[str, str]) -> Any:
        trouble, wait_s = "", 0.0
        for attempt in range(MOST_ATTEMPTS):
            if attempt:
                self._sleep(wait_s)
            wait_s = min(2.0**attempt, LONGEST_WAIT_S)
            try:
                status, headers, content = self._exchange(form)
            except httpx.TimeoutException:
                trouble = f"gave no answer within {TIMEOUT_S:g} s"
                continue
            except httpx.RequestError as error:
                trouble = f"cannot be reached ({type(error).__name__})"
                continue
            if status == 200:
                return _read_json(content)
            if status not in WORTH_A_RETRY:
                raise LookupFailed(f"{self.host} refuses the request (status {status}); check its address and type.")
            trouble = f"answered with status {status}"
            asked_s = retry_after_s(headers.get("Retry-After", ""), datetime.now(UTC))
            wait_s = wait_s if asked_s is None else min(asked_s, LONGEST_WAIT_S)
        raise LookupFailed(f"{self.host} {trouble}, {MOST_ATTEMPTS} times in a row; try later.")

    def _exchange(self, form: Mapping[str, str]) -> tuple[int, httpx.Headers, bytes]:
        start, content = time.monotonic(), bytearray()
        with self._client.stream("POST", self._address, data=form, extensions=self._extensions) as response:
            for part in response.iter_bytes():
                content += part
                if len(content) > LARGEST_ANSWER or time.monotonic() - start > TIMEOUT_S:
                    raise httpx.ReadTimeout("The answer does not end.")
        return response.status_code, response.headers, bytes(content)


def _read_json(content: bytes) -> Any:
    """Return None for what is no JSON, which no answer of a service is."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _candidate(name: str, result: Mapping[str, Any]) -> Candidate | None:
    """Return a candidate as it can be kept, None for one whose name or id cannot."""
    label, identifier = (" ".join(str(result[key]).split()) for key in ("name", "id"))
    if not label or not identifier or len(label) > LONGEST_ENTITY or len(identifier) > LONGEST_ID:
        return None
    if not (label + identifier).isprintable():
        return None
    description = " ".join(str(result.get("description") or "").split())
    description = "".join(filter(str.isprintable, description))[:LONGEST_DESCRIPTION]
    return Candidate(name, label, identifier, description, _score(result.get("score")), result.get("match") is True)


def _score(value: Any) -> float | None:
    """Return None for what is no number, and for those that no database or JSON holds: NaN, infinite, too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        score = float(value)
    except OverflowError:
        return None
    return score if math.isfinite(score) else None


# -- a lookup as a job -------------------------------------------------------------------------------------------------


def queue_lookup(relation_set: RelationSet, url: str, entity_type: str = "", by: Any = None) -> Job:
    """Ask a worker to look the set's entities up at `url`; return the job that does, which may be under way already.

    entity_type: id of the service's type that entities must have, "" for any. Raises SetIsShipped, NotAllowed,
    BadAddress, NothingToLookUp.
    """
    check_is_own(relation_set, by)
    is_trusted = owns_installation(by)
    if is_trusted:
        split(url)
    else:
        _check_leads_out(url)
    if not names_without_id(relation_set, 1):
        raise NothingToLookUp(f"Every entity of {relation_set.name} has an id, or none was harvested yet.")
    with transaction.atomic():
        RelationSet.objects.select_for_update(no_key=True).only("pk").get(pk=relation_set.pk)  # two clicks are one job
        under_way = lookups_of(relation_set).unfinished().first()
        if under_way:
            return under_way
        last = lookups_of(relation_set).filter(status=Job.Status.SUCCEEDED).first()
        after = last.payload.get("until", "") if last else ""
        payload = {"set": relation_set.pk, "url": url, "type": entity_type, "is_trusted": is_trusted, "after": after}
        job = Job.objects.create(
            kind=JOB_KIND,
            project=relation_set.project,
            payload=payload,
            unique_key=f"{JOB_KIND}:{relation_set.pk}",
            created_by=by,
        )
        ledger.enqueue(job)
    return job


def _check_leads_out(url: str) -> None:
    try:
        resolve(url)
    except OSError:
        raise BadAddress(f"The host of {url!r:.80} is not known here; check the address.") from None


def lookups_of(relation_set: RelationSet):
    return Job.objects.filter(kind=JOB_KIND, unique_key=f"{JOB_KIND}:{relation_set.pk}")


def names_without_id(relation_set: RelationSet, most: int, after: str = "") -> list[str]:
    """Return entities of the set's tuples that its table gives no id, in their order, at most `most` past `after`."""
    entities = EntityOccurrence.objects.filter(relation__relation_set=relation_set, entity__gt=after)
    linked = EntityName.objects.filter(table__relation_set=relation_set).exclude(identifier="")
    unlinked = entities.exclude(entity__in=linked.values("name"))
    return list(unlinked.order_by("entity").values_list("entity", flat=True).distinct()[:most])


def run_lookup(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Runner of the kind JOB_KIND: store candidates as they come, so that a later attempt asks only for the others.

    Of more than MOST_ENTITIES names the next lookup asks for those after the last, and from the first again at the end.
    """
    asked = job.payload
    relation_set = RelationSet.objects.get(pk=asked["set"])
    names = names_without_id(relation_set, MOST_ENTITIES, asked["after"])
    until = names[-1] if len(names) == MOST_ENTITIES else ""
    known = set(relation_set.entity_candidates.values_list("name", flat=True))
    names = [name for name in names if name not in known]
    service = ReconciliationService(asked["url"], asked["type"], asked["is_trusted"])
    for start in range(0, len(names), QUERIES_AT_ONCE):
        heartbeat(Progress("looking up", start, len(names)))
        with heartbeat.kept_alive():
            candidates = service.candidates(names[start : start + QUERIES_AT_ONCE])
        rows = [EntityCandidate(relation_set=relation_set, **candidate._asdict()) for candidate in candidates]
        heartbeat.store(partial(EntityCandidate.objects.bulk_create, rows, ignore_conflicts=True))
    return lambda: Job.objects.filter(pk=job.pk).update(payload=asked | {"until": until})


# -- what people decide ------------------------------------------------------------------------------------------------


@transaction.atomic
def decide_on_candidates(
    relation_set: RelationSet, accepted: Iterable[int], refused: Iterable[str] = (), by: Any = None
) -> int:
    """Link the names of accepted candidates to their labels and ids; return how many names are linked.

    refused: names to which none of their candidates applies. The candidates of all these names go. A candidate that
    somebody has decided meanwhile is passed over; of two accepted for one name the better stays. Raises SetIsShipped,
    NotAllowed.
    """
    check_is_own(relation_set, by)
    RelationSet.objects.select_for_update(no_key=True).only("pk").get(pk=relation_set.pk)
    candidates = relation_set.entity_candidates
    chosen: dict[str, EntityCandidate] = {}
    for candidate in candidates.filter(pk__in=list(accepted)).best_first():
        chosen.setdefault(candidate.name, candidate)
    if chosen:
        _link(relation_set, list(chosen.values()), by)
    candidates.filter(name__in=[*chosen, *refused]).delete()
    return len(chosen)


def accept_matches(relation_set: RelationSet, by: Any = None) -> int:
    """Accept all candidates of which the service was sure; return how many names are linked."""
    sure = relation_set.entity_candidates.filter(is_match=True).order_by("pk").values_list("pk", flat=True)
    n_linked = decide_on_candidates(relation_set, [], (), by)  # asks whether `by` may, where there is nothing to do
    while accepted := list(sure[:ACCEPTED_AT_ONCE]):
        n_linked += decide_on_candidates(relation_set, accepted, (), by)
    return n_linked


def _link(relation_set: RelationSet, chosen: Sequence[EntityCandidate], by: Any) -> None:
    """Give names, and the labels that they lead to, a row of the set's table, which is made if there is none."""
    table, _ = EntityTable.objects.get_or_create(
        relation_set=relation_set, defaults={"without_articles": False, "in_singular": False, "changed_by": by}
    )
    links = {candidate.name: candidate for candidate in chosen}
    labels = {candidate.label.casefold(): candidate for candidate in chosen}
    links |= {name: candidate for name, candidate in labels.items() if name not in links}
    there = dict(table.names.filter(name__in=links).values_list("name", "identifier"))
    rows = [
        EntityName(table=table, name=name, label=candidate.label, identifier=candidate.identifier)
        for name, candidate in links.items()
        if not there.get(name)  # a label of the table keeps its own id
    ]
    EntityName.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["table", "name"], update_fields=["label", "identifier"]
    )
    n_labels = len(labels.keys() - there.keys())
    EntityTable.objects.filter(pk=table.pk).update(
        n_labels=F("n_labels") + n_labels,
        n_aliases=F("n_aliases") + len(links.keys() - there.keys()) - n_labels,
        changed_by=by,
        changed_at=timezone.now(),
    )
