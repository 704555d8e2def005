"""Forms, by who fills them in."""

from annotation.forms.judging import AnswerForm
from annotation.forms.quality import AdjudicationForm, ExclusionForm, LimitsForm
from annotation.forms.rounds import RoundForm
from annotation.instructions import DEFAULT_INSTRUCTIONS

__all__ = [
    "DEFAULT_INSTRUCTIONS",
    "AdjudicationForm",
    "AnswerForm",
    "ExclusionForm",
    "LimitsForm",
    "RoundForm",
]
