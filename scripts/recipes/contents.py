"""What a product must contain, looked up in the product itself: a build that ends well can still leave parts out."""

from __future__ import annotations

import fnmatch
import zipfile
from pathlib import Path

from scripts.errors import BuildError
from scripts.recipes.steps import Product

_ELF = b"\x7fELF"
_EXECUTABLE_BITS = 0o111


def check(product: Product, path: Path) -> None:
    """Raise `BuildError` for a product that is not whole."""
    if product.kind == "wheel":
        _check_wheel(product, path)
    else:
        with path.open("rb") as program:
            _check_program(product.name, program.read(len(_ELF)), path)
        if not path.stat().st_mode & _EXECUTABLE_BITS:
            raise BuildError(f"{product.name} is not executable", where=str(path))


def _check_wheel(product: Product, path: Path) -> None:
    with zipfile.ZipFile(path) as wheel:
        infos = {info.filename: info for info in wheel.infolist()}
        for pattern in product.members:
            if not fnmatch.filter(infos, pattern):
                raise BuildError(
                    f"the wheel of {product.name} was built without {pattern}",
                    expected=f"{pattern} in the wheel",
                    found=f"{len(infos)} files, none of that name",
                    where=path.name,
                    hint="the log of the wheel's build says why it was left out; a missing tool is the usual reason",
                )
        for name in product.executables:
            with wheel.open(name) as program:
                _check_program(name, program.read(len(_ELF)), path)
            if not (infos[name].external_attr >> 16) & _EXECUTABLE_BITS:
                raise BuildError(f"{name} in the wheel is not executable", where=path.name)
        # A second run over what a first one has left makes such files (maturin#3188).
        empty = [name for name, info in infos.items() if ".so" in Path(name).suffixes and info.file_size == 0]
        if empty:
            raise BuildError(
                f"the wheel of {product.name} has empty libraries", found=", ".join(sorted(empty)), where=path.name
            )


def _check_program(name: str, head: bytes, path: Path) -> None:
    if head != _ELF:
        found = "nothing: the file is empty" if not head else "something else"
        raise BuildError(f"{name} is no program", expected="an ELF file", found=found, where=str(path))
