"""The disks of the homes: each a small file system of its own that can be filled to the brim."""
import os
import subprocess

ROOMY = ["size=2g", "nr_inodes=200k"]


def mount(*words):
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode != 0 else ""


class Disk:
    """Memory in the place of a disk: filled by taking away the room, not by writing."""

    def __init__(self, path):
        self.path = path
        self.full = False
        path.mkdir(exist_ok=True)
        self.unavailable = ("needs root" if os.geteuid() != 0 else
                            mount("-t", "tmpfs", "-o", ",".join(ROOMY), "chaos", str(path)))

    def fill(self, number):
        """Leaves a few blocks or names, or none; says whether that could be done."""
        room = os.statvfs(self.path)
        left = number // 4 % 4 * 8
        if number % 4 == 0:
            limit = f"nr_inodes={room.f_files - room.f_ffree + left}"
        else:
            limit = f"size={(room.f_blocks - room.f_bfree + left) * room.f_frsize}"
        # Refused when somebody has written meanwhile.
        self.full = not mount("-o", f"remount,{limit}", str(self.path))
        return self.full

    def empty(self):
        """What mending did not work is a failure of the observer's: it raises."""
        self.full = False
        error = mount("-o", "remount," + ",".join(ROOMY), str(self.path))
        if error:
            raise RuntimeError(f"{self.path}: {error}")

    def close(self):
        if not self.unavailable:
            subprocess.run(["umount", "--lazy", str(self.path)], check=False)
