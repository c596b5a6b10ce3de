# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0
"""Checks conanfile.py without Conan: stubs the package and runs the recipe's own methods on a tree."""
import fnmatch
import importlib.util
import pathlib
import re
import shutil
import sys
import tempfile
import types

root = pathlib.Path(sys.argv[1])
sys.dont_write_bytecode = True
seen = {}


class ConanFile:
    pass


class Info:
    cleared = False

    def clear(self):
        self.cleared = True


class CppInfo(dict):
    def set_property(self, key, value):
        self[key] = value


def stub(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module


def copy(_, pattern, source, target):
    for path in pathlib.Path(source).rglob("*"):
        relative = path.relative_to(source)
        if path.is_file() and fnmatch.fnmatch(str(relative), pattern):
            out = pathlib.Path(target) / relative
            out.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, out)


stub("conan", ConanFile=ConanFile)
stub("conan.tools")
stub("conan.tools.build", check_min_cppstd=lambda recipe, standard: seen.setdefault("cppstd", standard))
stub("conan.tools.files", copy=copy, load=lambda recipe, path: pathlib.Path(path).read_text())
stub("conan.tools.layout", basic_layout=lambda recipe, **_: seen.setdefault("layout", True))

spec = importlib.util.spec_from_file_location("conanfile", root / "conanfile.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
recipe = module.HybridstateConan()
with tempfile.TemporaryDirectory() as package:
    recipe.recipe_folder = recipe.source_folder = str(root)
    recipe.package_folder = package
    recipe.info, recipe.cpp_info = Info(), CppInfo()
    recipe.set_version()
    recipe.layout()
    recipe.validate()
    recipe.package_id()
    recipe.package()
    recipe.package_info()
    have = {str(p.relative_to(package)) for p in pathlib.Path(package).rglob("*") if p.is_file()}
headers = (p for p in (root / "include").rglob("*") if p.suffix in (".hpp", ".cuh"))
want = {str(p.relative_to(root)) for p in headers} | {"licenses/LICENSE"}
assert recipe.package_type == "header-library" and recipe.info.cleared, recipe.package_type
assert seen == {"cppstd": 20, "layout": True}, seen
assert have == want, have ^ want
assert re.fullmatch(r"\d+\.\d+\.\d+", recipe.version), recipe.version
print("conan recipe ok", recipe.version, dict(recipe.cpp_info))
