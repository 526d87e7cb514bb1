"""Hosts on one machine: network namespaces that share nothing but a virtual switch. Needs root."""
import os
import shutil
import subprocess


class Network:
    def __init__(self, hosts):
        self.prefix = f"chaos{os.getpid()}"
        self.made = []
        self.unavailable = ""
        if os.geteuid() != 0:
            self.unavailable = "network namespaces need root"
        elif shutil.which("ip") is None or shutil.which("nsenter") is None:
            self.unavailable = "no `ip` or `nsenter` command (packages iproute2, util-linux)"
        else:
            self.build(hosts)
        self.hosts = 0 if self.unavailable else hosts

    def build(self, hosts):
        switch = f"{self.prefix}-switch"
        try:
            self.add(switch)
            self.ip("-n", switch, "link", "add", "bridge", "type", "bridge")
            self.ip("-n", switch, "link", "set", "bridge", "up")
            for host in range(hosts):
                name, port = self.name(host), f"port{host}"
                self.add(name)
                self.ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0",
                        "netns", name)
                self.ip("-n", switch, "link", "set", port, "master", "bridge", "up")
                self.ip("-n", name, "addr", "add", self.address(host) + "/24", "dev", "eth0")
                self.ip("-n", name, "link", "set", "lo", "up")
                self.ip("-n", name, "link", "set", "eth0", "up")
        except subprocess.CalledProcessError as error:
            self.unavailable = f"no network namespaces here: {error.stderr.strip()}"
            self.close()

    def ip(self, *words):
        subprocess.run(("ip",) + words, check=True, capture_output=True, text=True, timeout=60)

    def add(self, name):
        self.ip("netns", "add", name)
        self.made.append(name)

    def name(self, host):
        return f"{self.prefix}-{host}"

    @staticmethod
    def address(host):
        return f"10.67.0.{host + 1}"

    def inside(self, host):
        """What a command line begins with to run there."""
        return ["nsenter", f"--net=/run/netns/{self.name(host)}"]

    def close(self):
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, timeout=60)
        self.made = []
