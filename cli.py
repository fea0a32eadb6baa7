"""The command line, from a checkout: `python cli.py train lda ...` is `ooc train lda ...`. It is not installed."""

from ooc.cli import main

if __name__ == "__main__":
    main()
