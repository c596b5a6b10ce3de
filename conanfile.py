# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, load
from conan.tools.layout import basic_layout

required_conan_version = ">=2.0"


class HybridstateConan(ConanFile):
    """The headers alone; users pass a C++20 profile (-s compiler.cppstd=20)."""

    name = "hybridstate"
    description = "Header-only C++20 state memory for hybrid attention/SSM serving"
    license = "Apache-2.0"
    topics = ("llm", "inference", "memory", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True
    exports_sources = "include/*", "LICENSE"

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include/hybridstate/version.hpp"))
        parts = (re.search(rf"VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))
        self.version = ".".join(parts)

    def layout(self):
        basic_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def build(self):
        pass

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        include = os.path.join(self.source_folder, "include")
        for pattern in ("*.hpp", "*.cuh"):
            copy(self, pattern, include, os.path.join(self.package_folder, "include"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "hybridstate")
        self.cpp_info.set_property("cmake_target_name", "hybridstate::hybridstate")
        self.cpp_info.set_property("pkg_config_name", "hybridstate")
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
