"""What happened in a study, in sentences that several documents share. Pure; numbers are the report's."""

from __future__ import annotations

from collections.abc import Iterator

from annotation.judging.models import Label
from evaluation.paper.datasheets.facts import LEAST_PEOPLE, StudyFacts, people
from evaluation.paper.statements.questions import Question, missing
from evaluation.rendering.documents import lm_and_setting
from evaluation.reports.sections.conduct import design_table, flow_in_words
from kgharvest.pages.number_format import counted, seconds, share, share_with_interval

LABELS = tuple(label.label for label in Label)  # as buttons show them
MUST_SAY = "You must say"
UNIFORM, BY_RANK, BY_JUDGE = "simple", "ranks", "judge"  # how statements were drawn


def must_say(what: str) -> str:
    """what: the label of a question, which may end as one."""
    return f"{MUST_SAY}: {what}" if what.endswith("?") else f"{MUST_SAY}: {what}."


def in_design(facts: StudyFacts, what: str) -> str:
    """Return how the report's table of the design says something, such as "gold"; empty if it does not."""
    return next((row.values[1] for row in design_table(facts.document).rows if row.values[0] == what), "")


# -- sample ------------------------------------------------------------------------------------------------------------


def systems(facts: StudyFacts) -> str:
    """Return which LMs and settings are evaluated."""
    sides = [lm_and_setting(total) for total in facts.document["totals"]]
    n_relations = len({cell["relation"] for cell in facts.document["cells"]})
    n_sides = counted(len(sides), "LM and setting", "LMs and settings")
    return f"{n_sides} ({'; '.join(sides)}) on {counted(n_relations, 'relation')}"


def origin(facts: StudyFacts) -> str:
    """Return how the tuples came here."""
    origins = {cell.get("origin") for cell in facts.conduct["cells"]}
    if origins == {"imported"}:
        return "Tuples were imported from files of outside systems"
    return f"Tuples were harvested from LMs by prompts{', or imported' if 'imported' in origins else ''}"


def revisions(facts: StudyFacts) -> str:
    cells = facts.conduct["cells"]
    known = sorted({(cell["model"], cell["revision"]) for cell in cells if cell.get("model") and cell.get("revision")})
    named = ", ".join(f"{model} at {revision}" for model, revision in known)
    return f"Revisions: {named}." if named else "No revision is known of the LMs or systems."


def how_drawn(facts: StudyFacts) -> str:
    """Return UNIFORM, BY_RANK or BY_JUDGE."""
    strata = [stratum for cell in facts.document["cells"] for stratum in cell["strata"]]
    if any(stratum.get("judge_label") for stratum in strata):
        return BY_JUDGE
    return BY_RANK if any(len(cell["strata"]) > 1 for cell in facts.document["cells"]) else UNIFORM


HOW_DRAWN = {
    UNIFORM: "In each cell (a relation, an LM and a setting) statements are a simple random sample of its harvest.",
    BY_RANK: "Each cell (a relation, an LM and a setting) was cut into strata by rank, and each stratum was sampled at "
    "random; estimates weigh a stratum by the tuples that it holds.",
    BY_JUDGE: "Each cell (a relation, an LM and a setting) was cut into strata by what an LM judge labelled alike, and "
    "each stratum was sampled at random; estimates weigh a stratum by the tuples that it holds.",
}


def judged_systems(facts: StudyFacts) -> str:
    return f"{systems(facts)}, judged {'by people' if facts.is_of_people else 'in a simulation'}"


def sample(facts: StudyFacts) -> str:
    return " ".join([*flow_in_words(facts.document), HOW_DRAWN[how_drawn(facts)]])


def per_system(facts: StudyFacts) -> str:
    drawn: dict[str, int] = {}
    for cell in facts.conduct["cells"]:
        name = lm_and_setting(cell)
        drawn[name] = drawn.get(name, 0) + cell["drawn"]
    counts = "; ".join(f"{name}: {n:,}" for name, n in drawn.items())
    return f"{counts}. A statement that several drew counts for each and is judged once."


# -- judging -----------------------------------------------------------------------------------------------------------


def judging(facts: StudyFacts) -> str:
    design = facts.design
    if facts.is_imported:
        each = "Judgments were imported; statements have as many as there were."
    elif design["third_only_if_split"]:
        each = "Two people judged each statement, and a third one only those on which the two differed."
    else:
        each = (
            f"Each statement was to be judged by {counted(design['judgments_per_task'], 'person', 'different people')}."
        )
    who = "" if facts.is_of_people else " The judgments are simulated, not people: they say nothing about what is true."
    labels = f"{', '.join(LABELS[:-1])} or {LABELS[-1]}"
    shown = "" if facts.is_imported else " LM, setting, score and others' answers were not shown."
    return f"{each} Answers are {labels}.{shown}{who}"


def verdict_rule(facts: StudyFacts) -> str:
    quorum = facts.design["quorum"]
    agreeing = f", and at least {quorum} of them," if quorum > 1 else ""
    return (
        f"A statement is accepted if more than half of its judgments{agreeing} are True, rejected if more than half"
        f"{agreeing} are False, and undecided otherwise."
    )


def completeness(facts: StudyFacts) -> str:
    document = facts.document
    n_open = document["n_tasks"] - document["n_complete"]
    if not n_open:
        return f"All {counted(document['n_tasks'], 'statement')} have their judgments."
    return (
        f"{n_open:,} of {counted(document['n_tasks'], 'statement')} lack judgments; they count with the verdicts that "
        "their labels make likely, and the intervals are wider for it."
    )


def gold(facts: StudyFacts) -> str:
    said = in_design(facts, "gold")
    if said == "none":
        return "No statements with known answers were mixed in."
    return f"Statements with known answers were mixed in, which look like the others and count nowhere: {said}."


def training(facts: StudyFacts) -> str:
    if not facts.conduct["training"]["n_statements"]:
        return "There was no training."
    n = counted(facts.conduct["training"]["n_statements"], "statement")
    finished = people(facts.conduct["training"]["n_finished"])
    return (
        f"Before the first statement came a training of {n} with known answers, each with the reason for the right "
        f"answer; {finished} finished it. Nobody was turned away by it."
    )


def limits(facts: StudyFacts) -> str:
    sentence = facts.conduct["limits"]["sentence"]
    return "No limit paused annotators." if sentence == "none" else f"The round pauses an annotator at: {sentence}."


def exclusions(facts: StudyFacts) -> str:
    in_force = [exclusion for exclusion in facts.conduct["exclusions"] if exclusion["reinstated_at"] is None]
    if not in_force:
        return "Nobody was excluded."
    n = facts.conduct["judgments"]["n_excluded"]
    were = "annotator was" if len(in_force) == 1 else "annotators were"
    return f"{len(in_force):,} {were} excluded: {counted(n, 'judgment')} of theirs count no more."


def exclusion_reasons(facts: StudyFacts) -> Iterator[str]:
    for exclusion in facts.conduct["exclusions"]:
        back = ", and was reinstated" if exclusion["reinstated_at"] else ""
        judgments = counted(exclusion["n_judgments"], "judgment")
        yield f"{exclusion['annotator']} ({judgments}){back}: {exclusion['reason'].rstrip('.')}."


def adjudication(facts: StudyFacts) -> str:
    said = in_design(facts, "adjudication")
    if said == "none":
        return "No expert adjudicated."
    return f"Experts adjudicated ({said}); their word is in no verdict but of the rule that names it."


STOPPING = {
    "manual": "No rule was set for when to stop: somebody closes the round.",
    "complete": "The round was set to close when every statement had its judgments.",
    "date": "The round was set to close at a date.",
    "narrow": "The round was set to close once the accuracy of each LM and setting was known well enough, by the "
    "interval that holds at every look.",
}


def stopping(facts: StudyFacts) -> str:
    closed_at = facts.conduct["dates"]["closed_at"]
    closed = f"It was closed on {closed_at[:10]}." if closed_at else "It was not closed when the report was made."
    return f"{STOPPING[facts.design['closes_when']]} {closed}"


def dates(facts: StudyFacts) -> str:
    known = facts.conduct["dates"]
    first, last = known["first_judgment_at"], known["last_judgment_at"]
    if not first or not last:
        return "Nobody has judged yet."
    return f"Judgments were given from {first[:10]} to {last[:10]} (UTC)."


def pace(facts: StudyFacts) -> str:
    medians = [a["median_seconds"] for a in facts.document["annotators"] if a.get("median_seconds") is not None]
    if len(medians) < LEAST_PEOPLE:
        return f"Time per judgment is not told, as it was measured of {people(len(medians))}."
    return (
        f"The median time per judgment lies between {seconds(min(medians))} and {seconds(max(medians))} over the "
        f"{len(medians):,} people of whom it was measured."
    )


def preregistration(facts: StudyFacts) -> str:
    """Return what was frozen before the first judgment; empty if nothing was."""
    registered = facts.document.get("preregistration")
    if not registered:
        return ""
    n = len(registered["deviations"])
    return (
        f"The design and the analysis were frozen as version {registered['version']} of a preregistration on "
        f"{registered['frozen_at'][:10]} (SHA-256 {registered['sha256']}), before the first judgment; the report lists "
        f"{counted(n, 'deviation')} from it."
    )


def unsaid(facts: StudyFacts) -> list[Question]:
    """Return the questions that people must still answer."""
    recorded = {"preregistration"} if preregistration(facts) else set()
    return [question for question in missing(facts.answers) if question.key not in recorded]


# -- people ------------------------------------------------------------------------------------------------------------


def n_evaluators(facts: StudyFacts) -> int:
    return facts.conduct["people"]["n_counted"]


def how_they_came(facts: StudyFacts) -> str:
    """Return how people came into the round, as far as the records tell."""
    came, invited = facts.recruited, facts.conduct["people"]["n_invited"]
    if facts.is_imported:
        return "Judgments were imported; the records do not tell how people came to judge."
    parts = []
    if invited:
        parts.append(f"{invited:,} links for one person each were made; {people(came.n_by_invite)} judged by one")
    if facts.design["takes_guests"]:
        parts.append("a join link worked without an account")
    parts.append(f"{people(came.n_accounts)} judged with an account, {people(came.n_guests)} without")
    return f"People joined by links: {'; '.join(parts)}."


def consent(facts: StudyFacts) -> str:
    if facts.is_imported:
        return "Judgments were imported; the records do not tell what people agreed to."
    if not facts.consent:
        return "The round asked nobody to agree to a text before they joined."
    return (
        f"Before they joined, people had to agree to a text (SHA-256 {facts.consent_sha256}); of those who judged, "
        f"{people(facts.recruited.n_agreed)} did, and the time is recorded."
    )


def platform(facts: StudyFacts) -> str:
    if facts.is_imported:
        return "Judgments were imported; the records do not tell from where."
    if not facts.is_of_people:
        return f"kgharvest {facts.code_version}, which simulated the judgments."
    return f"kgharvest {facts.code_version}, in a web browser, on a computer or phone of their own."


# -- estimates ---------------------------------------------------------------------------------------------------------


def estimator(facts: StudyFacts) -> str:
    cells = facts.document["cells"]
    strata = "" if how_drawn(facts) == UNIFORM else ", in which strata weigh as many tuples as they hold"
    exact = "exact for that finite population (Blaker's, of the hypergeometric distribution)"
    if any(cell.get("population") is None for cell in cells):
        exact = "exact (Blaker's): of the hypergeometric distribution, binomial where the population is not known"
    return (
        f"Accuracy is the share of accepted tuples in the harvest that a cell's statements were drawn from{strata}; "
        f"95 % intervals are {exact}. Averages of an LM and setting weigh its relations the same."
    )


def results(facts: StudyFacts) -> Iterator[str]:
    for total in facts.document["totals"]:
        rate = share_with_interval(
            total["macro_accuracy"], total["macro_accuracy_these_low"], total["macro_accuracy_these_high"]
        )
        n = total["n_relations"]
        alone = "this relation" if n == 1 else f"these {n} relations"
        n_statements = counted(total["n"], "statement")
        yield f"{lm_and_setting(total)}: {rate} for {alone} alone, {n_statements} with a verdict"


def agreement(facts: StudyFacts) -> str:
    alpha = facts.document["alpha"]
    if alpha["value"] is None:
        return f"Krippendorff's alpha is not defined: {alpha['reason']}"
    value = share_with_interval(alpha["value"], alpha["low"], alpha["high"])
    first_two = ", of the first two judgments of each" if facts.design["third_only_if_split"] else ""
    return (
        f"Krippendorff's alpha (nominal) is {value} over {counted(alpha['n_units'], 'statement')}{first_two}; "
        f"{share(facts.document['percent_agreement'])} of pairs of judgments agree."
    )


def comparisons(facts: StudyFacts) -> Iterator[str]:
    for comparison in facts.document["comparisons"]:
        yield comparison["sentence"]


def precision(facts: StudyFacts) -> Iterator[str]:
    """Yield how well accuracies are known, and what it takes to know more."""
    for plan in (facts.document.get("planner") or {}).get("totals", []):
        if plan.get("sentence"):
            yield plan["sentence"]


def judge(facts: StudyFacts) -> str:
    """Return the part that LMs had in the sample and the estimates; the people's verdicts never rest on them."""
    if not facts.judges:
        return "No LM judged."
    runs = "; ".join(
        f"{run.name}: {run.kind}, {run.model}{f' at {run.revision}' if run.revision else ''}, temperature "
        f"{run.temperature:g}, {counted(run.repeats, 'repeat')}, prompt SHA-256 {run.prompt_sha256}"
        for run in facts.judges
    )
    part = ["chose the strata of the sample"] * (how_drawn(facts) == BY_JUDGE)
    part += ["has a part in estimates that the report names “with a judge”"] * bool(facts.document.get("judge"))
    what = " and ".join(part) or "was only compared with people"
    return f"An LM judge {what} ({runs}). None of its answers is in a verdict, and people saw none."


def notes(facts: StudyFacts) -> Iterator[str]:
    yield from facts.document["notes"]


def answer(facts: StudyFacts, key: str) -> str:
    return facts.answers.get(key, "")


def sensitive(facts: StudyFacts) -> str:
    kept = "could be drawn" if facts.design["include_sensitive"] else "were left out of the sample"
    return (
        f"Tuples with a word of the installation's list of sensitive words {kept}; "
        f"{counted(facts.n_sensitive, 'statement')} of the round have one."
    )


def data_of_people(facts: StudyFacts) -> str:
    if facts.is_imported:
        return "Who judged is not known to the installation; the files have only a code of the round, labels and times."
    return (
        "Who judged is known to the installation by an account or by the name a guest chose; the files have only a "
        "code of the round, labels and times. Comments, names and addresses are in no file."
    )
