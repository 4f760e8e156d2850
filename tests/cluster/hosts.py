"""Ranks on several hosts: networks of their own on this one."""

import re
import subprocess
import time
import uuid

from harness import (
    FAULT_SECONDS,
    LONG,
    MLP,
    SPMDRUN,
    Failed,
    Run,
    devices,
    expect,
    free_port,
    networks,
    simulated_devices,
    test,
    torchrun,
)


class Hosts:
    """Two hosts, as far as their network goes: ranks 0 and 1 on the first, 2 and 3 on the second,
    with devices."""

    def __enter__(self):
        self.names = [f"spmd{uuid.uuid4().hex[:8]}{i}" for i in range(2)]
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            first, second = self.names
            self.ip(
                "link",
                "add",
                "wire",
                "netns",
                first,
                "type",
                "veth",
                "peer",
                "name",
                "wire",
                "netns",
                second,
            )
            for i, name in enumerate(self.names):
                self.ip("-n", name, "address", "add", f"10.0.0.{i + 1}/24", "dev", "wire")
                for link in ("lo", "wire"):
                    self.ip("-n", name, "link", "set", link, "up")
        except Failed:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    @staticmethod
    def ip(*words):
        ended = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        expect(ended.returncode == 0, f"ip {' '.join(words)}", ended.stderr)

    def cut(self):
        self.ip("-n", self.names[0], "link", "set", "wire", "down")

    def start(self, *words):
        port = free_port()
        return [
            Run(
                ["ip", "netns", "exec", self.names[rank // 2], SPMDRUN, "--backend=nccl", *words],
                **torchrun(
                    rank,
                    4,
                    port,
                    MASTER_ADDR="10.0.0.1",
                    LOCAL_RANK=str(rank % 2),
                    LOCAL_WORLD_SIZE="2",
                    SPMD_STORE_TOKEN="x",
                ),
            )
            for rank in range(4)
        ]


@test(needs=(simulated_devices, networks))
def several_hosts():
    with devices(), Hosts() as hosts:
        ended = [each.finish() for each in hosts.start("--check=all", MLP)]
    expect(all(code == 0 for code, _, _ in ended) and "4 ranks" in ended[0][1], "exit codes", ended)


@test(fault=True, needs=(simulated_devices, networks))
def host_cut_off():
    """The ranks of either host end, each host says why, and rank 0 says which one is gone."""
    with devices(), Hosts() as hosts:
        runs = hosts.start("--timeout=5", "--format=concise", *LONG, MLP)
        for rank, each in enumerate(runs):
            each.begun(rank, [rank])
        struck = time.monotonic()
        hosts.cut()
        ended = [each.finish() for each in runs]
    expect(all(code == 3 for code, _, _ in ended), "exit codes", ended)
    said = ended[0][1] + ended[0][2]
    expect(
        said.count("error[") == 1
        and re.search(r"error\[run-(lost-rank|timeout)\]: .*rank [23]\b", said),
        "one finding",
        said,
    )
    expect(time.monotonic() - struck < FAULT_SECONDS, "too late", ended)
