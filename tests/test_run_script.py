"""./run as a person meets it: what it prints and how it ends, with stand-ins for Python and pip."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "run"
TOOLS = ["sh", "awk", "cat", "chmod", "cksum", "cp", "date", "df", "dirname", "grep", "mkdir", "sed", "tail", "uname"]

# Stands for the environment's Python: pip finds what it is asked for, prints $PIP_SAYS and fails if there is any, torch
# is there if $HAS_TORCH says so, the application does nothing, and the rest is real.
FAKE_PYTHON = f"""#!/bin/sh
if [ "$1 $2" = "-m pip" ]; then
    case "$*" in *--dry-run*) exit ;; esac
    echo "$@" >>"$PIP_CALLS"
    printf '%s' "$PIP_SAYS"
    [ -z "$PIP_SAYS" ]
    exit
fi
case "$1 $2" in manage.py* | "-m gunicorn") exit ;; esac
case $2 in *importlib.metadata*) [ -n "$HAS_TORCH" ]; exit ;; esac
exec {sys.executable} "$@"
"""


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """A PATH with the standard tools and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool))
    return folder


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    add_script(folder / "bin" / "python", FAKE_PYTHON)
    return folder


@pytest.fixture
def run(tmp_path: Path, bin_dir: Path):
    def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": str(bin_dir),
            "KGHARVEST_VENV": str(tmp_path / "venv"),
            "KGHARVEST_DATA_DIR": str(tmp_path / "var"),
            "PIP_CALLS": str(tmp_path / "pip-calls"),
        }
        return subprocess.run([RUN, *arguments], env=env | environment, capture_output=True, text=True, timeout=60)

    return call


def add_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def sentence(result: subprocess.CompletedProcess[str]) -> str:
    """The one line of standard error of a run that failed with status 1."""
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    return line


def test_help_names_every_command(run):
    result = run("help")

    assert result.returncode == 0
    assert all(
        f"  {command} " in result.stdout for command in ["demo", "test", "web", "worker", "urgent-worker", "help"]
    )


def test_an_unknown_command_is_named(run):
    result = run("serve")

    assert result.returncode == 1
    assert "Unknown command 'serve'" in result.stderr


def add_python(path: Path, version: str, *, cpu_build: bool = False, lacks: str = "") -> None:
    """Add a Python that can say its version, import everything but `lacks`, and make environments that do nothing.

    cpu_build: pip finds a build of torch for CPUs for it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    add_script(
        path,
        f"""#!/bin/sh
case "$*" in
    *version_info*) echo {version} ;;
    *sqlite3*) [ -z "{lacks}" ] || {{ echo "ModuleNotFoundError: No module named '{lacks}'" >&2; exit 1; }} ;;
    *--dry-run*) exit {0 if cpu_build else 1} ;;
    "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    "-m pip install"*) echo "$@" >>"$PIP_CALLS" ;;
    *importlib.metadata*) exit 1 ;;
esac
""",
    )


def test_another_python_is_refused_with_the_version_found(run, bin_dir):
    add_script(bin_dir / "python3", "#!/bin/sh\necho 3.9\n")

    assert "requires Python 3.11, 3.12, or 3.13. Found: python3 is 3.9" in sentence(run("demo"))


def test_no_python_at_all_is_said(run):
    assert "Found: no Python" in sentence(run("demo"))


def test_the_newest_python_is_taken_and_said(run, bin_dir):
    for version in ("3.10", "3.11", "3.12", "3.14"):
        add_python(bin_dir / f"python{version}", version)

    assert "with python3.12 (Python 3.12)" in run("demo").stdout


def test_a_version_on_which_no_test_ran_is_taken_where_there_is_no_other(run, bin_dir):
    add_python(bin_dir / "python3", "3.14")

    assert "with python3 (Python 3.14)" in run("demo").stdout


def test_versions_of_pyenv_are_found_behind_shims_that_refuse_them(run, bin_dir, tmp_path):
    add_script(bin_dir / "pyenv", f"#!/bin/sh\necho '{tmp_path}/py env'\n")
    add_script(bin_dir / "python3.13", "#!/bin/sh\necho 'pyenv: python3.13: command not found' >&2\nexit 127\n")
    add_python(bin_dir / "python3.11", "3.11")
    add_python(tmp_path / "py env" / "versions" / "3.13.0" / "bin" / "python", "3.13")

    assert f"with {tmp_path}/py env/versions/3.13.0/bin/python (Python 3.13)" in run("demo").stdout


def test_a_python_that_lacks_a_module_is_passed_over_or_named(run, bin_dir):
    add_python(bin_dir / "python3.13", "3.13", lacks="_sqlite3")
    assert "python3.13 is incomplete (No module named '_sqlite3')" in sentence(run("demo"))

    add_python(bin_dir / "python3.12", "3.12")
    assert "with python3.12 (Python 3.12)" in run("demo").stdout


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch has one build")
def test_without_a_gpu_a_python_with_a_small_torch_goes_first(run, bin_dir, tmp_path):
    add_python(bin_dir / "python3.12", "3.12")
    add_python(bin_dir / "python3.11", "3.11", cpu_build=True)

    assert "with python3.11 (Python 3.11)" in run("demo").stdout
    assert (tmp_path / "pip-calls").read_text().splitlines()[0].endswith(" torch==2.13.0+cpu")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch has one build")
def test_what_cuda_costs_is_said_where_there_is_no_gpu_and_no_small_torch(run, bin_dir, tmp_path):
    add_python(bin_dir / "python3.12", "3.12")

    assert "torch==2.13.0 (5 GB: pip finds no CPU build for Python 3.12)" in run("demo").stdout
    assert (tmp_path / "pip-calls").read_text().splitlines()[0].endswith(" torch==2.13.0")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch has one build")
def test_quick_tests_do_without_a_large_torch_if_asked_to(run, bin_dir, tmp_path):
    add_python(bin_dir / "python3.12", "3.12")

    result = run("quick-test", KGHARVEST_SMALL_TORCH="1")

    assert "Skipping torch: pip finds no CPU build for Python 3.12" in result.stdout
    assert "torch==" not in (tmp_path / "pip-calls").read_text()
    assert not list((tmp_path / "venv").glob(".installed*"))  # what needs torch installs it later


def test_the_pythons_that_can_be_used_are_listed(run, bin_dir):
    for name in ("3.10", "3.11", "3.13"):
        add_python(bin_dir / f"python{name}", name)

    assert run("pythons").stdout.split() == ["python3.13", "python3.11"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch has one build")
def test_the_python_that_is_taken_is_named_before_and_after(run, bin_dir):
    add_python(bin_dir / "python3.13", "3.13")
    add_python(bin_dir / "python3.11", "3.11", cpu_build=True)

    before = run("python").stdout.split()
    run("install")

    assert before == ["python3.11"]
    [python] = run("python").stdout.split()
    assert python.endswith("/bin/python")


def test_with_a_gpu_the_newest_python_is_taken(run, bin_dir, tmp_path):
    add_script(bin_dir / "nvidia-smi", "#!/bin/sh\n")
    add_python(bin_dir / "python3.12", "3.12")
    add_python(bin_dir / "python3.11", "3.11", cpu_build=True)

    assert "with python3.12 (Python 3.12)" in run("demo").stdout
    assert (tmp_path / "pip-calls").read_text().splitlines()[0].endswith(" torch==2.13.0")


def test_a_python_may_be_named(run, bin_dir):
    add_python(bin_dir / "python3.13", "3.13")
    add_python(bin_dir / "mine", "3.11")
    add_python(bin_dir / "old", "3.10")

    assert "with mine (Python 3.11)" in run("demo", KGHARVEST_PYTHON="mine").stdout
    assert "KGHARVEST_PYTHON is old, which is not Python 3.11" in sentence(
        run("demo", KGHARVEST_PYTHON="old", KGHARVEST_VENV="another")
    )


def test_a_python_without_venv_names_the_package_to_install(run, bin_dir):
    add_script(bin_dir / "python3.11", '#!/bin/sh\n[ "$1" = -c ] && echo 3.11\n')

    assert "apt-get install python3.11-venv" in sentence(run("demo"))


def test_an_environment_of_another_python_is_refused(run, venv):
    add_script(venv / "bin" / "python", "#!/bin/sh\necho 3.10\n")

    assert f"{venv} has Python 3.10, not 3.11, 3.12, or 3.13" in sentence(run("worker"))


def test_an_environment_of_any_suitable_python_is_kept(run, venv, bin_dir):
    add_python(bin_dir / "python3.13", "3.13")
    add_python(venv / "bin" / "python", "3.12")

    assert "Creating" not in run("demo").stdout


@pytest.mark.parametrize(
    ("pip_says", "expected"),
    [
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("NewConnectionError: Temporary failure in name resolution", "package index is unreachable"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "ends with: ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"),
    ],
)
def test_a_pip_failure_is_explained_and_its_log_named(run, venv, pip_says, expected):
    message = sentence(run("demo", HAS_TORCH="1", PIP_SAYS=pip_says))

    assert expected in message
    assert f"{venv}/install.log" in message


def test_too_little_disk_space_is_said_before_torch_is_fetched(run, venv, bin_dir, tmp_path):
    (bin_dir / "df").unlink()
    add_script(bin_dir / "df", "#!/bin/sh\nprintf 'Filesystem\\n/dev/disk 1 1 102400 1%% /\\n'\n")

    assert "2500 MB required, 100 MB free" in sentence(run("demo"))
    assert not (tmp_path / "pip-calls").exists()


def test_torch_is_installed_alone_and_the_lock_with_hashes(run, venv, tmp_path):
    assert run("web", PORT="0").returncode == 0

    torch, lock = (tmp_path / "pip-calls").read_text().splitlines()
    assert torch.endswith((" torch==2.13.0", " torch==2.13.0+cpu"))
    assert lock.endswith(" --require-hashes -r requirements.lock")
    assert "index" not in torch + lock


def test_what_python_compiles_is_kept_for_the_next_program(run, venv):
    told = 'case $1 in manage.py) echo "kept: ${PYTHONDONTWRITEBYTECODE-yes}" ;; esac'
    add_script(venv / "bin" / "python", FAKE_PYTHON.replace("#!/bin/sh", f"#!/bin/sh\n{told}"))

    printed = run("web", PORT="0", HAS_TORCH="1", PYTHONDONTWRITEBYTECODE="1").stdout

    assert "kept: yes" in printed
    assert "kept: 1" not in printed


def test_install_sets_up_and_starts_nothing(run, venv, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:  # beside what runs
        assert run("install", PORT=str(server.getsockname()[1])).returncode == 0

    assert len((tmp_path / "pip-calls").read_text().splitlines()) == 2


def test_a_second_start_installs_nothing(run, venv, tmp_path):
    run("web", PORT="0", HAS_TORCH="1")
    calls = (tmp_path / "pip-calls").read_text()

    run("web", PORT="0", HAS_TORCH="1")

    assert (tmp_path / "pip-calls").read_text() == calls


@pytest.mark.parametrize("command", ["web", "demo"])
def test_a_busy_port_is_named(run, venv, command):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        message = sentence(run(command, PORT=str(port), HAS_TORCH="1"))

    assert f"Port {port} is in use" in message
    assert f"PORT=8001 ./run {command}" in message
