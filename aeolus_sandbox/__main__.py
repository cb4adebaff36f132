"""`python -m aeolus_sandbox`: the same as the `aeolus` command."""

from aeolus_sandbox.cli import main

if __name__ == "__main__":
    main()
