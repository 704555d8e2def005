"""What researchers fill in to invite people."""

from __future__ import annotations

from django import forms


class InvitesForm(forms.Form):
    n = forms.IntegerField(label="Links", min_value=1, max_value=1000, initial=10)
    days = forms.IntegerField(label="Days until they end", min_value=1, max_value=366, initial=30)


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


class ErasePersonForm(forms.Form):
    """username: typed, so that nobody is erased by a click."""

    username = forms.CharField(
        label="Name of the account",
        max_length=150,
        widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"}),
    )
