"""The questions of the Human Evaluation Datasheet 3.0 (Belz and Thomson 2025): numbers, and names of the form's fields.

What each asks is in words of our own. The sheet has 62 questions for a study of one criterion. The form is at
nlp-heds.github.io; what it saves and reads is JSON by these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple


class Kind(Enum):
    """TEXT: free. ONE: one of several options, with a text where an option wants one. MANY: all options that apply."""

    TEXT = auto()
    ONE = auto()
    MANY = auto()


class HedsQuestion(NamedTuple):
    """field: its name in the form, after that of its section."""

    number: str
    label: str
    field: str
    kind: Kind = Kind.TEXT


SECTIONS = {
    "1": "Reference and resources",
    "2": "Evaluated systems",
    "3": "Sample, evaluators and design",
    "4": "The criterion: whether a statement is true",
    "5": "Ethics",
}

REFERENCE = "heds-paper_and_resources-"
CONTACT = REFERENCE + "names_and_affiliations-"
SYSTEM = "heds-system-"
SAMPLE = "heds-sample_evaluators_design-sample-"
EVALUATORS = "heds-sample_evaluators_design-evaluators-"
DESIGN = "heds-sample_evaluators_design-experimental_design-"
CRITERION = "heds-criteria-criterion"
PROPERTIES = CRITERION + "-criteria-"
MODE = CRITERION + "-evaluation_mode-"
ELICITATION = CRITERION + "-response_elicitation-"
ETHICS = "heds-ethics-"

QUESTIONS = (
    HedsQuestion("1.1.1", "Where the study is reported", REFERENCE + "paper-link", Kind.ONE),
    HedsQuestion("1.1.2", "Which study this is", REFERENCE + "paper-experiment_identification"),
    HedsQuestion("1.2", "Where its resources are", REFERENCE + "resources-links", Kind.ONE),
    HedsQuestion("1.3.1.1", "Who filled this in", CONTACT + "person_completing_this_sheet-name"),
    HedsQuestion("1.3.1.2", "Their affiliation", CONTACT + "person_completing_this_sheet-affiliation"),
    HedsQuestion("1.3.1.3", "Their mail address", CONTACT + "person_completing_this_sheet-email"),
    HedsQuestion("1.3.2.1", "Contact author", CONTACT + "contact_author-name"),
    HedsQuestion("1.3.2.2", "Affiliation of the contact author", CONTACT + "contact_author-affiliation"),
    HedsQuestion("1.3.2.3", "Mail address of the contact author", CONTACT + "contact_author-email"),
    HedsQuestion("2.1", "What systems take in", SYSTEM + "input_types", Kind.MANY),
    HedsQuestion("2.2", "What systems put out", SYSTEM + "output_types", Kind.MANY),
    HedsQuestion("2.3", "The systems' task", SYSTEM + "tasks", Kind.MANY),
    HedsQuestion("2.4", "Languages of the input", SYSTEM + "input_languages", Kind.MANY),
    HedsQuestion("2.5", "Languages of the output", SYSTEM + "output_languages", Kind.MANY),
    HedsQuestion("3.1.1", "Outputs judged per system", SAMPLE + "number_of_system_outputs"),
    HedsQuestion("3.1.2", "How they were chosen", SAMPLE + "system_output_selection", Kind.ONE),
    HedsQuestion("3.1.3.1", "Method that gave the size of the sample", SAMPLE + "statistical_power-method"),
    HedsQuestion("3.1.3.2", "Power or precision of the sample", SAMPLE + "statistical_power-value"),
    HedsQuestion("3.1.3.3", "Where its code is", SAMPLE + "statistical_power-script"),
    HedsQuestion("3.2.1", "Number of people whose judgments count", EVALUATORS + "number_of_evaluators"),
    HedsQuestion("3.2.2.1", "Whether they were experts", EVALUATORS + "evaluators-expertise", Kind.ONE),
    HedsQuestion("3.2.2.2", "Whether they were paid", EVALUATORS + "evaluators-payment", Kind.ONE),
    HedsQuestion("3.2.2.3", "Whether researchers knew them", EVALUATORS + "evaluators-known_to_authors", Kind.ONE),
    HedsQuestion("3.2.2.4", "Whether researchers were among them", EVALUATORS + "evaluators-are_authors", Kind.ONE),
    HedsQuestion("3.2.3", "Recruitment", EVALUATORS + "recruitment_method"),
    HedsQuestion("3.2.4", "Training and practice", EVALUATORS + "training_practice"),
    HedsQuestion("3.2.5", "What else is known of them", EVALUATORS + "characteristics"),
    HedsQuestion("3.3.1", "Preregistration", DESIGN + "preregistered", Kind.ONE),
    HedsQuestion("3.3.2", "Medium of the judgments", DESIGN + "collection_method"),
    HedsQuestion("3.3.3.1", "Kinds of quality assurance", DESIGN + "quality_assurance-method", Kind.MANY),
    HedsQuestion("3.3.3.2", "How quality was assured", DESIGN + "quality_assurance-description"),
    HedsQuestion("3.3.4.1", "Where the interface can be seen", DESIGN + "what_evaluators_see-link"),
    HedsQuestion("3.3.4.2", "What people saw while judging", DESIGN + "what_evaluators_see-description"),
    HedsQuestion("3.3.5", "When and how fast people had to judge", DESIGN + "evaluator_freedom", Kind.MANY),
    HedsQuestion("3.3.6", "Questions and feedback", DESIGN + "evaluators_can_ask_questions", Kind.MANY),
    HedsQuestion("3.3.7", "Where people judged", DESIGN + "experimental_conditions", Kind.ONE),
    HedsQuestion("3.3.8", "How conditions differed", DESIGN + "evaluators_place_of_choosing"),
    HedsQuestion("4.1.1", "Kind of quality", PROPERTIES + "quality_type", Kind.ONE),
    HedsQuestion("4.1.2", "Aspect of the output", PROPERTIES + "output_aspect", Kind.ONE),
    HedsQuestion("4.1.3", "Frame of reference", PROPERTIES + "self_vs_external_frame", Kind.ONE),
    HedsQuestion("4.2.1", "Objective or subjective", MODE + "objective_or_subjective", Kind.ONE),
    HedsQuestion("4.2.2", "Absolute or relative", MODE + "absolute_or_relative", Kind.ONE),
    HedsQuestion("4.2.3", "Intrinsic or extrinsic", MODE + "intrinsic_or_extrinsic", Kind.ONE),
    HedsQuestion("4.3.1.1", "The criterion's name for people", ELICITATION + "qc_name-participant_criterion_name"),
    HedsQuestion("4.3.1.2", "Its standard name", ELICITATION + "qc_name-mapped_criterion_name"),
    # The form spells it so.
    HedsQuestion("4.3.2", "Its definition for people", ELICITATION + "participant_criterion_definiiton"),
    HedsQuestion("4.3.3", "Number of values", ELICITATION + "size_of_scale"),
    HedsQuestion("4.3.4", "The values", ELICITATION + "list_or_range"),
    HedsQuestion("4.3.5", "How values are offered", ELICITATION + "scale_presented_as", Kind.ONE),
    HedsQuestion("4.3.6", "The task, if there are no values", ELICITATION + "task_description"),
    HedsQuestion("4.3.7", "The question as people read it", ELICITATION + "verbatim_question"),
    HedsQuestion("4.3.8", "Form of the answer", ELICITATION + "form_of_response", Kind.ONE),
    HedsQuestion("4.3.9", "From answers to results", ELICITATION + "response_aggregation"),
    HedsQuestion("4.3.10", "Sizes and tests of differences", ELICITATION + "effect_size_method"),
    HedsQuestion("4.3.11.1", "Agreement between people: measure", ELICITATION + "inter_annotator-agreement"),
    HedsQuestion("4.3.11.2", "Agreement between people: value", ELICITATION + "inter_annotator-agreement_score"),
    HedsQuestion(
        "4.3.12.1", "Agreement with oneself: measure", ELICITATION + "intra_annotator-intra_annotator_agreement"
    ),
    HedsQuestion(
        "4.3.12.2", "Agreement with oneself: value", ELICITATION + "intra_annotator-intra_annotator_agreement_score"
    ),
    HedsQuestion("5.1", "Ethics board", ETHICS + "review_body"),
    HedsQuestion("5.2", "Personal data", ETHICS + "personal_data", Kind.ONE),
    HedsQuestion("5.3", "Special categories of data", ETHICS + "special_category_data", Kind.ONE),
    HedsQuestion("5.4", "Impact assessment", ETHICS + "impact_assessments"),
)
BY_NUMBER: Mapping[str, HedsQuestion] = {question.number: question for question in QUESTIONS}
