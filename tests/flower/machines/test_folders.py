"""The folders that `fedfuse flower init` makes: who has which secret, and that what runs a machine can be read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from flwr.cli.config_utils import load_and_validate
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES

from fedfuse.config.experiment import load
from fedfuse.flower.machines.machine import FILE, Place, read_machine
from fedfuse.flower.machines.programs import programs
from fedfuse.types import FedfuseError
from tests.command_line import CommandLine
from tests.docs.test_operations import NGINX

NODES = ("hospital-a", "hospital-b")
INIT = ("flower", "init", "--server", "fl.example.org", *(word for name in NODES for word in ("--node", name)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("init") / "federation"
    result = CommandLine().here(*INIT, "--experiment", "digits", "--set", "run.rounds=2", "--out", folder)
    assert result.code == 0, result.text
    return folder


def test_each_machine_has_its_own_secrets_only(made: Path) -> None:
    private = {
        str(file.relative_to(made))
        for file in made.rglob("*")
        if file.is_file() and file.stat().st_size < 10_000 and b"PRIVATE KEY" in file.read_bytes()
    }
    nodes = {f"{name}/keys/{key}" for name in NODES for key in ("node.key", "local.key")}
    assert private == nodes | {"authority/ca.key", "server/keys/server.key", "server/keys/local.key"}
    secrets = [*made.glob("*/keys/*"), *made.glob("*/secret/*"), made / "authority" / "ca.key"]
    assert {file.stat().st_mode & 0o777 for file in secrets} == {0o600}
    assert {file.parent.stat().st_mode & 0o777 for file in secrets} == {0o700}
    assert len({file.read_bytes() for file in secrets}) == len(secrets)  # nothing is shared
    assert {file.read_bytes() for file in made.glob("*/trust/ca.pem")} == {(made / "authority/ca.pem").read_bytes()}
    assert sorted(file.name for file in (made / "server" / "nodes").iterdir()) == [f"{name}.pub" for name in NODES]


def test_the_servers_certificate_is_for_its_name(made: Path) -> None:
    own, authority = (
        x509.load_pem_x509_certificate(file.read_bytes())
        for file in (Place(made / "server").certificate, made / "authority" / "ca.pem")
    )
    own.verify_directly_issued_by(authority)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == ["fl.example.org"]


def test_all_nodes_take_part_and_flower_takes_the_app(made: Path) -> None:
    experiment = load(made / "hospital-b" / "app" / "experiment.toml")
    assert (experiment.partition.clients, experiment.run.fraction, experiment.run.rounds) == (2, 1.0, 2)
    config, _ = load_and_validate(made / "server" / "app" / "pyproject.toml")
    assert config["tool"]["flwr"]["app"]["config"]["out"] == "runs/digits"
    assert read_machine(made / "hospital-b").number == 1
    assert "own_data" in (made / "hospital-b" / "app" / "client_app.py").read_text()


@pytest.mark.parametrize("name", ["server", "hospital-a"])
def test_services_and_containers_run_the_same_programs(name: str, made: Path) -> None:
    folder = made / name
    inside = programs(read_machine(folder), Path("/federation"))
    compose = yaml.safe_load((folder / "compose.yaml").read_text())
    for service, program in inside.items():
        if service != "proxy":  # in a container it has no user to change to
            assert compose["services"][service]["command"] == program.command
        unit = (folder / "systemd" / f"fedfuse-{service}.service").read_text()
        assert all(word.replace("/federation", "@FOLDER@") in unit for word in program.command)
    keys = {service: any("keys" in mount for mount in compose["services"][service]["volumes"]) for service in inside}
    assert keys["apps"] is False
    assert len({each.get("image") for each in compose["services"].values()}) == 2
    published = [port for each in compose["services"].values() for port in each.get("ports", ())]
    assert published == (["8443:8443"] if name == "server" else [])
    targets = re.findall(r"^FROM \S+ AS (\w+)$", (folder / "Dockerfile").read_text(), re.MULTILINE)
    assert targets == ["network", "apps"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@pytest.mark.parametrize("name", ["server", "hospital-a"])
def test_systemd_takes_the_services(name: str, made: Path, tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    for program in ("flower-superlink", "flower-supernode", "flower-superexec", "nginx"):
        (tmp_path / "venv" / "bin" / program).symlink_to("/bin/true")
    units = []
    for unit in (made / name / "systemd").glob("*.service"):
        text = unit.read_text().replace("@FOLDER@", str(tmp_path)).replace("/usr/sbin/nginx", "/bin/true")
        units.append(tmp_path / unit.name)
        units[-1].write_text(re.sub("^User=.*", "User=root", text, flags=re.MULTILINE))
    command = ["systemd-analyze", "verify", "--man=no", *map(str, units)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    own = [line for line in result.stderr.splitlines() if "fedfuse-" in line]
    assert not own, result.stderr


def test_the_wheel_is_the_fedfuse_that_made_it(made: Path) -> None:
    (wheel,) = (made / "hospital-a" / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
    assert {"fedfuse/cli.py", "fedfuse/flower/machines/templates/nginx.conf"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    requirements = (made / "hospital-a" / "requirements.txt").read_text().splitlines()
    assert requirements[0] == f"./wheels/{wheel.name}[flower]"


def test_the_proxy_lets_nodes_through_and_nobody_else(made: Path) -> None:
    """All of Flower's fleet paths but those by which a node would register itself."""
    match = re.search(r"location ~ (\S+) \{", (made / "server" / "nginx.conf").read_text())
    assert match is not None
    paths = {path for method, path in PROTOBUF_REQUEST_TYPES if method == "POST"}
    fleet = {path for path in paths if path.startswith("/v1/fleet/")}
    passed = {path for path in paths if re.fullmatch(match[1], path)}
    assert passed == fleet - {"/v1/fleet/register-node", "/v1/fleet/unregister-node"}


@pytest.mark.skipif(NGINX is None, reason="needs nginx")
def test_nginx_takes_the_configuration(made: Path) -> None:
    assert NGINX is not None
    command = [NGINX, "-t", "-e", "stderr", "-p", f"{made / 'server'}/", "-c", "nginx.conf"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr


REFUSED = {
    "exists": ("--out", "{made}"),
    "without https://": ("--server", "https://fl.example.org"),
    "as in fl.example.org": ("--server", "10.0.0"),
    "small letters": ("--node", "../hospital"),
    "server and authority are taken": ("--node", "server"),
    "is there twice": ("--node", "hospital-a"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_made_is_refused_and_leaves_nothing(
    reason: str, made: Path, cli: CommandLine, tmp_path: Path
) -> None:
    before = sorted(str(file) for file in made.rglob("*"))
    more = [word.format(made=made) for word in REFUSED[reason]]
    result = cli.here(*INIT, "--out", tmp_path / "new", *more)
    assert result.code == 2
    assert reason in " ".join(result.err.split())
    assert not (tmp_path / "new").exists()
    assert sorted(str(file) for file in made.rglob("*")) == before


def test_a_node_is_added_and_the_certificate_renewed(made: Path, cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    assert cli.here("flower", "add", "hospital-c", "--to", folder).code == 0
    assert read_machine(folder / "hospital-c").number == 2
    assert (folder / "server" / "nodes" / "hospital-c.pub").exists()
    assert "has a node hospital-c" in cli.here("flower", "add", "hospital-c", "--to", folder).err
    before = Place(folder / "server").certificate.read_bytes()
    renew = ("flower", "renew", folder / "server", "--authority")
    assert cli.here(*renew, folder / "authority").code == 0
    own = x509.load_pem_x509_certificate(Place(folder / "server").certificate.read_bytes())
    own.verify_directly_issued_by(x509.load_pem_x509_certificate((made / "authority" / "ca.pem").read_bytes()))
    assert Place(folder / "server").certificate.read_bytes() != before
    assert cli.here(*renew, folder / "server" / "trust").code == 2  # it has no authority's key


def test_a_folder_of_something_else_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedfuseError, match=f"has no {FILE}"):
        read_machine(tmp_path)
    (tmp_path / FILE).write_text("role = 'king'\n")
    with pytest.raises(FedfuseError, match="role: "):
        read_machine(tmp_path)


def test_the_page_has_three_commands_for_each(made: Path) -> None:
    for name in ("server", *NODES):
        page = (made / name / "README.md").read_text()
        plain, containers = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        assert [len(block.splitlines()) for block in (plain, containers)] == [3, 3]
    assert "authority" in (made / "README.md").read_text()
    assert not re.search(r"@[A-Z_]+@", "".join(file.read_text() for file in made.rglob("*.md")))


def test_the_node_states_itself_as_its_folder_does(made: Path) -> None:
    command = programs(read_machine(made / "hospital-b"), Path("/x"))["supernode"].command
    config = command[command.index("--node-config") + 1]
    assert config == 'partition-id=1 name="hospital-b" memory-dir="/x/memory" data="/x/data"'
    assert json.dumps(config) in (made / "hospital-b" / "compose.yaml").read_text().replace("/federation", "/x")
