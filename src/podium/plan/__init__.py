"""Plans a run on a machine that is not at hand: compiles the real step for a described pod, models what the compiler
does not say, and holds itself against published results.
"""
