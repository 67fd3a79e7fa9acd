"""The function that an exported kernel carries in place of torch's `load_inline`; its text is copied."""


def load_inline(
    name: str,
    cpp_sources: str | list[str],
    extra_cflags: list[str] | None = None,
    extra_ldflags: list[str] | None = None,
    **options: object,
) -> str:
    """Path of the shared library built from `cpp_sources`, a C++ source that includes no torch header.

    torch builds it where ninja is installed. Elsewhere torch would refuse, so one compiler call builds it
    in a private temporary folder that goes when the process ends. CXX names another compiler than g++.
    """
    import atexit
    import importlib
    import importlib.util
    import os
    import shlex
    import shutil
    import subprocess
    import tempfile

    if shutil.which("ninja") and importlib.util.find_spec("setuptools"):
        torch_builds = importlib.import_module("torch.utils.cpp_extension")
        flags = {"extra_cflags": extra_cflags, "extra_ldflags": extra_ldflags}
        return str(torch_builds.load_inline(name, cpp_sources, **flags, **options))
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    if not shutil.which(compiler[0]):
        raise RuntimeError(f"building {name} needs ninja or a C++ compiler; found neither ninja nor {compiler[0]}")
    folder = tempfile.mkdtemp(prefix=f"{name}_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, library = os.path.join(folder, "main.cpp"), os.path.join(folder, f"{name}.so")
    with open(source, "w", encoding="utf-8") as file:
        file.write(cpp_sources if isinstance(cpp_sources, str) else "\n".join(cpp_sources))
    command = [*compiler, "-std=c++20", "-fPIC", "-shared", *(extra_cflags or []), source, "-o", library]
    subprocess.run([*command, *(extra_ldflags or [])], check=True)
    return library
