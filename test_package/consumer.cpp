// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <hybridstate/hybridstate.hpp>

int main() {
  std::printf("hybridstate %d.%d.%d\n", HYBRIDSTATE_VERSION_MAJOR, HYBRIDSTATE_VERSION_MINOR,
              HYBRIDSTATE_VERSION_PATCH);
}
