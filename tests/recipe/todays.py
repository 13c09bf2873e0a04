"""The recipes of today, beside those of the paper."""

from podium.recipe.reading import shipped

TODAY = [name for name in shipped() if name.endswith(("-epochs", "-a1", "-a2", "-a3", "-algoperf"))]
