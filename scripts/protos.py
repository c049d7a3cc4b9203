"""Makes what is generated of the gRPC listener's .proto: its messages, and their types.

Only messages are generated: the services are read from their descriptor. What comes out is
committed, so that nothing but `make protos` needs the compiler.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[1]
ROOM = "node/listeners/grpc/protocol"
NAME = "goqueue/v1/goqueue"
"""As reflection tells it, and as stubs of other languages import it."""


def main(into: Path) -> int:
    """Write goqueue_pb2.py and goqueue_pb2.pyi into this folder; 0, or what the compiler says."""
    with TemporaryDirectory() as folder:
        source = Path(folder) / f"{NAME}.proto"
        source.parent.mkdir(parents=True)
        source.write_bytes((ROOT / ROOM / "goqueue.proto").read_bytes())
        wanted = [f"--python_out={folder}", f"--pyi_out={folder}", f"{NAME}.proto"]
        known = str(Path(protoc.__file__).parent / "_proto")
        code: int = protoc.main(["protoc", f"-I{folder}", f"-I{known}", *wanted])
        if code == 0:
            for suffix in ("py", "pyi"):
                made = Path(folder) / f"{NAME}_pb2.{suffix}"
                (into / made.name).write_bytes(made.read_bytes())
    return code


if __name__ == "__main__":
    sys.exit(main(ROOT / ROOM if len(sys.argv) < 2 else Path(sys.argv[1])))
