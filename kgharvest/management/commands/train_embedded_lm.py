import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.embedded_lm.world import BadWorld, load_world
from kgharvest.environment import IS_CHECKOUT


class Command(BaseCommand):
    help = "Train an embedded LM on its world of facts, and write it with a model card in Hugging Face format."

    def add_arguments(self, parser: ArgumentParser) -> None:
        model_help = "embedded LM to train (default: embedded)"
        parser.add_argument("--model", choices=EMBEDDED_LMS, default="embedded", help=model_help)
        parser.add_argument(
            "--output",
            type=Path,
            # Without a default if installed, because nothing is written to an installed package.
            required=not IS_CHECKOUT,
            help="output folder (default in a checkout: replace the built-in model)",
        )
        parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")

    def handle(self, *, model: str, output: Path | None, seed: int, **options: Any) -> None:
        import torch  # imported here because `help` loads all commands

        from kgharvest.embedded_lm.card import model_card
        from kgharvest.embedded_lm.train import RECIPES, save, train
        from kgharvest.engine.language_models.compact import load_compact

        folder = output or EMBEDDED_LMS[model]
        try:  # checked before the training, so that errors are reported early
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(
                f"Cannot create the folder {folder} ({error.strerror}). Choose another folder with --output."
            ) from error
        if not os.access(folder, os.W_OK):
            raise CommandError(f"The folder {folder} is not writable. Choose another folder with --output.")
        recipe = RECIPES[model]
        try:
            relations = load_world()
        except BadWorld as error:
            raise CommandError(str(error)) from error
        torch.set_num_threads(1)  # small models gain little from more threads and slow down on busy cores
        with tqdm(total=recipe.steps, desc=model, unit="step") as bar:

            def show(step: int, loss: float) -> None:
                bar.set_postfix(loss=f"{loss:.2f}", refresh=False)
                bar.update()

            trained = train(relations, recipe, seed, show)
        save(trained, relations, folder)
        card = model_card(model, recipe, seed, relations, load_compact(folder))
        (folder / "README.md").write_text(card, encoding="utf-8")
        self.stdout.write(f"{model} is in {folder}")
