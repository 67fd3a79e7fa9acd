"""`python -m kb_evolve`: the same as the console script `kb-evolve`."""

from kb_evolve.cli import main

if __name__ == "__main__":
    main()
