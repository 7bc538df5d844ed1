"""Several hosts on one machine, and a real Slurm over them, for tests that need a cluster.

A host is a set of Linux namespaces: it has its own network, hostname, processes, /dev/shm, /run
and sshd, and a folder `disk` that the other hosts do not see. The rest of the disk is shared. A
host lives as long as its first process. When that one is killed, or whoever started it, the kernel
ends all of its processes and takes away its mounts and its network: nothing is left behind.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

from runs import launcher, limit

PORT = 2222
CPUS = 16
"""What each host tells Slurm that it has; it does not check."""
PATIENCE = limit()
TEMPORARY = "/run"
"""Each host's own. Open MPI's daemons have folders there that are named by nothing but their PID,
and processes of several hosts have the same ones here."""
FOR_HOSTS = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
}
FOR_SLURM = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "munged": "munge",
}
SYSTEM = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing(programs: dict[str, str]) -> str | None:
    """Why there can be no test bed here; None if there can."""
    if os.geteuid() != 0:
        return "the test bed makes network namespaces, which needs root"
    packages = [p for program, p in programs.items() if not shutil.which(program, path=SYSTEM)]
    if packages:
        return f"the test bed needs Debian's packages {' '.join(packages)}"
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else None


BOOT = """
set -e
export PATH=$PATH:/usr/sbin:/sbin
hostname {name}
mount -t tmpfs run /run
mount -t tmpfs -o size=1g shm /dev/shm
mount -t tmpfs disk {folder}/disk
mkdir /run/sshd /run/munge /run/slurm /run/cgroup
# /sys shows the network of whoever mounts it, and Open MPI looks there; slurmd wants its cgroups.
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/cgroup /sys/fs/cgroup
mount --bind {folder}/hosts /etc/hosts
ip link set lo up
echo up
read -r
ip addr add {address}/24 dev eth0
ip link set eth0 up
$(command -v sshd) -f {folder}/sshd_config -E {folder}/{name}.sshd.log
echo ready
# The first process of a host takes in what others leave behind, which bash does while it waits.
while :; do sleep 1000 & wait; done
"""

SSHD = """
Port {port}
HostKey {folder}/hostkey
AuthorizedKeysFile {folder}/key.pub
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
MaxStartups 200
MaxSessions 200
SetEnv TMPDIR={temporary}
"""

SSH = """
Host *
  Port {port}
  User root
  IdentityFile {folder}/key
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  BatchMode yes
"""


class Host:
    """One host; `pid` is its first process, seen from outside."""

    def __init__(self, name: str, script: str, core: int = 0) -> None:
        self.name, self.pid = name, 0
        # One core each: ranks that share it sleep while they wait, as they should on this machine.
        cores = sorted(os.sched_getaffinity(0))
        self.on_core = ["taskset", "--cpu-list", str(cores[core % len(cores)])]
        command = [
            *self.on_core,
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--net",
            "--uts",
            "--ipc",
        ]
        command += ["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        self.process = subprocess.Popen(
            [*command, "bash", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.expect("up")
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        self.pid = int(Path(children).read_text().split()[0])

    def expect(self, word: str) -> None:
        """Wait until its first process says `word`."""
        assert self.process.stdout
        said = self.process.stdout.readline().strip()
        assert said == word, f"host {self.name} did not start: {said!r}"

    def go_on(self) -> None:
        """There is a network now."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.expect("ready")

    def enter(self) -> list[str]:
        """What to put before a command to have it run there."""
        namespaces = ["--net", "--uts", "--ipc", "--mount", "--pid"]
        enter = ["nsenter", "--target", str(self.pid), *namespaces, f"--wd={os.getcwd()}"]
        return [*self.on_core, *enter, "env", f"TMPDIR={TEMPORARY}"]

    def kill(self) -> None:
        """Take it away, with everything that runs there."""
        self.process.kill()  # and with it its child, the first process of the host
        self.process.wait()
        while Path(f"/proc/{self.pid}/ns").exists():
            time.sleep(0.02)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


class Bed:
    """Hosts n1, n2, ... on a switch of their own. Use it in a `with` statement."""

    def __init__(self, folder: Path, hosts: int = 3) -> None:
        self.folder = folder
        self.names = [f"n{k}" for k in range(1, hosts + 1)]
        self.hosts: list[Host] = []
        self.switch: Host | None = None
        self.daemons: list[subprocess.Popen] = []

    def __enter__(self) -> "Bed":
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in (*self.hosts, *([self.switch] if self.switch else [])):
            host.kill()
        for daemon in self.daemons:
            daemon.wait()

    @property
    def disk(self) -> Path:
        """A folder that each host has for itself."""
        return self.folder / "disk"

    @property
    def ssh(self) -> Path:
        """The `ssh` for mpirun: it knows the port and the key."""
        return self.folder / "ssh"

    def _start(self) -> None:
        self.disk.mkdir(parents=True)
        for key in ("key", "hostkey"):
            path = str(self.folder / key)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        addresses = {name: f"10.77.0.{k}" for k, name in enumerate(self.names, start=1)}
        lines = ["127.0.0.1 localhost", *(f"{ip} {name}" for name, ip in addresses.items())]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        for name, text in (("sshd_config", SSHD), ("ssh_config", SSH)):
            (self.folder / name).write_text(
                text.format(folder=self.folder, port=PORT, temporary=TEMPORARY)
            )
        self.ssh.write_text(f'#!/bin/sh\nexec ssh -F {self.folder}/ssh_config "$@"\n')
        self.ssh.chmod(0o755)
        # A host of its own, so that nothing of this network is seen outside.
        self.switch = Host("switch", "echo up; while :; do sleep 1000 & wait; done")
        self._at_switch("link add br0 type bridge")
        self._at_switch("link set br0 up")
        for name, ip in addresses.items():
            host = Host(
                name, BOOT.format(name=name, folder=self.folder, address=ip), len(self.hosts)
            )
            self.hosts.append(host)
            self._at_switch(f"link add {name} type veth peer name eth0 netns {host.pid}")
            self._at_switch(f"link set {name} master br0 up")
            host.go_on()

    def _at_switch(self, what: str) -> None:
        assert self.switch
        command = ["nsenter", "--target", str(self.switch.pid), "--net", "ip", *what.split()]
        subprocess.run(command, check=True, env=os.environ | {"PATH": SYSTEM})

    def cut(self, name: str) -> None:
        """Pull the plug of a host's network: nobody is told."""
        self._at_switch(f"link set {name} down")

    def mend(self, name: str) -> None:
        """Plug it in again."""
        self._at_switch(f"link set {name} up")

    def command(self, command: list, host: int = 1, timeout: float = PATIENCE) -> list[str]:
        """`command` on a host, never for longer than `timeout` seconds.

        Open MPI's mpirun over ssh sometimes does not end after a very short program.
        """
        limit = ["timeout", "-k", "5", str(timeout)]
        return [*self.hosts[host - 1].enter(), *limit, *map(str, command)]

    def run(
        self, *command: object, host: int = 1, timeout: float = PATIENCE, **more: str
    ) -> subprocess.CompletedProcess:
        """Run `command` on a host, with `more` in its environment."""
        return subprocess.run(
            self.command(list(command), host, timeout),
            env=environment() | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def serve(self, *command: object, host: int) -> None:
        """Run a daemon on a host, until the host goes away."""
        log = self.folder / f"{self.names[host - 1]}.{command[0]}.log"
        with open(log, "ab") as file:
            self.daemons.append(
                subprocess.Popen(
                    [*self.hosts[host - 1].enter(), *map(str, command)],
                    env={"PATH": SYSTEM},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            )


def environment() -> dict[str, str]:
    """How ranks are started: by this Python, whose mpirun is first on the PATH."""
    clean = {k: v for k, v in launcher().items() if not k.startswith(("SLURM", "MPI4PY"))}
    return clean | {"PATH": f"{clean['PATH']}:/usr/sbin:/sbin"}


CONFIGURATION = """
ClusterName=bed
SlurmctldHost=n1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/munge.sock
CredType=cred/munge
# Every host has a /run of its own. Open MPI's sockets go under TmpFS.
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool
TmpFS=/run/slurm
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,sched_min_interval=100000,bf_interval=5
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
JobRequeue=1
MinJobAge=3600
KillWait=20
SlurmdTimeout=10
MailProg=/bin/true
PropagateResourceLimits=NONE
NodeName=n[1-{hosts}] CPUs={cpus} RealMemory=4000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=60 State=UP
"""


class Slurm:
    """A real Slurm over the hosts of a bed: slurmctld on n1, a slurmd and a munged on each."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.conf = bed.folder / "slurm.conf"
        self.conf.write_text(CONFIGURATION.format(hosts=len(bed.hosts), cpus=CPUS))
        key = bed.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munged = ["munged", "--foreground", "--force", f"--key-file={key}"]
        munged += [f"--{what}-file=/run/munge/munge.{what}" for what in ("pid", "log", "seed")]
        munged += ["--socket=/run/munge/munge.sock"]
        every = range(1, len(bed.hosts) + 1)
        for host in every:
            bed.serve(*munged, host=host)
        for host in every:
            self._until(
                lambda host=host: (
                    not bed.run("test", "-S", "/run/munge/munge.sock", host=host).returncode
                )
            )
        bed.serve("slurmctld", "-D", "-c", "-f", self.conf, host=1)
        for host in every:
            bed.serve("slurmd", "-D", "-f", self.conf, host=host)
        self._until(lambda: len(self.ask("sinfo -h -N -t idle -o %N").split()) == len(bed.hosts))

    def _until(self, true) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            logs = [log.read_text()[-1000:] for log in self.bed.folder.glob("*.log")]
            assert time.monotonic() < end, "\n".join(logs)
            time.sleep(0.3)

    def run(
        self, *command: object, timeout: float = PATIENCE, **more: str
    ) -> subprocess.CompletedProcess:
        """Run `command` on n1, where it finds Slurm."""
        return self.bed.run(*command, timeout=timeout, SLURM_CONF=str(self.conf), **more)

    def ask(self, command: str) -> str:
        """What one of Slurm's own commands prints."""
        return self.run(*command.split(), timeout=PATIENCE).stdout

    def submit(self, script: Path, *options: object, **more: str) -> int:
        """The number of the job that `sbatch` makes of a script."""
        *before, log = options
        done = self.run("sbatch", "--parsable", f"--output={log}", *before, script, **more)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.strip().split(";")[0])

    def state(self, job: int) -> str:
        """PENDING, RUNNING, COMPLETED, ..."""
        lines = self.ask(f"scontrol -o show job {job}").split()
        return next((w.split("=")[1] for w in lines if w.startswith("JobState=")), "")

    def wait(self, job: int, timeout: float = PATIENCE) -> str:
        """The state in which a job ended."""
        end = time.monotonic() + timeout
        while (state := self.state(job)) in ("", "PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
            assert time.monotonic() < end, f"job {job} is still {state}"
            time.sleep(0.5)
        return state
