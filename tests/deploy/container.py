"""A container of a rendered pod, run without an engine: its command, environment, files, user and
read-only root as the manifest has them, in a network and a mount namespace of its own.

The root it sees is a memory file system with this machine's programs and the project bound into it,
read-only, as an image would hold them. Needs root, `nsenter`, `unshare` and `setpriv`.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PROGRAMS = ("ip", "nsenter", "unshare", "setpriv", "chroot", "mount")
FROM_HOST = ("passwd", "group", "nsswitch.conf", "ssl", "ld.so.cache", "localtime")

_ROOT = """set -e
root=$1; shift
mount -t tmpfs -o mode=755 pod "$root"
bind() {
  if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; touch "$root$2"; fi
  mount --rbind "$1" "$root$2"
  [ -z "$3" ] || mount -o "remount,bind,$3" "$root$2"
}
for link in /bin /sbin /lib /lib32 /lib64; do [ ! -e $link ] || cp -P $link "$root$link"; done
mkdir -p "$root/etc" "$root/proc"
for name in FROM_HOST; do [ ! -e "/etc/$name" ] || cp -rL "/etc/$name" "$root/etc/$name"; done
mount -t proc proc "$root/proc"
bind /dev /dev
while [ "$1" != -- ]; do bind "$1" "$2" "$3"; shift 3; done
shift
mount -o remount,ro "$root"
exec chroot "$root" "$@"
""".replace("FROM_HOST", " ".join(FROM_HOST))


def missing() -> str | None:
    """Why containers can't be run here, or None."""
    if os.geteuid() != 0:
        return "not root"
    if Path(sys.executable).is_relative_to("/tmp"):
        return "the checkout is below /tmp, where a pod has a volume of its own"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"no {', '.join(absent)}"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "true"], capture_output=True, text=True, check=False
    )
    return tried.stderr.strip() if tried.returncode else None


@dataclass
class Container:
    """The only container of `template`, the StatefulSet's; `objects` are all that was rendered.

    `claims` are the folders of claimed volumes by name; `enter` begins a command in the pod's
    network. What it prints goes to `folder`/log.
    """

    template: Json
    objects: Sequence[Json]
    folder: Path
    pod: str
    namespace: str
    machine: str
    hosts: Path
    account: Path
    claims: Mapping[str, Path]
    service: tuple[str, int]
    enter: Sequence[str]
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def spec(self) -> Json:
        (container,) = self.template["spec"]["containers"]
        return dict(container)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "root").mkdir(exist_ok=True)
        spec = self.spec
        command = [*spec["command"], *spec.get("args", [])]
        mounts = [word for source, target, how in self._mounts() for word in (source, target, how)]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *self.enter,
                    *("unshare", "--mount", "--propagation", "private"),
                    *("sh", "-c", _ROOT, "sh", str(self.folder / "root")),
                    *(*mounts, "--", *self._as_user(command)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def run(self, command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        """A command in the running container, as `exec` hooks are. Raises TimeoutExpired."""
        assert self.process is not None
        inside = ["nsenter", f"--target={self.process.pid}", "--mount", "--net", "--root", "--wd=/"]
        return subprocess.run(
            [*inside, *self._as_user(command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # private

    def _as_user(self, command: Sequence[str]) -> list[str]:
        security = {
            **self.template["spec"].get("securityContext", {}),
            **self.spec["securityContext"],
        }
        assert security["readOnlyRootFilesystem"], "the root that is made is read-only"
        user = [
            "setpriv",
            f"--reuid={security['runAsUser']}",
            f"--regid={security['runAsGroup']}",
            f"--groups={security['fsGroup']}",
            *("--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"),
        ]
        told = [f"{name}={value}" for name, value in self._environment().items()]
        return [*user, "env", "-i", *told, *command]

    def _environment(self) -> dict[str, str]:
        host, port = self.service
        found = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": str(port),
        }
        for one in self.spec["env"]:
            value = self._value(one) if "valueFrom" in one else str(one["value"])
            for name, known in found.items():
                value = value.replace(f"$({name})", known)
            found[one["name"]] = value
        return found

    def _value(self, one: Json) -> str:
        fields = {
            "metadata.name": self.pod,
            "metadata.namespace": self.namespace,
            "spec.nodeName": self.machine,
        }
        return fields[one["valueFrom"]["fieldRef"]["fieldPath"]]

    def _mounts(self) -> list[tuple[str, str, str]]:
        """Of each: what, where to, and with which options."""
        image = dict.fromkeys(("/usr", sys.base_prefix, sys.prefix, str(ROOT)), "ro")
        found = [(path, path, how) for path, how in image.items()]
        found.append((str(self.hosts), "/etc/hosts", "ro"))
        if self.template["spec"].get("automountServiceAccountToken", True):
            found.append((str(self.account), ACCOUNT, "ro"))
        volumes = {volume["name"]: volume for volume in self.template["spec"]["volumes"]}
        for mount in self.spec["volumeMounts"]:
            source = self._volume(mount["name"], volumes.get(mount["name"]))
            if "subPath" in mount:
                source /= mount["subPath"]
            how = "ro" if mount.get("readOnly") else "rw"
            found.append((str(source), mount["mountPath"], how))
        return found

    def _volume(self, name: str, volume: Json | None) -> Path:
        if volume is None:
            return self._owned(self.claims[name], 0o2770)
        folder = self.folder / "volumes" / name
        folder.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume:
            return self._owned(folder, 0o2777)
        for source in volume.get("projected", {}).get("sources", [volume]):
            for path, content in self._files(source):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
                self._owned(folder / path, 0o440)
        return self._owned(folder, 0o2750)

    def _files(self, source: Json) -> list[tuple[str, bytes]]:
        kind = "Secret" if "secret" in source else "ConfigMap"
        told = source.get("secret") or source["configMap"]
        name = told.get("secretName") or told["name"]
        (found,) = (
            one for one in self.objects if (one["kind"], one["metadata"]["name"]) == (kind, name)
        )
        data = {key: text.encode() for key, text in found.get("stringData", {}).items()}
        for key, text in (found.get("data") or {}).items():
            data[key] = base64.b64decode(text) if kind == "Secret" else text.encode()
        items = told.get("items") or [{"key": key, "path": key} for key in data]
        return [(item["path"], data[item["key"]]) for item in items]

    def _owned(self, path: Path, mode: int) -> Path:
        """As a volume is, of whom `fsGroup` may use it."""
        path.mkdir(parents=True, exist_ok=True) if not path.exists() else None
        os.chown(path, 0, self.template["spec"]["securityContext"]["fsGroup"])
        path.chmod(mode)
        return path
