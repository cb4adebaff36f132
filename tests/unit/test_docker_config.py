"""What Docker is asked for, to the letter: a change of any barrier shows here."""

from aeolus_sandbox.engine.base import ContainerSpec
from aeolus_sandbox.engine.docker_config import container_config
from aeolus_sandbox.hardening import container_spec
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.profiles import Mount, SandboxProfile


def _spec(profile: SandboxProfile) -> ContainerSpec:
    return container_spec(
        profile,
        image="aeolus/shell:0123456789ab",
        argv=("sh", "-c", "echo hello"),
        limits=Limits(),
        labels={"aeolus.owner": "me", "aeolus.session": "s"},
        seccomp='{"defaultAction": "SCMP_ACT_ERRNO"}',
    )


def test_the_body_of_the_create_call() -> None:
    mount = Mount(source="/var/log/app", target="/logs")
    profile = SandboxProfile(image="shell", mounts=(mount,), groups=(4,))
    assert container_config(_spec(profile)) == {
        "Image": "aeolus/shell:0123456789ab",
        "Cmd": ["sh", "-c", "echo hello"],
        "Entrypoint": [],
        "Env": ["HOME=/workspace", "LANG=C.UTF-8", "TMPDIR=/tmp"],
        "WorkingDir": "/workspace",
        "User": "10001:10001",
        "Hostname": "sandbox",
        "Labels": {"aeolus.owner": "me", "aeolus.session": "s"},
        "Tty": False,
        "NetworkDisabled": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": {
            "Init": True,
            "NetworkMode": "none",
            "IpcMode": "private",
            "LogConfig": {"Type": "none"},
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", 'seccomp={"defaultAction": "SCMP_ACT_ERRNO"}'],
            "Memory": 1073741824,
            "MemorySwap": 1073741824,
            "NanoCpus": 1000000000,
            "PidsLimit": 128,
            "OomScoreAdj": 500,
            "ShmSize": 16777216,
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "nofile", "Soft": 1024, "Hard": 1024},
                {"Name": "fsize", "Soft": 268435456, "Hard": 268435456},
            ],
            "Tmpfs": {
                "/tmp": "rw,nosuid,nodev,exec,size=67108864,mode=1777,uid=10001,gid=10001",
                "/workspace": "rw,nosuid,nodev,exec,size=268435456,mode=700,uid=10001,gid=10001",
            },
            "GroupAdd": ["4"],
            "Mounts": [
                {
                    "Type": "bind",
                    "Source": "/var/log/app",
                    "Target": "/logs",
                    "ReadOnly": True,
                    "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
                }
            ],
        },
    }


def test_a_terminal_and_a_runtime_are_passed_on() -> None:
    spec = _spec(SandboxProfile(image="shell", tty=True)).model_copy(
        update={"runtime": "runsc", "seccomp": None}
    )
    body = container_config(spec)
    assert body["Tty"] is True
    assert "TERM=xterm-256color" in body["Env"]
    assert body["HostConfig"]["Runtime"] == "runsc"
    assert body["HostConfig"]["SecurityOpt"] == ["no-new-privileges"]
