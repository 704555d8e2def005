"""Script ./run: output and exit status, with stand-ins for Python and pip."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "run"
TOOLS = ["sh", "awk", "cat", "chmod", "cksum", "cp", "date", "df", "dirname", "grep", "mkdir", "sed", "tail", "uname"]

# Stand-in for the Python of the environment. pip finds all packages; if $PIP_SAYS is set, pip prints it and fails.
# torch is installed if $HAS_TORCH is set. The application does nothing. All other commands run the real Python.
FAKE_PYTHON = f"""#!/bin/sh
if [ "$1 $2" = "-m pip" ]; then
    case "$*" in *--dry-run*) exit ;; esac
    echo "$@" >>"$PIP_CALLS"
    printf '%s' "$PIP_SAYS"
    [ -z "$PIP_SAYS" ]
    exit
fi
case $1 in manage.py) exit ;; esac
case $2 in *importlib.metadata*) [ -n "$HAS_TORCH" ]; exit ;; esac
exec {sys.executable} "$@"
"""


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """Folder for PATH with standard tools and no Python."""
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


def error_line(result: subprocess.CompletedProcess[str]) -> str:
    """Return the single line on standard error of a run that failed with status 1."""
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
    """Add a stand-in for Python that prints its version, imports every module except `lacks`, and creates environments.

    cpu_build: pip finds a CPU build of torch for this Python.
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


def test_error_for_an_unsupported_python_names_its_version(run, bin_dir):
    add_script(bin_dir / "python3", "#!/bin/sh\necho 3.9\n")

    assert "requires Python 3.11, 3.12, or 3.13. Found: python3 is 3.9" in error_line(run("demo"))


def test_missing_python_is_reported(run):
    assert "Found: no Python" in error_line(run("demo"))


def test_newest_supported_python_is_used_and_printed(run, bin_dir):
    for version in ("3.10", "3.11", "3.12", "3.14"):
        add_python(bin_dir / f"python{version}", version)

    assert "with python3.12 (Python 3.12)" in run("demo").stdout


def test_untested_python_is_used_if_it_is_the_only_one(run, bin_dir):
    add_python(bin_dir / "python3", "3.14")

    assert "with python3 (Python 3.14)" in run("demo").stdout


def test_pyenv_versions_are_found_despite_failing_shims(run, bin_dir, tmp_path):
    add_script(bin_dir / "pyenv", f"#!/bin/sh\necho '{tmp_path}/py env'\n")
    add_script(bin_dir / "python3.13", "#!/bin/sh\necho 'pyenv: python3.13: command not found' >&2\nexit 127\n")
    add_python(bin_dir / "python3.11", "3.11")
    add_python(tmp_path / "py env" / "versions" / "3.13.0" / "bin" / "python", "3.13")

    assert f"with {tmp_path}/py env/versions/3.13.0/bin/python (Python 3.13)" in run("demo").stdout


def test_incomplete_python_is_skipped_or_reported(run, bin_dir):
    add_python(bin_dir / "python3.13", "3.13", lacks="_sqlite3")
    assert "python3.13 is incomplete (No module named '_sqlite3')" in error_line(run("demo"))

    add_python(bin_dir / "python3.12", "3.12")
    assert "with python3.12 (Python 3.12)" in run("demo").stdout


@pytest.mark.skipif(sys.platform != "linux", reason="torch has separate CPU builds only on Linux")
def test_python_with_cpu_torch_is_preferred_without_gpu(run, bin_dir, tmp_path):
    add_python(bin_dir / "python3.12", "3.12")
    add_python(bin_dir / "python3.11", "3.11", cpu_build=True)

    assert "with python3.11 (Python 3.11)" in run("demo").stdout
    assert (tmp_path / "pip-calls").read_text().splitlines()[0].endswith(" torch==2.13.0+cpu")


@pytest.mark.skipif(sys.platform != "linux", reason="torch has separate CPU builds only on Linux")
def test_size_of_cuda_torch_is_printed_without_alternatives(run, bin_dir, tmp_path):
    add_python(bin_dir / "python3.12", "3.12")

    assert "torch==2.13.0 (5 GB: pip finds no CPU build for Python 3.12)" in run("demo").stdout
    assert (tmp_path / "pip-calls").read_text().splitlines()[0].endswith(" torch==2.13.0")


@pytest.mark.skipif(sys.platform != "linux", reason="torch has separate CPU builds only on Linux")
def test_quick_test_skips_large_torch_on_request(run, bin_dir, tmp_path):
    add_python(bin_dir / "python3.12", "3.12")

    result = run("quick-test", KGHARVEST_SMALL_TORCH="1")

    assert "Skipping torch: pip finds no CPU build for Python 3.12" in result.stdout
    assert "torch==" not in (tmp_path / "pip-calls").read_text()
    assert not list((tmp_path / "venv").glob(".installed*"))  # commands that need torch install it later


def test_supported_pythons_are_listed(run, bin_dir):
    for name in ("3.10", "3.11", "3.13"):
        add_python(bin_dir / f"python{name}", name)

    assert run("pythons").stdout.split() == ["python3.13", "python3.11"]


@pytest.mark.skipif(sys.platform != "linux", reason="torch has separate CPU builds only on Linux")
def test_selected_python_is_printed_before_and_after_installation(run, bin_dir):
    add_python(bin_dir / "python3.13", "3.13")
    add_python(bin_dir / "python3.11", "3.11", cpu_build=True)

    before = run("python").stdout.split()
    run("install")

    assert before == ["python3.11"]
    [python] = run("python").stdout.split()
    assert python.endswith("/bin/python")


def test_newest_python_is_used_with_a_gpu(run, bin_dir, tmp_path):
    add_script(bin_dir / "nvidia-smi", "#!/bin/sh\n")
    add_python(bin_dir / "python3.12", "3.12")
    add_python(bin_dir / "python3.11", "3.11", cpu_build=True)

    assert "with python3.12 (Python 3.12)" in run("demo").stdout
    assert (tmp_path / "pip-calls").read_text().splitlines()[0].endswith(" torch==2.13.0")


def test_python_can_be_set_by_a_variable(run, bin_dir):
    add_python(bin_dir / "python3.13", "3.13")
    add_python(bin_dir / "mine", "3.11")
    add_python(bin_dir / "old", "3.10")

    assert "with mine (Python 3.11)" in run("demo", KGHARVEST_PYTHON="mine").stdout
    assert "KGHARVEST_PYTHON is old, which is not Python 3.11" in error_line(
        run("demo", KGHARVEST_PYTHON="old", KGHARVEST_VENV="another")
    )


def test_a_python_without_venv_names_the_package_to_install(run, bin_dir):
    add_script(bin_dir / "python3.11", '#!/bin/sh\n[ "$1" = -c ] && echo 3.11\n')

    assert "apt-get install python3.11-venv" in error_line(run("demo"))


def test_environment_with_an_unsupported_python_is_rejected(run, venv):
    add_script(venv / "bin" / "python", "#!/bin/sh\necho 3.10\n")

    assert f"{venv} has Python 3.10, not 3.11, 3.12, or 3.13" in error_line(run("worker"))


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
    message = error_line(run("demo", HAS_TORCH="1", PIP_SAYS=pip_says))

    assert expected in message
    assert f"{venv}/install.log" in message


def test_low_disk_space_is_reported_before_downloading_torch(run, venv, bin_dir, tmp_path):
    (bin_dir / "df").unlink()
    add_script(bin_dir / "df", "#!/bin/sh\nprintf 'Filesystem\\n/dev/disk 1 1 102400 1%% /\\n'\n")

    assert "2500 MB required, 100 MB free" in error_line(run("demo"))
    assert not (tmp_path / "pip-calls").exists()


def test_torch_is_installed_separately_and_the_lock_with_hashes(run, venv, tmp_path):
    assert run("web", PORT="0").returncode == 0

    torch, lock = (tmp_path / "pip-calls").read_text().splitlines()
    assert torch.endswith((" torch==2.13.0", " torch==2.13.0+cpu"))
    assert lock.endswith(" --require-hashes -r requirements.lock")
    assert "index" not in torch + lock


def test_python_bytecode_is_cached(run, venv):
    print_setting = 'case $1 in manage.py) echo "kept: ${PYTHONDONTWRITEBYTECODE-yes}" ;; esac'
    add_script(venv / "bin" / "python", FAKE_PYTHON.replace("#!/bin/sh", f"#!/bin/sh\n{print_setting}"))

    printed = run("web", PORT="0", HAS_TORCH="1", PYTHONDONTWRITEBYTECODE="1").stdout

    assert "kept: yes" in printed
    assert "kept: 1" not in printed


def test_install_starts_no_server(run, venv, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:  # the port may be in use
        assert run("install", PORT=str(server.getsockname()[1])).returncode == 0

    assert len((tmp_path / "pip-calls").read_text().splitlines()) == 2


def test_a_second_start_installs_nothing(run, venv, tmp_path):
    run("web", PORT="0", HAS_TORCH="1")
    calls = (tmp_path / "pip-calls").read_text()

    run("web", PORT="0", HAS_TORCH="1")

    assert (tmp_path / "pip-calls").read_text() == calls
