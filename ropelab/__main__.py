"""`python -m ropelab` is the `ropelab` command; it can be interrupted from its first moment."""

from ropelab.runs import interrupts


def main() -> None:
    """Run the command line; nothing heavy is imported before signals are heard."""
    interrupts.leave_at_once()
    from ropelab.cli import app as cli

    cli.main()


if __name__ == "__main__":
    main()
