"""Prints what the kernel and the guest program need, at the versions that the image has, as constraints for pip."""

from importlib import metadata

from pip._vendor.packaging.requirements import Requirement

versions = {}
wanted = ["ipykernel", "jupyter_client", "msgspec", "pyzmq"]
while wanted:
    name = wanted.pop()
    if name not in versions:
        versions[name] = metadata.version(name)
        needed = map(Requirement, metadata.requires(name) or ())
        wanted += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
for name, version in versions.items():
    print(f"{name}=={version}")  # noqa: T201 - it is what the build reads
