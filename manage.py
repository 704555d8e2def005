#!/usr/bin/env python
"""Run a kgharvest command. `python manage.py help` lists all commands."""

from kgharvest.command_line import main

if __name__ == "__main__":
    main()
