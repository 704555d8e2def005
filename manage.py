#!/usr/bin/env python
"""Run a command of kgharvest: `python manage.py help` lists them."""

from kgharvest.command_line import main

if __name__ == "__main__":
    main()
