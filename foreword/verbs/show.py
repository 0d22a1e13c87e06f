"""`foreword show`."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Annotated

from foreword.display.results import Output
from foreword.errors import UserError, nearest, quoted_command
from foreword.settings import config, kinds
from foreword.verbs._contract import ARGUMENT, SET, PathName, Settings, Verb


@dataclass(frozen=True)
class Show(Verb[Output]):
    """List kinds, families, recipes, grids, suites or claims, or show one of them.

        foreword.show("masked")

    A kind's page says what each setting means, its default, its range, and where it is used.

    Attributes:
        what: kinds, families, recipes, grids, suites, claims, cleaning; a folder of kinds
            (objectives, positions); a kind (masked, rotary); a section (train, tune); a family
            (BERT); a dial (encoder); a grid (ladder), suite (glue) or claim (lstm_beats_rnn); the
            name or file of a recipe. Default: what there is to show.
        settings: a setting of a recipe: model.layers=6.
    """

    what: Annotated[PathName | None, ARGUMENT] = None
    settings: Annotated[Settings, SET] = ()

    def __call__(self) -> Output:
        from foreword.planning.dial import FAMILIES
        from foreword.verbs import _kind_pages
        from foreword.verbs import _recipe_pages as pages
        from foreword.verbs._arguments import assignments
        from foreword.verbs._dial_pages import dial_page

        lists = {
            "families": pages.families_page,
            "recipes": pages.recipes_page,
            "kinds": _kind_pages.all_kinds,
            "grids": pages.grids_page,
            "suites": pages.suites_page,
            "claims": pages.claims_page,
            "cleaning": pages.cleaning_page,
        }
        settings, what = assignments(self.settings), self.what
        if what is None:
            return _kind_pages.overview(list(lists))
        what = str(what) if isinstance(what, PathLike) else what
        if not isinstance(what, str):
            raise UserError(f"what: expected a name or a file, got {what!r}")
        if what in config.CLEANING.names() or (what.endswith(".toml") and _is_cleaning(what)):
            return pages.cleaning_recipe_page(what, settings)
        if what.endswith(".toml") or what in config.RECIPES.names():
            return pages.recipe_page(what, settings)
        if settings:
            raise UserError(f"--set changes a recipe, and '{what}' is not one")
        if what in lists:
            return lists[what]()
        if what in (sections := _kind_pages.sections()):
            return _kind_pages.section_page(what, sections[what])
        if folders := _kind_pages.folders_named(what):
            return _kind_pages.folder_page(folders[0])
        for shipped in (config.GRIDS, config.SUITES, config.CLAIMS):
            if what in shipped.names():
                return pages.file_page(shipped.find(what))
        if what in FAMILIES:
            return dial_page(what, _kind_pages.kind_pages(_kind_pages.kinds_named(what)))
        return _called(what)


def _is_cleaning(file: str) -> bool:
    return Path(file).is_file() and "clean" in config.read(Path(file))


def _called(what: str) -> Output:
    """Return the page of the kinds of a name, or of a family's recipes."""
    # Importers are named for their families, which come first.
    from foreword.planning.dial import FAMILIES
    from foreword.verbs import _kind_pages
    from foreword.verbs import _recipe_pages as pages

    matches = _kind_pages.kinds_named(what)
    is_importer = all(folder == "interop/hf" for folder, _ in matches)
    family = pages.family_recipes(what) if is_importer else []
    if family:
        return pages.recipes_page(family)
    if not matches:
        from foreword.reports.comparison import is_comparison
        from foreword.runs.run_folder import is_run

        if is_run(Path(what)) or is_comparison(Path(what)):
            raise UserError(f"{what}: {quoted_command('report', what)} shows what was trained")
        named = [name for folder in kinds.folders() for name in kinds.names(folder)]
        folders = [folder.rpartition("/")[2] for folder in kinds.folders()]
        recipes = [*config.RECIPES.names(), *config.CLEANING.names()]
        recipes += [*config.GRIDS.names(), *config.SUITES.names(), *config.CLAIMS.names()]
        words = [*folders, *_kind_pages.sections(), *named, *recipes, *FAMILIES]
        others = {
            other.lower(): name
            for folder in kinds.folders()
            for name in kinds.names(folder)
            for other in kinds.other_names(folder, name)
        }
        hint = nearest(what, words, others)
        if "did you mean" not in hint:
            hint = "; 'foreword show' lists what there is"
        raise UserError(f"nothing is called '{what}'{hint}")
    return _kind_pages.kind_pages(matches)
