// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/device/device.hpp>
#include <span>

/// The BF16 states of a batch, [rows][heads][elements], wherever their pages lie.
struct States {
  hybridstate::SsmPages<> pages{};
  std::int32_t rows = 0;
  std::int32_t heads = 0;
  std::int32_t elements = 0;  ///< of a head
};

/// Multiplies one element; a row without a sequence has no address, and nothing happens. The same
/// function on host and device.
template <class Map>
HYBRIDSTATE_HD void decay_element(const hybridstate::SsmPages<Map>& pages, std::int32_t row,
                                  std::int32_t head, std::int32_t element, float factor) {
  namespace numeric = hybridstate::numeric;
  std::byte* const at = pages.addr_ssm(row, head, std::int64_t{element} * 2);
  if (at == nullptr) return;
  auto* const state = reinterpret_cast<std::uint16_t*>(at);
  *state = numeric::to_bf16(numeric::from_bf16(*state) * factor);
}

/// Copies pool and tables to the first CUDA device, multiplies every state of the batch there, and
/// copies the pool back. `states` holds host addresses. Null, or why it could not be done.
const char* decay_on_device(States states, std::span<std::byte> pool,
                            std::span<const std::int32_t> tables, float factor);
