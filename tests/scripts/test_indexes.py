"""What a site has told one installer reaches the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import indexes


def test_a_pip_wheelhouse_is_passed_on_to_uv_in_uvs_spelling(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    added = indexes.uv_variables({"PIP_FIND_LINKS": f"{one} {two}"}, {})
    assert added == {"UV_FIND_LINKS": f"{one},{two}"}


def test_a_wheelhouse_that_is_not_there_is_left_out_since_uv_would_stop(tmp_path: Path) -> None:
    added = indexes.uv_variables({"PIP_FIND_LINKS": f"{tmp_path}/gone https://wheels.example/x"}, {})
    assert added == {"UV_FIND_LINKS": "https://wheels.example/x"}


def test_what_uv_was_told_itself_stands(tmp_path: Path) -> None:
    environ = {
        "UV_FIND_LINKS": "/uv",
        "PIP_FIND_LINKS": str(tmp_path),
        "UV_INDEX_URL": "https://uv.example",
        "PIP_INDEX_URL": "https://pip.example",
    }
    assert indexes.uv_variables(environ, {"index-url": "https://conf.example"}) == {}


def test_pips_configuration_files_count_where_no_variable_is_set(tmp_path: Path) -> None:
    config = {"index-url": "https://conf.example/simple", "find-links": str(tmp_path)}
    assert indexes.uv_variables({}, config) == {
        "UV_DEFAULT_INDEX": "https://conf.example/simple",
        "UV_FIND_LINKS": str(tmp_path),
    }
    assert indexes.uv_variables({"PIP_INDEX_URL": "https://env.example"}, config)["UV_DEFAULT_INDEX"] == (
        "https://env.example"
    )


def test_uvs_settings_are_passed_on_to_pip() -> None:
    environ = {"UV_FIND_LINKS": "/a,/b", "UV_DEFAULT_INDEX": "https://uv.example"}
    assert indexes.pip_variables(environ) == {"PIP_FIND_LINKS": "/a /b", "PIP_INDEX_URL": "https://uv.example"}
    assert indexes.pip_variables({**environ, "PIP_FIND_LINKS": "/p", "PIP_INDEX_URL": "https://pip.example"}) == {}


def test_pips_listing_is_parsed() -> None:
    lines = [
        "global.index-url='https://x.example/simple'",
        "install.find-links='/a\\n/b'",
        ":env:.find-links='/env'",
        "list.format='json'",
        "",
    ]
    assert indexes.parse_pip_config(lines) == {"index-url": "https://x.example/simple", "find-links": "/a\n/b"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ["--torch-backend", "cpu"]),
        ({"UV_FIND_LINKS": "{empty}"}, ["--torch-backend", "cpu"]),
        ({"UV_FIND_LINKS": "{other}"}, ["--torch-backend", "cpu"]),
        ({"UV_FIND_LINKS": "{empty},{right}"}, []),
        ({"UV_FIND_LINKS": "file://{right}"}, []),
        ({"UV_FIND_LINKS": "https://wheels.example/"}, []),
        ({"UV_TORCH_BACKEND": "auto"}, []),
    ],
)
def test_pytorchs_index_is_asked_only_where_nothing_else_has_the_build(
    tmp_path: Path, environ: dict[str, str], expected: list[str]
) -> None:
    folders = {name: tmp_path / name for name in ("empty", "other", "right")}
    for folder in folders.values():
        folder.mkdir()
    (folders["other"] / "torch-2.12.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    (folders["right"] / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    placed = {name: value.format(**folders) for name, value in environ.items()}
    assert indexes.torch_arguments("2.13.0+cpu", "cpu", placed) == expected
