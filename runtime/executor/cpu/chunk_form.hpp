// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "executor/cpu/kernels.hpp"

namespace hybridstate::runtime::cpu {

/// All rows of one head through the chunk (SSD) form of the recurrence, in FP32. Chunks of
/// `length` >= 1 tokens are counted from the job's first token. With L_t the sum of dt A up to and
/// with token t of a chunk that starts from state S,
///   y_t = D x_t + exp(L_t) (S . C_t) + sum over s <= t of exp(L_t - L_s) dt_s (B_s . C_t) x_s,
///   S_t = exp(L_t) S + sum over s <= t of exp(L_t - L_s) dt_s x_s B_s.
/// The carry rounds at the ends of chunks only. Not part of the exact mode.
/// @param a the head's A, negative
void update_state_in_chunks(const StateUpdate& job, float a, std::uint32_t length,
                            const Kernels& kernels);

}  // namespace hybridstate::runtime::cpu
