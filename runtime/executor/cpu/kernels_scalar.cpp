// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "executor/cpu/kernels.hpp"

// Only what follows is compiled for the instruction set: nothing that another file may also define.
#define HYBRIDSTATE_CPU_ISA scalar
#define HYBRIDSTATE_CPU_WIDTH 1
#include "executor/cpu/kernel_body.hpp"

namespace hybridstate::runtime::cpu::detail {
constinit const Kernels scalar_kernels = scalar::table("scalar");
}
