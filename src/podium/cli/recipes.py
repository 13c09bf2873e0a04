"""What `podium recipes` does."""

from typing import Any

from podium.cli.arguments.recipes import Recipes
from podium.recipe.reading import load_recipe, recipe_text, shipped, to_dict


def recipes(command: Recipes) -> Any:
    if command.name:
        text = recipe_text(command.name)
        if not command.json:
            print(text, end="")
        return to_dict(load_recipe(command.name))
    told = {name: _headline(recipe_text(name)) for name in shipped()}
    if not command.json:
        for name, headline in told.items():
            print(f"{name:16}{headline}")
        print("\npodium recipes NAME shows one; podium train --recipe NAME trains it")
    return told


def _headline(text: str) -> str:
    return text.splitlines()[0].removeprefix("#").strip()
