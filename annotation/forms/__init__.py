"""Forms, by who fills them in."""

from annotation.forms.judging import AnswerForm
from annotation.forms.rounds import DEFAULT_INSTRUCTIONS, RoundForm

__all__ = ["DEFAULT_INSTRUCTIONS", "AnswerForm", "RoundForm"]
