"""The wall clock of commands, daemon and runners, which can be set; keepers and replicas have the real one."""
import struct

DAY = 24 * 3600
WRONG_BY_S = (0, 1, -1, 60, -60, 3600, -3600, 8 * DAY, -8 * DAY, 10 * 365 * DAY, -10 * 365 * DAY)


class Clock:
    def __init__(self, library, path):
        self.unavailable = "" if library.exists() else f"{library} is not there"
        self.env = {}
        if self.unavailable:
            return
        self.path = path
        path.write_bytes(struct.pack("=q", 0))
        self.env = {"LD_PRELOAD": str(library), "JUMPING_CLOCK": str(path)}

    def set(self, number):
        """By how many seconds it is wrong now, or None."""
        if self.unavailable:
            return None
        seconds = WRONG_BY_S[number % len(WRONG_BY_S)]
        with open(self.path, "r+b") as file:
            file.write(struct.pack("=q", seconds))
        return seconds
