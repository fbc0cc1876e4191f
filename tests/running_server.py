"""`mantou serve` as a child process, for tests/soak and tests/operation."""
import pathlib
import re
import signal
import subprocess
import time


class RunningServer:
    """Started with flags, ended in order when the block ends. Its log is in `log_file`."""

    def __init__(self, mantou, model, log_file, *flags):
        self.log_file = pathlib.Path(log_file)
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen([mantou, "serve", "-m", model, "--port", "0", *flags],
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        # One line, once the model is there; nothing when the server could not start.
        said = self.process.stdout.readline()
        found = re.search(r"is served at (\S+)", said)
        if not found:
            self.process.wait()
            raise RuntimeError(f"no server: {self.log()}")
        self.url = found.group(1).removesuffix("/v1")
        port = re.search(r":(\d+)$", self.url)
        self.port = int(port.group(1)) if port else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def log(self):
        return self.log_file.read_text(errors="replace")

    def logged(self, text, seconds=10):
        """Waits until the log holds `text`."""
        deadline = time.monotonic() + seconds
        while text not in self.log():
            if time.monotonic() > deadline:
                raise AssertionError(f"the log lacks {text!r}:\n{self.log()}")
            time.sleep(0.01)

    def threads(self):
        return self._status("Threads")

    def resident(self):
        """Resident memory in MiB."""
        return self._status("VmRSS") / 1024

    def descriptors(self):
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def _status(self, key):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{key}:\s+(\d+)", text, re.MULTILINE).group(1))
