"""Measurement of prompt-learning methods: train a method, then rank the correct objects. Needs no database."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from time import perf_counter
from typing import Any, NamedTuple

from kgharvest.contrib.probing.probes.facts import PARTS, NotProbed, ProbeRelation
from kgharvest.contrib.probing.prompt_learning.learners import Learned, ProbeTask
from kgharvest.contrib.probing.prompt_learning.registry import METHODS
from kgharvest.engine.language_models.base import Tick
from kgharvest.engine.language_models.pretrained import PretrainedLM
from kgharvest.engine.probing import Fact, ProbeScores, probe, reasons_text, usable_facts
from kgharvest.engine.prompts.prompt_set import PromptSet, PromptSetAnswerer
from kgharvest.engine.prompts.template import parse_prompts

MethodRunner = Callable[[PretrainedLM, str, Sequence[ProbeTask]], list[Learned]]  # (lm, method, tasks)


class Cell(NamedTuple):
    """Unit of measurement: a method on one relation, or a joint method on all. is_control: on random weights."""

    method: str
    tasks: Sequence[ProbeTask]
    is_control: bool

    @property
    def name(self) -> str:
        relations = self.tasks[0].relation if len(self.tasks) == 1 else f"{len(self.tasks)} relations"
        return f"{self.method}, {relations}{', random weights' if self.is_control else ''}"


class CostMeter:
    """Cost of an LM's work since the meter was created."""

    def __init__(self, lm: PretrainedLM) -> None:
        self._lm, self._start, self._before = lm, perf_counter(), lm.n_read["sequences"]

    def read(self, n_tasks: int = 1) -> dict[str, Any]:
        """Return the cost per task as columns of a record. forwards: sequences read by the LM."""
        forwards, seconds = self._lm.n_read["sequences"] - self._before, perf_counter() - self._start
        return {"forwards": forwards // n_tasks, "seconds": seconds / n_tasks}


@dataclass(frozen=True)
class Measurement:
    """Result of a method on one relation. test, dev: ranks of the correct objects. cost: cost of learning."""

    cell: Cell
    task: ProbeTask
    learned: Learned
    test: ProbeScores
    dev: ProbeScores
    cost: Mapping[str, Any]

    @property
    def prompt_set(self) -> PromptSet | None:
        """The learned or weighted prompts, or None for a method without prompts."""
        answerer = self.learned.answerer
        return answerer.prompt_set if isinstance(answerer, PromptSetAnswerer) else None

    def record(self) -> dict[str, Any]:
        """Return the columns of a ProbeRecord, with the relation's name instead of the relation."""
        prompts = self.prompt_set
        return {
            "relation": self.task.relation,
            "method": self.cell.method,
            "is_control": self.cell.is_control,
            **{f"n_{part}": len(getattr(self.task, part).facts) for part in PARTS},
            "ranks": self.test.ranks.tolist(),
            "left_out": {part: getattr(self.task, part).left_out for part in PARTS},
            "p1": self.test.precision_at(1),
            "p10": self.test.precision_at(10),
            "mrr": self.test.mrr,
            "nll": self.test.nll,
            "dev_nll": self.dev.nll,
            "n_prompts": len(self.learned.weights),
            "effective_prompts": round(self.learned.effective_prompts, 3) if self.learned.weights else None,
            "n_parameters": self.learned.n_parameters,
            **self.cost,
            **({"combine": prompts.combine, "temperature": prompts.temperature} if prompts else {}),
        }


def probe_task(lm: PretrainedLM, relation: ProbeRelation, vocabulary: Sequence[int] | None = None) -> ProbeTask:
    """Return the encoded prompts and the usable facts of a relation.

    Raises NotProbed if a part has no usable fact, or BadPrompt for a prompt that the LM cannot encode.
    """
    templates = zip(relation.prompts, parse_prompts(relation.prompts, 2), strict=True)
    encoded = {text: lm.encode_prompt(template) for text, template in templates}
    facts = {part: usable_facts(lm, [Fact(*pair) for pair in relation.facts[part]], vocabulary) for part in PARTS}
    for part, later in combinations(PARTS, 2):
        facts[part] = facts[part].without(facts[later], f"also a fact of {later}")
    for part, usable in facts.items():
        if not usable.facts:
            reasons = reasons_text(usable.left_out) or "it is empty"
            raise NotProbed(f"{relation.name}: no usable {part} fact ({reasons}). Add other facts.")
    given = tuple(encoded.values())
    origins = {origin: tuple(encoded[text] for text in texts) for origin, texts in relation.origins.items()}
    return ProbeTask(relation.name, given[0], given, **facts, origins=origins)


def cells_of(methods: Iterable[str], tasks: Sequence[ProbeTask], with_control: bool) -> Iterator[Cell]:
    for method in methods:
        for group in [tasks] if METHODS[method].is_joint else [[task] for task in tasks]:
            yield Cell(method, group, is_control=False)
            if with_control:
                yield Cell(method, group, is_control=True)


def measure(
    lm: PretrainedLM,
    cell: Cell,
    run_method: MethodRunner,
    vocabulary: Sequence[int] | None = None,
    tick: Tick = lambda: None,
) -> list[Measurement]:
    """Measure the cell's method on each of its tasks. The total cost is divided equally among the tasks.

    tick: called before each LM computation. vocabulary: tokens among which ranks are counted, or None for all.
    """
    with lm.ticking(tick):
        meter = CostMeter(lm)
        learned = run_method(lm, cell.method, cell.tasks)
        cost = meter.read(len(cell.tasks))
        return [
            Measurement(
                cell,
                task,
                result,
                probe(result.answerer, task.test, vocabulary),
                probe(result.answerer, task.dev),
                cost,
            )
            for task, result in zip(cell.tasks, learned, strict=True)
        ]
