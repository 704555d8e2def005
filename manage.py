#!/usr/bin/env python
"""Run a kgharvest command. `python manage.py help` lists all commands."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import DatabaseError

from kgharvest.errors import fault_of_machine

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kgharvest.settings")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"Error: {error}")
    except (DatabaseError, OSError) as error:  # raised by Django's own commands
        if not (reason := fault_of_machine(error)):
            raise
        sys.exit(f"Error: {reason}")
