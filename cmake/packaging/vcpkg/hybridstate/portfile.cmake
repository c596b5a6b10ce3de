# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0

# Overlay port: packages the checkout it sits in. A copy for a registry replaces the next line with
# vcpkg_from_github(... REF "v${VERSION}" SHA512 ...).
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)
set(VCPKG_BUILD_TYPE release) # header-only
vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES
    runtime HYBRIDSTATE_BUILD_RUNTIME
)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${FEATURE_OPTIONS}
    -DHYBRIDSTATE_BUILD_TESTS=OFF
    -DHYBRIDSTATE_BUILD_EXAMPLES=OFF
    -DHYBRIDSTATE_BUILD_BENCH=OFF
    -DHYBRIDSTATE_CUDA=OFF
    -DHYBRIDSTATE_INSTALL=ON
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/hybridstate)
vcpkg_fixup_pkgconfig()
if("runtime" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES hybridstate AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share"
     "${CURRENT_PACKAGES_DIR}/share/cmake" "${CURRENT_PACKAGES_DIR}/share/licenses")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
