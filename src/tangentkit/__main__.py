"""`python -m tangentkit` is the command `tangentkit`."""

from tangentkit.cli import main

if __name__ == "__main__":
    main()
