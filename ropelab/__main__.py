"""`python -m ropelab` is the `ropelab` command."""

from ropelab.cli import main

if __name__ == "__main__":
    main()
