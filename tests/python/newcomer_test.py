"""A newcomer's path: pip install, entrain audit, a Trainer with the sampler; every command, timed.

Called by a Python that has torch and transformers (make trainers): its packages stand for the newcomer's own
environment, into which a new virtual environment's pip installs this project.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MISSING = [
    name for name in ("torch", "transformers", "datasets") if importlib.util.find_spec(name) is None
]


@unittest.skipIf(MISSING, f"{', '.join(MISSING)} not installed")
class Newcomer(unittest.TestCase):
    def call(self, what, *command):
        begin = time.perf_counter()
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env=environment | {"OMP_NUM_THREADS": "1"},
        )
        print(f"{what}: {time.perf_counter() - begin:.1f} s")
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        return done.stdout

    def test_installs_audits_and_trains(self):
        with tempfile.TemporaryDirectory() as folder:
            self.folder = Path(folder)
            self.call("python -m venv", sys.executable, "-m", "venv", "own")
            program = self.folder / "own" / "bin"
            version = f"python{sys.version_info.major}.{sys.version_info.minor}"
            packages = self.folder / "own" / "lib" / version / "site-packages"
            (packages / "theirs.pth").write_text(sysconfig.get_paths()["purelib"])
            self.call("pip install .", program / "pip", "install", "--quiet", ROOT)
            script = (
                "import sys; sys.path.insert(0, sys.argv[1])\n"
                "from tiny_vlm import TinyData, tiny_model\n"
                "import entrain, shutil\n"
                "index = entrain.Index.from_rows(TinyData(256).rows())\n"
                "shutil.copy(index.path, 'sizes.csv'); tiny_model().save_pretrained('model')\n"
            )
            self.call(
                "sizes of their data", program / "python", "-c", script, ROOT / "examples/trainers"
            )
            report = self.call("entrain audit", program / "entrain", *self.audit_of_the_readme())
            self.assertIn("The sampler takes", report)
            self.assertIn("</html>", (self.folder / "audit.html").read_text())
            launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
            trainer = ROOT / "examples/trainers/hf_trainer.py"
            text = self.call("a Trainer", program / "python", *launch, trainer, "--output", "run")
            self.assertEqual(len(json.loads(text.splitlines()[-1])), 6)

    def audit_of_the_readme(self):
        """Its words, at the ranks that these samples suffice for."""
        line = re.search(
            r"^entrain audit (sizes.*)$", (ROOT / "README.md").read_text(), re.MULTILINE
        )[1]
        return [
            "audit",
            *line.replace("config.json", "model/config.json").replace("64", "8").split(),
        ]


if __name__ == "__main__":
    unittest.main()
