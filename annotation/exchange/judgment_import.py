"""Import of judgments collected outside kgharvest. The judged tuples do not need to come from a harvest."""

import hmac
import re
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from annotation.exchange.judgment_files import ImportedRow, read_rows
from annotation.judging.verdict_update import count_draws, recount
from annotation.models import Annotator, Draw, Judgment, JudgmentTask, Label, Round, Stratum
from annotation.monitoring.progress import delete_snapshots
from annotation.rounds.instructions import freeze_statement
from annotation.rounds.references import wrong_parts
from annotation.rounds.services import find_round
from kgharvest.access import Action, check_may
from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_reading import CONTROL
from kgharvest.bulk.insert import ROWS_AT_ONCE, insert_rows
from kgharvest.engine.prompts.template import SLOT
from kgharvest.entities.tables import canonicalizer
from kgharvest.errors import BadEntry, DomainError, ImportRefused, NotFound
from kgharvest.events.recording import record
from kgharvest.harvests.language_models import name_language_model
from kgharvest.knowledge.models import KEY_SEPARATOR
from kgharvest.models import KnowledgeTuple, LanguageModel, Project, Relation, RelationSet, tuple_key
from kgharvest.names import UnresolvedName
from kgharvest.relations.checks import RELATION_NAME
from kgharvest.relations.names import Scope, relations_of_set, resolve_relation
from kgharvest.relations.services import editable_set, record_relations

NAME = re.compile(r"[-\w]{1,100}", re.ASCII)  # names of new rounds


class ImportSummary(NamedTuple):
    """Result of an import. n_duplicates: number of rows that were skipped as duplicates or replaced other judgments."""

    round: Round
    n_judgments: int
    n_duplicates: int


TupleKey = tuple[int, str]  # relation id and key of the tuple, independent of the relation name used in the file
JudgmentKey = tuple[str, int]  # annotator code and task id, unique among current judgments


def import_judgments(
    path: Path,
    round_name: str,
    *,
    create: bool = False,
    project: Project | str | None = None,
    set_name: str | None = None,
    duplicates: str = "error",
    by=None,
) -> ImportSummary:
    """Add the judgments of a CSV file (see judgment_files) to a round of imported judgments.

    create: True to create missing rounds, relations, tuples, and tasks. If `create` is False, a missing round raises
    NotFound, and each row that needs another missing object is a fault. project: project of new objects; required if
    `by` works in several projects, unless round_name is project/name. set_name: relation set to use if several sets
    contain a relation. duplicates: policy for repeated judgments of one annotator on one tuple: "error", or keep the
    "first" or "last". A row that repeats the label for another cell is not a duplicate; the judgment counts for both
    cells. The number of required judgments of each task is set to its number of judgments. Raises ImportRefused with
    all faults, NotFound, NotForImports, NotAllowed, or ProjectNotNamed. If an error is raised, nothing is stored.
    """
    rows = read_rows(path)
    if set_name is not None:
        relations_of_set(set_name)  # raises if the set does not exist
    with transaction.atomic():
        work = _Import(_locked_round(round_name, create, project, by), create, set_name, duplicates, by)
        n_judgments = work.store(rows)
        if work.faults:
            raise ImportRefused(path.name, work.faults)
        if n_judgments:
            recount(work.round)
            delete_snapshots(work.round)
        if n_judgments or work.has_new_draws:
            policy = {"n_rows": len(rows), "duplicates": duplicates, "n_duplicates": work.n_duplicates}
            rows = [*work.round.strata.all(), *work.round.tasks.filter(position__gte=work.n_old_tasks).only("pk")]
            options = {"round": work.round, "deleted": work.deleted_strata, "texts": {"file": path.name}}
            record("round.imported", work.round, by, rows=rows, **options, n_judgments=n_judgments, **policy)
        return ImportSummary(work.round, n_judgments, work.n_duplicates)


def _locked_round(name: str, create: bool, project: Project | str | None, by) -> Round:
    """Lock the round, so that concurrent imports run one at a time. Raises NotFound, NotAllowed, or NotForImports."""
    if create:
        slug, _, name = name.rpartition("/")
        if not NAME.fullmatch(name):
            raise NotFound(f"Invalid round name {name!r}. Use up to 100 letters, digits, hyphens, and underscores.")
        new = {"status": Round.Status.CLOSED, "source": Round.Source.IMPORTED}
        new |= {"created_by": by, "closed_at": timezone.now()}
        round, _ = project_for(by, slug or project).rounds.get_or_create(name=name, defaults=new)
    else:
        round = find_round(name, by)
    check_may(by, Action.WORK, round.project)
    round = Round.objects.select_for_update(of=("self",)).select_related("project").get(pk=round.pk)
    if round.source != Round.Source.IMPORTED:
        raise DomainError(
            "NotForImports",
            f"Round {round.name} has source {round.source} and does not accept imports. Import into another round.",
        )
    return round


class _Import:
    """Import of one file into a round. Each step collects the faults of all rows before the next step starts."""

    def __init__(self, round: Round, create: bool, set_name: str | None, duplicates: str, by):
        self.round = round
        self.create = create
        self.by = by
        self.n_old_tasks = round.n_tasks
        self.has_new_draws = False
        self.deleted_strata: list[Stratum] = []
        round_relations = set(round.strata.values_list("relation", flat=True))
        visible = Relation.objects.visible_to(by).values("pk")
        self._relations = Relation.objects.filter(Q(pk__in=visible) | Q(pk__in=round_relations))
        # If several sets contain a relation, prefer the set named by --set, then the relations that the round has.
        self._scopes: tuple[Scope, ...] = (
            lambda relation: relation.relation_set.name == set_name,
            lambda relation: relation.pk in round_relations,
            lambda relation: relation.relation_set.project_id in (None, round.project_id),
        )
        self.duplicates = duplicates
        self.faults: list[BadEntry] = []
        self.n_duplicates = 0

    def store(self, rows: Sequence[ImportedRow]) -> int:
        """Store the rows and return the number of judgments. If there are faults, the caller must roll back."""
        firsts = {row.relation: row for row in reversed(rows)}
        in_order = sorted(firsts.items(), key=lambda item: item[1].line)
        relations = {name: relation for name, row in in_order if (relation := self._resolve_relation(row))}
        for row in rows:
            relation = relations.get(row.relation)
            if relation and relation.arity != len(row.entities):
                self._fault(row, f"has {len(row.entities)} entities but {relation.name} has {relation.arity}")
            if row.wrong_part and (row.label != Label.FALSE or row.wrong_part not in wrong_parts(len(row.entities))):
                self._fault(
                    row, f"has the label {row.label} and the wrong part {row.wrong_part!r}; use a slot or relation"
                )
        tasks = [] if self.faults else self._find_or_create_tasks(rows, relations)
        current = Judgment.objects.current().filter(task__round=self.round)
        columns = current.values_list("annotator__code", "task", "pk")
        stored = {(code, task): pk for code, task, pk in columns.iterator()}
        accepted = {} if self.faults else self._without_duplicates(rows, tasks, stored)
        if not self.faults:
            self._record_cells(rows, tasks, relations)
        if not self.faults:
            self._store_judgments(accepted, stored)
        return len(accepted)

    def _fault(self, row: ImportedRow, reason: str) -> None:
        self.faults.append(BadEntry(f"line {row.line}", reason))

    def _resolve_relation(self, row: ImportedRow) -> Relation | None:
        """Return the relation of the row, or None after recording a fault. Spaces in the name become "_"."""
        name = "_".join(row.relation.split())
        try:
            return resolve_relation(name, scopes=self._scopes, among=self._relations)
        except UnresolvedName as refusal:
            if refusal.is_ambiguous:
                self._fault(row, f"{refusal} Or import with --set.")
            elif not self.create:
                self._fault(row, f"{refusal} Or import with --create.")
            elif RELATION_NAME.fullmatch(name) and not CONTROL.search(name) and not SLOT.search(name):
                return self._create_relation(name, row.relation, len(row.entities))
            else:
                rule = "up to 100 characters without / and without slots such as <ENT0>"
                self._fault(row, f"{refusal} This name is not valid for a new relation; use {rule}")
        return None

    def _create_relation(self, name: str, written: str, arity: int) -> Relation:
        set_name = self.round.name
        if RelationSet.objects.exclude(project=self.round.project).filter(name=set_name).exists():
            set_name = f"{self.round.project.slug}-{set_name}"[:100]
        relation_set = editable_set(set_name, project=self.round.project)
        slots = ", ".join(f"<ENT{slot}>" for slot in range(arity))
        new = {"arity": arity, "statement": f"{written}: {slots}", "initial_prompts": [], "seed_tuples": []}
        relation, is_new = Relation.objects.get_or_create(relation_set=relation_set, name=name, defaults=new)
        if is_new:
            record_relations(relation_set, [relation], self.by)
        return relation

    def _find_or_create_tasks(self, rows: Sequence[ImportedRow], relations: dict[str, Relation]) -> list[int]:
        forms = {name: canonicalizer(relation) for name, relation in relations.items()}
        keys = []
        for row in rows:  # identify tuples by the same keys as stored harvests
            canonical = forms[row.relation]
            entities = row.entities if canonical is None else [canonical(entity.casefold()) for entity in row.entities]
            keys.append((relations[row.relation].pk, tuple_key(entities)))
        tasks = self._existing_tasks(relations)
        missing = {key: row for key, row in zip(reversed(keys), reversed(rows), strict=True) if key not in tasks}
        if missing and self.create:
            self._create_tasks(dict(reversed(missing.items())), relations)
            tasks = self._existing_tasks(relations)
        elif missing:
            for row in reversed(missing.values()):
                self._fault(row, f"{_tuple_text(row.entities)} is not in the round; import with --create to add it")
            return []
        return [tasks[key] for key in keys]

    def _existing_tasks(self, relations: dict[str, Relation]) -> dict[TupleKey, int]:
        existing = self.round.tasks.without_gold().filter(knowledge_tuple__relation__in=relations.values())
        columns = existing.values_list("knowledge_tuple__relation", "knowledge_tuple__key", "pk")
        return {(relation, key): pk for relation, key, pk in columns.iterator()}

    def _create_tasks(self, missing: dict[TupleKey, ImportedRow], relations: dict[str, Relation]) -> None:
        new = (
            KnowledgeTuple(relation_id=relation, key=key, entities=key.split(KEY_SEPARATOR))
            for relation, key in missing
        )
        KnowledgeTuple.objects.bulk_create(new, batch_size=ROWS_AT_ONCE, ignore_conflicts=True)
        existing = KnowledgeTuple.objects.filter(relation__in={relation for relation, _ in missing})
        columns = existing.values_list("relation", "key", "pk")
        tuples = {(relation, key): pk for relation, key, pk in columns.iterator()}
        statements = (
            (position, key, row, freeze_statement(relations[row.relation].statement, row.entities))
            for position, (key, row) in enumerate(missing.items(), start=self.round.n_tasks)
        )
        k = self.round.judgments_per_task
        values = (
            (self.round.pk, tuples[key], statement.text, statement.spans, row.entities, position, k)
            for position, key, row, statement in statements
        )
        columns = ("round", "knowledge_tuple", "statement", "spans", "entities", "position", "n_wanted")
        insert_rows(JudgmentTask, columns, values)
        self.round.n_tasks += len(missing)
        self.round.save(update_fields=["n_tasks"])

    def _without_duplicates(
        self, rows: Sequence[ImportedRow], tasks: Sequence[int], stored: Container[JudgmentKey]
    ) -> dict[JudgmentKey, ImportedRow]:
        """Return the row to store for each judgment, after applying the policy for duplicates."""
        codes = {}  # pseudonyms by name; the same in every import into the round
        for name in {row.annotator for row in rows}:
            codes[name] = f"i-{hmac.new(self.round.join_token.encode(), name.encode(), 'sha256').hexdigest()[:12]}"
        accepted: dict[JudgmentKey, ImportedRow] = {}
        for row, task in zip(rows, tasks, strict=True):
            key = (codes[row.annotator], task)
            earlier = accepted.get(key)
            if earlier is None and key not in stored:
                accepted[key] = row
                continue
            if earlier and earlier.label == row.label and (earlier.model, earlier.setting) != (row.model, row.setting):
                continue  # one judgment that counts for several cells
            self.n_duplicates += 1
            if self.duplicates == "error":
                where = f"in line {earlier.line}" if earlier else "in this round"
                judged = f"{row.annotator} already judged {_tuple_text(row.entities)} {where}"
                self._fault(row, f"{judged}; import with --duplicates first or last")
            elif self.duplicates == "last":
                accepted[key] = row
        return accepted

    def _store_judgments(self, accepted: dict[JudgmentKey, ImportedRow], stored: Mapping[JudgmentKey, UUID]) -> None:
        codes = sorted({code for code, _ in accepted})
        new = (Annotator(round=self.round, code=code) for code in codes)
        Annotator.objects.bulk_create(new, ignore_conflicts=True)
        annotators = dict(self.round.annotators.values_list("code", "pk"))
        now = timezone.now()
        uuids = {key: uuid4() for key in accepted}
        # New judgments supersede stored ones. The foreign key is checked at commit.
        superseded = (
            Judgment(client_uuid=stored[key], superseded_by_id=uuid) for key, uuid in uuids.items() if key in stored
        )
        Judgment.objects.bulk_update(superseded, ["superseded_by"], batch_size=ROWS_AT_ONCE)
        insert_rows(
            Judgment,
            ("client_uuid", "task", "annotator", "label", "seconds", "judged_at", "comment", "wrong_part"),
            (
                (
                    *(uuids[code, task], task, annotators[code], row.label, row.seconds, row.judged_at or now),
                    *(row.comment, row.wrong_part),
                )
                for (code, task), row in accepted.items()
            ),
        )
        if any(row.wrong_part for row in accepted.values()):
            self.round.asks_wrong_part = True  # adds the column to exports and the table to reports
            self.round.save(update_fields=["asks_wrong_part"])

    def _record_cells(self, rows: Sequence[ImportedRow], tasks: Sequence[int], relations: dict[str, Relation]) -> None:
        """Store a draw of each task in every cell (LM and setting) that its rows name.

        A task without any draw is assigned to a cell without LM and setting.
        """
        drawn = defaultdict(set)
        for task, stratum in Draw.objects.filter(stratum__round=self.round).values_list("task", "stratum").iterator():
            drawn[task].add(stratum)
        strata: dict[tuple[int, str, str], list[Stratum]] = {}
        draws = []
        # Rows that name a cell come first, so that their tasks do not get an unnamed cell.
        for row, task in sorted(zip(rows, tasks, strict=True), key=lambda pair: not (pair[0].model or pair[0].setting)):
            if not (row.model or row.setting or not drawn[task]):
                continue
            cell = (relations[row.relation].pk, row.model, row.setting)
            if cell not in strata:
                strata[cell] = self._strata(row, relations[row.relation])
            if strata[cell] and drawn[task].isdisjoint(stratum.pk for stratum in strata[cell]):
                stratum = strata[cell][0]
                drawn[task].add(stratum.pk)
                draws.append((stratum.pk, task))
                if stratum.job_id:
                    self._fault(
                        row,
                        f"{_tuple_text(row.entities)} was not drawn for {stratum.job}; leave model and setting empty",
                    )
        insert_rows(Draw, ("stratum", "task"), draws)
        self.has_new_draws = bool(draws)
        # Remove tasks that now have a named cell from the unnamed cells of earlier imports.
        unnamed = self.round.strata.filter(job=None, language_model=None, setting="")
        named_draws = Draw.objects.filter(task=OuterRef("task")).exclude(stratum__in=unnamed)
        Draw.objects.filter(Exists(named_draws), stratum__in=unnamed).delete()
        self.deleted_strata = list(unnamed.filter(draws=None))
        unnamed.filter(draws=None).delete()
        count_draws(self.round)

    def _strata(self, row: ImportedRow, relation: Relation) -> list[Stratum]:
        """Return the strata of the row's cell. Create a stratum if there is none. Return [] if the LM is unknown."""
        language_model = None
        if row.model:
            existing = LanguageModel.objects.filter(name=row.model)
            language_model = name_language_model(row.model) if self.create else existing.first()
            if language_model is None:
                self._fault(row, f"unknown LM {row.model!r}; import with --create to add it")
                return []
        cell = {"relation": relation, "language_model": language_model, "setting": row.setting}
        strata = list(self.round.strata.filter(**cell).select_related("job__relation", "job__language_model"))
        return strata or [Stratum.objects.create(round=self.round, **cell, sample_size=0)]


def _tuple_text(entities: Sequence[str]) -> str:
    return f"({', '.join(entities)})"
