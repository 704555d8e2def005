"""What researchers fill in to invite people."""

from __future__ import annotations

from django import forms


class InvitesForm(forms.Form):
    """Links for one person each."""

    n = forms.IntegerField(label="Links", min_value=1, max_value=1000, initial=10)
    days = forms.IntegerField(label="Days until they end", min_value=1, max_value=366, initial=30)
