"""What the files of an image must not hold, read from the outside: nothing of the image is run or trusted."""

import re
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_SHOWN: Final = 5
_SET_ID: Final = 0o6000
_CAPABILITY: Final = "SCHILY.xattr.security.capability"
_BUNDLE: Final = "etc/ssl/certs/ca-certificates.crt"
_PACKAGED_CERTIFICATES: Final = "usr/share/ca-certificates/"
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_PASSWORD_FIELDS_WITHOUT_SECRET: Final = re.compile(r"[*!]*")
_BUILD_LEFTOVERS: Final = re.compile(
    r"build(/.*)?|(etc|root/\.pip|root/\.config/pip)/pip\.conf|usr/local/share/ca-certificates/.+"
    r"|var/lib/apt/lists/.+|var/cache/apt/.+"
)
_WAY_TO_A_MIRROR: Final = re.compile(
    r"etc/apt/sources\.list|etc/apt/sources\.list\.d/.+|etc/apt/apt\.conf\.d/99.+|usr/local/sbin/seal"
)
_CLEAN_VARIABLES: Final = re.compile(r"(?i)(pip_|ssl_|requests_ca|curl_ca|.*proxy)")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was promised of an image, and whether it holds."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(slots=True)
class FileInspection:
    """Collects what is wrong in an image's file system, member by member of its tar stream."""

    others_build_on_it: bool = False
    set_id: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    bundle: set[bytes] = field(default_factory=set)
    packaged: set[bytes] = field(default_factory=set)

    def read(self, tar: tarfile.TarFile) -> list[Check]:
        """Read the whole stream once."""
        for member in tar:
            self._look_at(tar, member)
        foreign = len(self.bundle - self.packaged)
        return [
            _none("no setuid, setgid or capability file", self.set_id),
            _none("nothing of the build is left", self.leftovers),
            _none("no password", self.secrets),
            _none("no certificate of the host", [f"{foreign} in the bundle"] if foreign else []),
        ]

    def _look_at(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = member.name.removeprefix("./")
        if (member.mode & _SET_ID and not member.issym()) or _CAPABILITY in member.pax_headers:
            self.set_id.append(path)
        if _BUILD_LEFTOVERS.fullmatch(path) and (member.isfile() or path == "build"):
            self.leftovers.append(path)
        if not self.others_build_on_it and _WAY_TO_A_MIRROR.fullmatch(path):
            self.leftovers.append(path)
        if path in {"etc/shadow", "etc/gshadow"}:
            self.secrets += _accounts_with_password(_content(tar, member).decode(errors="replace"))
        if path == _BUNDLE:
            self.bundle = set(_CERTIFICATE.findall(_content(tar, member)))
        elif path.startswith(_PACKAGED_CERTIFICATES) and member.isfile():
            self.packaged.update(_CERTIFICATE.findall(_content(tar, member)))


def environment_check(variables: Iterable[str]) -> Check:
    """Check that the image's environment holds neither an index, nor a proxy, nor a certificate setting."""
    return _none("no setting of the host", [text for text in variables if _CLEAN_VARIABLES.match(text)])


def reported_checks(text: str) -> list[Check]:
    """Read the `ok NAME` and `fail NAME: DETAIL` lines that an image's own checks print."""
    checks = []
    for line in text.splitlines():
        verdict, _, rest = line.partition(" ")
        if verdict == "ok":
            checks.append(Check(rest, ok=True))
        elif verdict == "fail":
            name, _, detail = rest.partition(": ")
            checks.append(Check(name, ok=False, detail=detail))
    return checks


def _none(name: str, found: list[str]) -> Check:
    more = len(found) - _SHOWN
    shown = ", ".join(found[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return Check(name, ok=not found, detail=shown)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file else b""


def _accounts_with_password(shadow: str) -> list[str]:
    lines = (line.split(":") for line in shadow.splitlines() if ":" in line)
    return [fields[0] for fields in lines if not _PASSWORD_FIELDS_WITHOUT_SECRET.fullmatch(fields[1])]
