"""Golden corpus: recorded output, to prove that refactoring changes nothing.

    python -m tests.golden.corpus record DIR [--sections a,b]
    python -m tests.golden.corpus compare DIR [--sections a,b] [--without texts]

The recording in `tests/golden/v0` was made by the code before the names changed. Sections use the
public API, the command line, HTTP and files, so that a change of internal names does not reach
them. Everything random is seeded or masked.
"""
