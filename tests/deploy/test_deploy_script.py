"""deploy/deploy.sh: what it runs, in which order, and where it stops."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.report import Report
from tests.deploy.stand_ins import NEW, PROGRAMS, ROOT, Machine

SCRIPT = ROOT / "deploy/deploy.sh"
TARGETS = ("kind", "dev", "prod")
COMMANDS = ("deploy", "goqueue", "upgrade", "url", "status", "benchmark", "destroy")
PROBES = ("kind get kubeconfig", "aws ecr describe-images")
IMAGE = ("--image", "registry.example.com:5000/goqueue:1.2")
TOLD = "--build-arg VERSION=0.3.0 --build-arg REVISION=abc123"
"""What an image says of itself."""
SECRET = "goqueue-admin"
"""`url` tells how to read it, and does not read it."""
BUCKET = {"GOQUEUE_STATE_BUCKET": "states"}
CASES = [
    *((command, target) for command in COMMANDS for target in TARGETS),
    *((command, *IMAGE) for command in ("goqueue", "upgrade")),
    *((command,) for command in ("url", "status", "benchmark")),
]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def words(call: list[str]) -> str:
    return " ".join(call)


def test_shellcheck_finds_nothing(report: Report) -> None:
    report.not_executed("deploy.sh ran with stand-ins of kind, kubectl, helm, docker and aws only.")
    program = shutil.which("shellcheck")
    if program is None:
        report.not_executed("shellcheck is not installed: deploy.sh was not checked by it.")
        pytest.skip("shellcheck is not installed (Debian: apt-get install shellcheck)")
    done = subprocess.run([program, str(SCRIPT)], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
    report.executed("deploy/deploy.sh", "shellcheck")


@pytest.mark.parametrize("arguments", CASES, ids=" ".join)
def test_a_dry_run_calls_nothing_and_prints_a_script_that_does_the_same(
    machine: Machine, arguments: tuple[str, ...]
) -> None:
    told = machine.deploy(*arguments, "--dry-run", env=BUCKET)
    assert (told.code, told.calls) == (0, []), told.stderr
    assert told.stdout.startswith("# ")
    assert not (machine.folder / "build").exists()

    real = machine.deploy(*arguments, env=BUCKET)
    assert real.code == 0, real.stderr
    printed = machine.run(["bash", "-euc", told.stdout])
    assert printed.code == 0, printed.stderr

    assert {words(one) for one in real.calls} == {
        words(one) for one in printed.calls if SECRET not in one
    }


def test_kind_gets_cluster_image_chart_and_test_in_this_order(machine: Machine) -> None:
    ran = machine.deploy("deploy", "kind")

    tag = "0.3.0-abc123"
    helm = "helm --kube-context kind-goqueue --namespace goqueue"
    assert [words(call) for call in ran.calls] == [
        "kind get kubeconfig --name goqueue",
        "kind create cluster --name goqueue --config deploy/kind/cluster.yaml --wait 3m",
        f"docker build {TOLD} --file deploy/docker/Dockerfile --tag goqueue:{tag} .",
        f"kind load docker-image goqueue:{tag} --name goqueue",
        f"{helm} upgrade goqueue deploy/helm/goqueue --install --create-namespace"
        f" --reset-then-reuse-values -f deploy/kind/values.yaml --set-string image.tag={tag}",
        "kubectl --context kind-goqueue --namespace goqueue rollout status statefulset/goqueue"
        " --timeout=15m",
        f"{helm} test goqueue --logs",
    ]


def test_dev_is_made_by_terraform_and_the_chart_gets_its_outputs(machine: Machine) -> None:
    ran = machine.deploy("deploy", "dev", "--yes", "--region", "eu-central-1")

    assert ran.code == 0, ran.stderr
    lines = [words(call) for call in ran.calls if "output" not in call]
    terraform = "terraform -chdir=deploy/terraform/environments/dev"
    image = "1.example.com/dev/goqueue:0.3.0-abc123"
    there = (
        "aws ecr describe-images --region eu-central-1 --repository-name dev/goqueue"
        " --image-ids imageTag=0.3.0-abc123"
    )
    helm = "helm --kube-context goqueue-dev --namespace queues"
    assert sorted(lines[5:7]) == [
        "aws ecr get-login-password --region eu-central-1",
        "docker login --username AWS --password-stdin 1.example.com",
    ]
    assert lines[:5] + lines[7:] == [
        f"{terraform} init -input=false",
        f"{terraform} apply -var region=eu-central-1 -auto-approve",
        "aws eks update-kubeconfig --name goqueue-dev --region eu-central-1 --alias goqueue-dev",
        there,
        f"docker build --platform linux/amd64 {TOLD}"
        f" --file deploy/docker/Dockerfile --tag {image} .",
        there,
        f"docker push {image}",
        f"{helm} upgrade goqueue deploy/helm/goqueue --install --create-namespace"
        " --reset-then-reuse-values -f build/deploy/dev/values.yaml"
        " --set-string image.tag=0.3.0-abc123",
        "kubectl --context goqueue-dev --namespace queues rollout status statefulset/goqueue"
        " --timeout=15m",
        f"{helm} test goqueue --logs",
    ]
    assert (
        machine.folder / "build/deploy/dev/values.yaml"
    ).read_text() == "image: {repository: r}\n"


@pytest.mark.parametrize(
    "arguments",
    [case for case in CASES if case[1:] != ("prod",) or case[0] == "destroy"],
    ids=" ".join,
)
def test_whatever_fails_is_named_and_nothing_comes_after_it(
    machine: Machine, arguments: tuple[str, ...]
) -> None:
    calls = machine.deploy(*arguments, env=BUCKET).calls
    failing = {words(call) for call in calls if not words(call).startswith(PROBES)}
    assert failing

    for one in failing:
        machine.exits = {f"{one} .": 7, **NEW}
        ran = machine.deploy(*arguments, env=BUCKET)

        assert ran.code == 1, one
        assert "failed: " in ran.stderr and "exit code 7 of: " in ran.stderr, one
        assert "the same command goes on from there" in ran.stderr
        assert one in {words(call) for call in ran.calls[-2:]}, "the last, or before it in a pipe"


def test_a_value_that_terraform_does_not_have_stops_it(machine: Machine) -> None:
    machine.exits["output -raw cluster_name"] = 0

    ran = machine.deploy("status", "dev")

    assert ran.code == 1
    assert "nothing was printed by: terraform" in ran.stderr
    assert [call[0] for call in ran.calls] == ["terraform", "terraform"]


def test_what_is_there_is_neither_made_nor_built_nor_pushed_again(machine: Machine) -> None:
    machine.exits.clear()

    kind = {words(call)[:11] for call in machine.deploy("deploy", "kind").calls}
    dev = {words(call)[:12] for call in machine.deploy("deploy", "dev", "--yes").calls}

    assert "kind create" not in kind and "helm --kube" in kind
    assert not {"docker build", "docker push "} & dev and "helm --kube-" in dev


def test_an_upgrade_begins_only_while_all_nodes_are_in_sync(machine: Machine) -> None:
    machine.exits["--timeout=60s"] = 1

    ran = machine.deploy("upgrade", "kind")

    assert ran.code == 1
    assert "all nodes are in sync" in ran.stderr
    assert [call[0] for call in ran.calls] == ["kubectl"]


@pytest.mark.parametrize("command", ["goqueue", "upgrade"])
@pytest.mark.parametrize("target", TARGETS)
def test_the_number_of_nodes_that_runs_is_kept(machine: Machine, command: str, target: str) -> None:
    """Five nodes, by `helm upgrade --set replicaCount=5`, were three again after an upgrade."""
    ran = machine.deploy(command, target, env=BUCKET)

    (upgrade,) = [call for call in ran.calls if call[0] == "helm" and "upgrade" in call]
    assert "--reset-then-reuse-values" in upgrade
    files = [upgrade[at + 1] for at, word in enumerate(upgrade) if word == "-f"]
    assert len(files) == (0 if (command, target) == ("upgrade", "kind") else 1)
    for file in files:
        assert "replicaCount:" not in (machine.folder / file).read_text()


def test_an_upgrade_does_not_install(machine: Machine) -> None:
    ran = machine.deploy("upgrade", "kind")

    (upgrade,) = [call for call in ran.calls if call[0] == "helm" and "upgrade" in call]
    assert "--install" not in upgrade


def test_a_cluster_of_others_gets_an_image_that_it_can_pull_and_their_values(
    machine: Machine,
) -> None:
    (machine.folder / "mine.yaml").write_text("replicaCount: 5\n")

    ran = machine.deploy("goqueue", *IMAGE, "--values", "mine.yaml", "--namespace", "messages")

    assert [words(call) for call in ran.calls][:2] == [
        "kubectl config current-context",
        "helm --kube-context theirs --namespace messages upgrade goqueue deploy/helm/goqueue"
        f" --install --create-namespace --reset-then-reuse-values -f {machine.folder}/mine.yaml"
        " --set-string image.repository=registry.example.com:5000/goqueue"
        " --set-string image.tag=1.2",
    ]


def test_an_image_may_be_named_by_digest(machine: Machine) -> None:
    digest = "sha256:" + 64 * "a"

    ran = machine.deploy("goqueue", "--context", "c", "--image", f"r.example.com/goqueue@{digest}")

    assert f"image.digest={digest}" in ran.calls[0]
    assert "image.repository=r.example.com/goqueue" in ran.calls[0]


def test_url_prints_what_a_shell_evaluates_and_no_secret(machine: Machine) -> None:
    ran = machine.deploy("url", "kind")

    assert ran.stdout.splitlines() == [
        f"export GOQUEUE_CA_FILE={machine.folder}/build/deploy/kind/ca.crt",
        "export GOQUEUE_SERVER=https://localhost:8443",
        'export GOQUEUE_API_KEY="$(kubectl --context kind-goqueue --namespace goqueue get secret'
        ' goqueue-admin -o \'go-template={{index .data "admin-key" | base64decode}}\')"',
    ]
    assert SECRET not in {word for call in ran.calls for word in call}


def test_the_benchmark_is_of_the_image_that_runs(machine: Machine) -> None:
    machine.deploy("benchmark", "kind")

    job = (machine.folder / "build/deploy/kind/benchmark.yaml").read_text()
    assert "image: goqueue:9.9\n" in job
    assert "https://goqueue.goqueue.svc:8080" in job


def test_prod_is_never_destroyed_without_terraforms_question(machine: Machine) -> None:
    prod = machine.deploy("destroy", "prod", "--yes", env=BUCKET).calls
    dev = machine.deploy("destroy", "dev", "--yes").calls

    assert words(prod[-1]).endswith("prod destroy")
    assert words(dev[-1]).endswith("dev destroy -auto-approve")
    assert not any("pvc,secret,configmap" in call for call in prod)
    assert any("pvc,secret,configmap" in call for call in dev)


@pytest.mark.parametrize("missing", PROGRAMS)
def test_a_missing_program_is_named_before_anything_is_done(machine: Machine, missing: str) -> None:
    machine.missing = (missing,)

    ran = machine.deploy("deploy", "kind" if missing == "kind" else "dev")

    assert (ran.code, ran.calls) == (3, [])
    assert f"  {missing}: http" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("deploy",), "deploy needs kind, dev or prod"),
        (("destroy",), "destroy needs kind, dev or prod"),
        (("deploy", "staging"), "there is no target staging"),
        (("install", "kind"), "there is no command install"),
        (("goqueue",), "needs --image"),
        (("goqueue", "--image", "goqueue"), "--image needs a tag or a digest"),
        (("deploy", "prod"), "GOQUEUE_STATE_BUCKET"),
        (("deploy", "kind", "--context", "theirs"), "--context is for"),
        (("deploy", "kind", "--force"), "there is no option --force"),
        (("deploy", "kind", "--values"), "--values needs a value"),
        (("deploy", "kind", "--values", "none.yaml"), "there is no file none.yaml"),
        (("deploy", "kind", "dev"), "what is dev?"),
    ],
)
def test_a_wrong_command_line_does_nothing(
    machine: Machine, arguments: tuple[str, ...], problem: str
) -> None:
    ran = machine.deploy(*arguments)

    assert (ran.code, ran.calls) == (2, [])
    assert problem in ran.stderr


def test_help_names_every_command_and_option(machine: Machine) -> None:
    told = machine.deploy("--help").stdout
    options = {word for word in SCRIPT.read_text().split() if word.startswith("--")}

    for command in COMMANDS:
        assert f"deploy.sh {command}" in told
    for option in ("--dry-run", "--context", "--values", "--state-bucket", "--image"):
        assert option in options and option in told
