"""What people send who come into a round, or back into it."""

from __future__ import annotations

from django import forms


class JoinForm(forms.Form):
    """A name is asked of guests who have no invite."""

    name = forms.CharField(
        label="Your name or code",
        max_length=100,
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "nickname", "autocapitalize": "off", "spellcheck": "false"}),
        help_text="As you were told by whoever sent you the link. Only the researchers see it.",
    )
    agrees = forms.BooleanField(label="I have read this and agree", required=False)

    def __init__(self, *args, asks_name: bool, **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["name"].required = asks_name


class ReturnForm(forms.Form):
    code = forms.CharField(
        label="Return code",
        max_length=100,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "characters", "spellcheck": "false"}),
        help_text="Such as 12-ABCD-EFGH-IJKL-MNOP.",
    )
