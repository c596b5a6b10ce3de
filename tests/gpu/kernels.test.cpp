// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Every launcher on a device against the CPU executor, to the bit, on the cases that the
// interpreter runs in tests/kernels.

#include <doctest/doctest.h>

#include "gpu/cuda_target.hpp"
#include "kernels/attention_case.hpp"
#include "kernels/convolution_case.hpp"
#include "kernels/greedy_case.hpp"
#include "kernels/linear_case.hpp"
#include "kernels/page_copy_case.hpp"
#include "kernels/rotation_case.hpp"
#include "kernels/rows_case.hpp"
#include "kernels/sampling_case.hpp"
#include "kernels/state_job_case.hpp"

using namespace hybridstate::kernels;

TEST_CASE("attention on the device: decode steps in every form, and runs") {
  if (!have_device()) return;
  using namespace attention_test;
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    for (bool const bf16 : {true, false}) {
      CAPTURE(seed);
      CAPTURE(bf16);
      for (std::uint32_t const dim : {64U, 80U, 128U, 256U})
        for (std::uint32_t const piece_tokens : {0U, split_tokens, span_tokens}) {
          CAPTURE(dim);
          CAPTURE(piece_tokens);
          check_attention(the_device, random_case(seed, bf16, dim, 9, 1), piece_tokens);
        }
      for (std::uint32_t const dim : {8U, 64U, 100U, 128U, 256U})
        check_attention(the_device, random_case(seed, bf16, dim, 6, 40), 0);
    }
  for (std::uint32_t const piece_tokens : {0U, split_tokens, span_tokens})
    for (std::uint32_t const block : {16U, 512U}) {
      AttentionCase c;
      c.block_tokens = block;
      for (std::int32_t const tokens : {255, 1023, 1024, 1025, 2049, 4353})
        c.sequences.push_back({tokens - 1});
      c.draw(block);
      c.pad(2, block);
      check_attention(the_device, c, piece_tokens);
    }
}

TEST_CASE("convolution on the device: decode steps and runs") {
  if (!have_device()) return;
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    for (bool const bf16 : {true, false})
      for (unsigned const v : {8U, 1U}) {
        CAPTURE(seed);
        convolution_test::check_decode(the_device, bf16, v, seed);
        convolution_test::check_runs(the_device, bf16, v, seed);
      }
}

TEST_CASE("rotation, keys and values into their units, on the device") {
  if (!have_device()) return;
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    for (bool const bf16 : {true, false})
      for (unsigned const v : {4U, 1U}) {
        CAPTURE(seed);
        rotation_test::check_rotation(the_device, bf16, v, seed);
      }
}

TEST_CASE("norms, gated norms, products, embedding, scale and add on the device") {
  if (!have_device()) return;
  for (std::uint32_t const n : {1U, 17U, 60U, 256U, 1000U, 1280U, 2049U, 12288U})
    for (bool const vectors : {true, false}) {
      CAPTURE(n);
      rows_test::check_all(the_device, n, {vectors}, n);
    }
}

TEST_CASE("the exact linear on the device") {
  if (!have_device()) return;
  linear_test::check_linears(the_device);
}

TEST_CASE("copies on the device") {
  if (!have_device()) return;
  page_copy_test::check_lists(the_device);
  page_copy_test::check_pages(the_device);
}

TEST_CASE("the greedy choice on the device") {
  if (!have_device()) return;
  greedy_test::check_greedy(the_device);
}

TEST_CASE("draws on the device") {
  if (!have_device()) return;
  sampling_test::check_sampling(the_device);
}

TEST_CASE("the recurrence on the device: decode steps and scans, whatever the row") {
  if (!have_device()) return;
  for (bool const bf16 : {true, false}) {
    for (std::uint32_t const state : {64U, 128U, 256U})
      for (std::uint32_t const sequences : {1U, 3U, 32U}) {
        StateCase c;
        c.bf16 = bf16;
        c.state = state;
        c.sequences = sequences;
        c.heads = 24;
        c.rows = 128;
        c.whole_heads(bf16 ? 8 : 4);
        state_test::check_step(the_device, c, state + sequences);
      }
    for (std::uint32_t const state : {17U, 96U, 128U, 256U, 300U})
      state_test::check_scan(the_device, bf16, state, 37);
  }
  for (std::uint32_t const state : {17U, 64U, 128U, 256U, 300U})
    state_test::check_working(the_device, state, 12);
}
