"""`python -m kgharvest COMMAND`: the same as `kgharvest COMMAND`."""

from kgharvest.command_line import main

if __name__ == "__main__":
    main()
