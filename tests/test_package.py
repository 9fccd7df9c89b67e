"""The package as a whole: light to import, one version, and nothing in it that could run what it reads."""

import ast
import doctest
import importlib
import importlib.metadata
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import fewtags

ROOT = Path(__file__).parents[1]
SOURCES = sorted(Path(fewtags.__file__).parent.rglob("*.py"))
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def test_import_and_help_bring_neither_torch_nor_pydantic():
    code = """
import sys, fewtags
from fewtags.cli import run
assert run(["--help"]) == 0
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "fewtags.cli.app" in loaded
    assert loaded & {"torch", "pydantic", "numpy", "PIL", "lightning_fabric", "matplotlib", "yaml"} == set()


def cpu_seconds(*arguments: str) -> float:
    """The least that three runs of the interpreter needed."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def test_help_takes_under_three_tenths_of_a_second_beyond_the_interpreter():
    assert cpu_seconds("-m", "fewtags", "--help") - cpu_seconds("-c", "pass") < 0.3


def test_every_public_name_can_be_imported():
    assert {"train", "load", "evaluate"} <= set(fewtags.__all__)
    for name in fewtags.__all__:
        assert getattr(fewtags, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        _ = fewtags.tarin


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("fewtags.thresholds", ["metric_adaptive"]),
        ("fewtags.losses", ["asymmetric_loss", "binary_cross_entropy"]),
        ("fewtags.models", ["merge_patches"]),
        ("fewtags.evaluation", ["mean_average_precision", "f1_scores"]),
        ("fewtags.api", ["train", "load", "evaluate"]),
    ],
)
def test_what_the_contract_names_is_there_and_documented(module, names):
    for name in names:
        found = getattr(importlib.import_module(module), name)
        assert len(found.__doc__.split()) > 5
        assert found.__annotations__["return"]


@pytest.mark.parametrize("name", ["thresholds", "losses", "methods.parts.heads", "metrics.multilabel"])
def test_the_examples_of_the_docstrings_are_true(name):
    module = importlib.import_module(f"fewtags.{name}")
    libraries = {library: importlib.import_module(full) for library, full in (("np", "numpy"), ("torch", "torch"))}
    outcome = doctest.testmod(module, extraglobs=libraries)
    assert outcome.failed == 0
    assert outcome.attempted > 0


def called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def dangers(code: str) -> list[str]:
    """Calls that would run code from a file or a string."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            found += [
                name for name in modules if name.split(".")[0] in ("pickle", "marshal", "shelve", "dill", "joblib")
            ]
        if not isinstance(node, ast.Call):
            continue
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        last = called(node).rpartition(".")[2]
        if called(node) in ("eval", "exec", "os.system", "yaml.load", "yaml.unsafe_load", "yaml.full_load"):
            found.append(called(node))
        elif called(node) == "torch.load" and options.get("weights_only") != "True":
            found.append("torch.load")
        elif last in ("load", "open_memmap", "loads") and options.get("allow_pickle", "False") != "False":
            found.append(called(node))
        if options.get("shell") == "True":
            found.append(called(node))
    return found


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "torch.load(file)",
        "torch.load(file, weights_only=False)",
        "np.load(file, allow_pickle=True)",
        "np.load(file, allow_pickle=flag)",
        "yaml.load(text, Loader=None)",
        "eval(text)",
        "exec(text)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_a_danger_is_found_where_there_is_one(code):
    assert dangers(code)


def test_the_harmless_calls_are_let_through():
    assert dangers("torch.load(f, weights_only=True); np.load(f); yaml.safe_load(t); model.eval(); json.loads(t)") == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_is_read_can_run_code(source):
    assert dangers(source.read_text(encoding="utf-8")) == []


def test_the_version_stands_in_one_place():
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^dynamic = \["version"\]$', pyproject, re.MULTILINE)
    assert not re.search(r"^version\s*=", pyproject, re.MULTILINE)
    assert importlib.metadata.version("fewtags") == fewtags.__version__
    holders = [path.name for path in SOURCES if fewtags.__version__ in path.read_text(encoding="utf-8")]
    assert holders == ["__init__.py"]


@pytest.mark.parametrize("path", [*SOURCES, *DOCUMENTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_speaks_of_a_machine(path):
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"(?<![\w.])(?:/work|/tmp|/home|/root|/Users)/\w+|[A-Z]:\\\\Users", text) == []
