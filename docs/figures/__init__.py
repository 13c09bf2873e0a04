"""The figures of README and docs, taken from results/: which sentence says what of which file.

    python -m docs.figures            # writes them into the pages (make figures)
    python -m docs.figures --check    # names the sentences that say something else

A page stays plain Markdown. A sentence or a row of a table that states a measurement is quoted in a module here, with
holes for its numbers and the values that go there. A newer result of the same name takes the place of the older one.
"""
