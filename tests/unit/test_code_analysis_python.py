"""What Python code is warned about, and what it is not."""

import pytest

from aeolus_sandbox.tools.code_interpreter.analysis import analyse
from aeolus_sandbox.tools.code_interpreter.analysis.python_rules import RULES

BREAKS = {
    "process_start": [
        "import subprocess\nsubprocess.run(['ls'])",
        "from subprocess import Popen as P\nP(['ls'])",
        "import multiprocessing as mp\nmp.Process(target=f).start()",
        "import asyncio\nawait asyncio.create_subprocess_exec('ls')",
    ],
    "shell_command": [
        "import os\nos.system('ls')",
        "from os import system as s\ns('ls')",
        "from os import *\nsystem('ls')",
        "import os as o\nx = o\ny = x.system\ny('ls')",
        "getattr(__import__('os'), 'sys' + 'tem')('ls')",
        "import importlib\nimportlib.import_module('os').system('ls')",
        "import posix\nposix.system('ls')",
        "import os\nvars(os)['system']('ls')",
        "import os\nos.__dict__['system']('ls')",
        "import sys\nsys.modules['os'].system('ls')",
        "import subprocess as sp\nsp.run('ls', shell=True)",
        "import subprocess\nsubprocess.getoutput('ls')",
        "import os\nlist(map(os.system, commands))",
        "def f():\n    import os\n    return os.system('ls')",
        "class A:\n    async def f(self):\n        return [os.popen(x) for x in y]",
    ],
    "fork": ["import os\nos.fork()"],
    "fork_bomb": ["import os\nwhile True:\n    os.fork()", "import os\n[os.fork() for _ in range(99)]"],
    "endless_process_loop": [
        "import subprocess\nwhile 1:\n    subprocess.Popen(['x'])",
        "import itertools, multiprocessing\nfor _ in itertools.count():\n    multiprocessing.Process(target=f)",
    ],
    "computed_code": [
        "eval(x)",
        "exec(open('a.py').read())",
        "import builtins\nbuiltins.exec(x)",
        "__builtins__['eval'](x)",
        "globals()['eval'](x)",
        "e = eval\ne(x)",
        "compile(x, '', 'exec')",
    ],
    "decoded_code": [
        "import base64\nexec(base64.b64decode('eA=='))",
        "from base64 import b64decode as d\nc = d('eA==').decode()\nexec(c)",
        "exec(bytes.fromhex('78'))",
        "import codecs\neval(codecs.decode('k', 'rot13'))",
        "import zlib, base64\nexec(compile(zlib.decompress(base64.b64decode(s)), '', 'exec'))",
        "import os, base64\nos.system(base64.b64decode('bHM=').decode())",
        "import marshal\nexec(marshal.loads(b))",
    ],
    "unsafe_unpickling": [
        "import pickle\npickle.loads(data)",
        "import pickle as p\nwith open('a') as f:\n    p.load(f)",
        "import marshal\nmarshal.loads(x)",
        "import numpy as np\nnp.load('a.npy', allow_pickle=True)",
        "import pandas as pd\npd.read_pickle('a')",
    ],
    "foreign_function": ["import ctypes", "from ctypes import CDLL", "__import__('ctypes')", "import cffi"],
    "network": [
        "import requests\nrequests.get('http://example.com')",
        "from urllib.request import urlopen\nurlopen('http://example.com')",
        "import socket\nsocket.socket()",
        "import pandas as pd\npd.read_csv('https://example.com/a.csv')",
        "%pip install x",
        "!ls\n%pip install x",
    ],
    "metadata_address": [
        "x = 'http://169.254.169.254/latest/meta-data/'",
        "f'http://metadata.google.internal/{x}'",
        "h = '169.254.169.254'",
    ],
    "delete_outside_workspace": [
        "import shutil\nshutil.rmtree('/')",
        "import shutil\nshutil.rmtree('/workspace/../etc')",
        "import shutil\nshutil.rmtree('..')",
        "import os\nos.remove('/etc/hosts')",
        "from pathlib import Path\nPath('/etc/hosts').unlink()",
        "from pathlib import Path\np = Path('/etc') / 'hosts'\np.unlink()",
        "import os, shutil\nshutil.rmtree(os.path.join('/', 'usr'))",
    ],
    "write_outside_workspace": [
        "open('/etc/x', 'w')",
        "open('/opt/x', mode='ab')",
        "p = '/opt/x'\nopen(p, 'w')",
        "open('/op' + 't/x', 'w')",
        "x = 't'\nopen(f'/op{x}/x', 'w')",
        "import io\nio.open('/opt/x', 'w')",
        "import pathlib\npathlib.Path('/opt/x').write_text('')",
        "import os\nos.makedirs('/opt/x')",
        "%%writefile /opt/x\nhello",
    ],
    "system_secret": [
        "open('/etc/shadow')",
        "open('/proc/self/environ').read()",
        "open('/proc/1/mem', 'rb')",
        "from pathlib import Path\nPath('/etc/shadow').read_text()",
        "import os\nos.listdir('/root')",
        "open('/var/run/docker.sock')",
        "open('/tmp/../etc/shadow')",
    ],
    "ends_kernel": [
        "import os\nos._exit(0)",
        "exit()",
        "quit()",
        "import os as o\ndef f():\n    def g():\n        o._exit(1)",
        "import os, threading\nthreading.Timer(1, os._exit).start()",
        "import os\nos.execv('/bin/sh', ['sh'])",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    ],
    "kills_sandbox": [
        "import os\nos.kill(1, 9)",
        "import os\nos.kill(-1, 9)",
        "import os\nos.kill(os.getppid(), 9)",
        "from os import kill\np = 1\nkill(p, 9)",
    ],
    "huge_allocation": [
        "x = 'a' * 10**10",
        "x = [0] * 5_000_000_000",
        "x = bytearray(1 << 40)",
        "import numpy as np\nnp.zeros((100000, 10**10))",
        "x = 'a' * 9**9**9",
        "n = 10**12\nbytes(n)",
    ],
    "changes_builtins": [
        "import builtins\nbuiltins.open = f",
        "__builtins__['open'] = f",
        "setattr(__import__('builtins'), 'open', f)",
        "import builtins\ndel builtins.open",
    ],
    "import_hook": [
        "import sys\nsys.meta_path.insert(0, x)",
        "import sys\nsys.modules['os'] = x",
        "import sys\nsys.path_hooks.append(x)",
    ],
    "environment_dump": [
        "import os\nprint(os.environ)",
        "import os\nprint(dict(os.environ))",
        "from os import environ as e\nf'{e}'",
        "import os\nfor k, v in os.environ.items(): pass",
        "%env",
    ],
    "class_walk": [
        "().__class__.__bases__[0].__subclasses__()",
        "''.__class__.__mro__[1].__subclasses__()",
        "object.__subclasses__()",
        "x = (1).__class__.__base__\nx.__subclasses__()",
        "import gc\ngc.get_objects()",
    ],
}
KEEPS = {
    "process_start": ["def run(): pass\nrun(['ls'])", "subprocess = fake()\nsubprocess.run(['ls'])"],
    "shell_command": [
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "print('os.system(1)')",
        "# os.system('ls')",
        "class A:\n    def system(self): pass\nA().system()",
        "def f(os):\n    os.system('ls')",
        "os = A()\nos.system('ls')",
        '"""\nos.system("ls")\n"""',
    ],
    "fork": ["import os\nos.forked = 1", "repo.fork()"],
    "fork_bomb": ["import os\nif os.fork() == 0:\n    pass", "while True:\n    repo.fork()"],
    "endless_process_loop": [
        "import subprocess\nwhile True:\n    subprocess.Popen(['x'])\n    if y: break",
        "import subprocess\nfor x in range(3):\n    subprocess.Popen(['x'])",
        "import subprocess\nwhile True:\n    def f():\n        subprocess.Popen(['x'])",
    ],
    "computed_code": [
        "eval('1 + 1')",
        "import re\nre.compile(x)",
        "df.eval(x)",
        "model.eval()",
        "import ast\nast.literal_eval(x)",
        "c = '1' + '2'\neval(c)",
    ],
    "decoded_code": ["import base64\nprint(base64.b64decode(x))", "exec(x)"],
    "unsafe_unpickling": [
        "import pickle\npickle.loads(pickle.dumps(x))",
        "import json\njson.loads(x)",
        "import numpy as np\nnp.load('a.npy')",
        "import pickle\npickle.dump(x, f)",
    ],
    "foreign_function": ["import ctypesque", "ctypes = 1"],
    "network": [
        "import urllib.parse\nurllib.parse.quote(x)",
        "import pandas as pd\npd.read_csv('a.csv')",
        "d.get(1)",
    ],
    "metadata_address": [
        "print('the address 169.254.169.254 is special')",
        "x = '169.254.169.2545'",
        "x = 'http://example.com/169.254.169.254'",
    ],
    "delete_outside_workspace": [
        "import shutil\nshutil.rmtree('/workspace/a')",
        "import shutil\nshutil.rmtree('build')",
        "import shutil\nshutil.rmtree('/tmp/a')",
        "import shutil\nshutil.rmtree(x)",
        "import os\nos.remove('a/../b')",
    ],
    "write_outside_workspace": [
        "open('a.txt', 'w')",
        "open('/workspace/a', 'w')",
        "open('/tmp/a', 'w')",
        "open('/etc/hosts')",
        "open('/dev/null', 'w')",
        "import os\nos.makedirs('a/b', exist_ok=True)",
        "%%writefile a.py\nopen('/opt/x', 'w')",
    ],
    "system_secret": [
        "open('/proc/meminfo')",
        "open('/proc/cpuinfo')",
        "open('/proc/self/status')",
        "open('etc/shadow')",
        "open('/etc/os-release')",
    ],
    "ends_kernel": [
        "import sys\nsys.exit(3)",
        "import os\nos.kill(child, 9)",
        "app.quit()",
        "def exit(): pass\nexit()",
    ],
    "kills_sandbox": ["import os\nos.kill(pid, 9)", "import os\nos.kill(1234, 1)"],
    "huge_allocation": [
        "x = 10**10",
        "x = 'a' * 1000",
        "x = range(10**10)",
        "x = 2 * 10**10",
        "import numpy as np\nnp.zeros(1000)",
        "x = 'a' * n",
    ],
    "changes_builtins": ["import builtins\nprint(builtins.open)", "def open(): pass", "x.open = 1"],
    "import_hook": ["import sys\nsys.path.append('lib')", "import sys\nprint(sys.modules['os'])"],
    "environment_dump": [
        "import os\nprint(os.environ['HOME'])",
        "import os\nprint(os.environ.get('HOME'))",
        "import os, subprocess\nsubprocess.run(['ls'], env=os.environ)",
        "import os, subprocess\nsubprocess.run(['ls'], env={**os.environ, 'A': '1'})",
        "import os\nos.environ['A'] = '1'",
        "%env A=1",
    ],
    "class_walk": ["Base.__subclasses__()", "print(x.__class__.__name__)"],
}


def rules_of(code: str) -> list[str]:
    return [found.rule for found in analyse(code, "python")]


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule, codes in BREAKS.items() for code in codes])
def test_what_breaks_a_rule_is_found(rule: str, code: str) -> None:
    assert rule in rules_of(code)


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule, codes in KEEPS.items() for code in codes])
def test_what_only_looks_like_it_is_not_found(rule: str, code: str) -> None:
    found = rules_of(code)
    assert rule not in found
    assert "not_parsed" not in found


def test_every_rule_has_examples_of_both_kinds() -> None:
    assert RULES.rules() == set(BREAKS) == set(KEEPS)


HONEST = '''
import asyncio, json, math, re
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

%matplotlib inline

class Model:
    """A model."""
    def __init__(self, *, size: int = 3) -> None:
        self.size = size

    @property
    def double(self):
        return self.size * 2

frame = pd.read_csv("data.csv")
frame["total"] = frame.a + frame.b
print(frame.describe(), f"{frame.total.mean():.2f}")
Path("out").mkdir(exist_ok=True)
with open("out/result.json", "w") as file:
    json.dump({"a": [1, 2], **{}}, file)
words = Counter(re.findall(r"\\w+", Path("text.txt").read_text()))
async def main():
    await asyncio.sleep(0)
await main()
x = np.zeros((1000, 1000)) * 2**20
plt.plot(*zip(*sorted(words.items()))); plt.savefig("plot.png")
for i in range(3):
    if i % 2: continue
    try: math.sqrt(-i)
    except ValueError as error: print(error)
    finally: pass
'''


def test_honest_code_has_no_findings() -> None:
    assert analyse(HONEST, "python") == []


@pytest.mark.parametrize(
    ("code", "places"),
    [
        ("import os\n%matplotlib inline\nos._exit(1)", [("ends_kernel", 3, 1)]),
        ("%%time\nimport os\n\nos._exit(1)", [("ends_kernel", 4, 1)]),
        ("%time import os; os._exit(1)", [("ends_kernel", 1, 12)]),
        ("%timeit -n 1 exit()", [("ends_kernel", 1, 1)]),
        ("ls = !ls -l\nexit()", [("ends_kernel", 2, 1)]),
        ("x = '''\n%time\n!ls\n'''\nexit()", [("ends_kernel", 5, 1)]),
        ("x = (7\n%3\n)\nexit()", [("ends_kernel", 4, 1)]),
        ("x?\n?x\nx??\nexit()", [("ends_kernel", 4, 1)]),
        ("!echo it's \\\n  (two\nexit()", [("ends_kernel", 3, 1)]),
        ("if x:\n    !ls\n    exit()", [("ends_kernel", 3, 5)]),
        ("    x = 1\n    exit()", [("ends_kernel", 2, 5)]),
        (">>> x = 1\n>>> exit()", [("ends_kernel", 2, 5)]),
        ("x = '\u00e9\u6f22'; exit()", [("ends_kernel", 1, 11)]),
        ("x = 1\r\nexit()\rexit()", [("ends_kernel", 2, 1), ("ends_kernel", 3, 1)]),
        ("%time x = 1 + \\\n  2\nexit()", [("ends_kernel", 3, 1)]),
        ("/exit", [("ends_kernel", 1, 1)]),
        ("await exit()", [("ends_kernel", 1, 7)]),
        ("# a\n\n@d\ndef f():\n    pass\nexit()", [("ends_kernel", 6, 1)]),
        ("if x:\n    pass\nelse:\n    exit()", [("ends_kernel", 4, 5)]),
        ("x = 'a\\d'\nexit()", [("ends_kernel", 2, 1)]),
        ("def f()\n  pass\nexit()", [("not_parsed", 1, 1), ("ends_kernel", 3, 1)]),
    ],
)
def test_what_ipython_adds_moves_no_line(code: str, places: list[tuple[str, int, int]]) -> None:
    assert [(found.rule, found.line, found.column) for found in analyse(code, "python")] == places


@pytest.mark.parametrize(
    ("code", "line", "column"),
    [
        ("x = 1\n!rm -rf /", 2, 1),
        ("x = !rm -rf /", 1, 1),
        ("!!rm -rf /", 1, 1),
        ("%system rm -rf /", 1, 1),
        ("%sx rm -rf /", 1, 1),
        ("%%bash\nls\necho 1; rm -rf /", 3, 9),
        ("\n%%sh\nrm -rf /", 3, 1),
        ("%%script bash\nrm -rf /", 2, 1),
        ("import os\nif x:\n  os.system('ls; rm -rf /')", 3, 3),
        ("import subprocess\nsubprocess.run('rm -rf /', shell=True)", 2, 1),
        ("import subprocess\nsubprocess.run(['rm', '-rf', '/'])", 2, 1),
        ("get_ipython().system('rm -rf /')", 1, 1),
    ],
)
def test_shell_commands_go_to_the_command_check(code: str, line: int, column: int) -> None:
    [found] = [found for found in analyse(code, "python") if found.rule == "recursive_delete_of_root"]
    assert (found.severity, found.line, found.column) == ("danger", line, column)


@pytest.mark.parametrize(
    "code", ["%%html\n<b>rm -rf /</b>", "%%script perl\nrm -rf /", "print('!rm -rf /')", "!ls"]
)
def test_other_text_is_no_shell_command(code: str) -> None:
    assert analyse(code, "python") == []


def test_doubtful_escapes_are_left_to_the_kernel(recwarn: pytest.WarningsRecorder) -> None:
    assert analyse("x = '\\d'", "python") == []
    assert not recwarn.list
