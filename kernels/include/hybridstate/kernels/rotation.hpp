// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/device/attention_blocks.hpp>
#include <hybridstate/kernels/job.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// The step between the projections and the attention: queries and keys are rotated by the angles
/// of their positions, keys and values go to the attention units. Decode and prefill alike.
struct RotatedRows {
  Rows<const float> q{};  ///< [token], head h at h * head_dim
  Rows<float> q_out{};    ///< may be q
  Rows<const float> k{};  ///< [token], KV head h at h * head_dim
  Rows<const float> v{};
  const float* cosines = nullptr;  ///< [position][head_dim / 2]
  const float* sines = nullptr;    ///< as cosines
  /// [token], inside the columns of the block tables; negative: padding, q_out is zero.
  const std::int32_t* positions = nullptr;
  /// [token]: its sequence's row of the block tables; null: the token's number, as in decode.
  const std::int32_t* table_rows = nullptr;
  AttentionWrites to{};  ///< keys and values without address are not written
  std::uint32_t tokens = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;  ///< even
};

/// E: of stored keys and values, Bf16 or float. V: elements of each half of a head that a thread
/// takes, 4 (then a half is a multiple of 4 elements and rows, tables and units begin at multiples
/// of 16 bytes) or 1.
template <class E, unsigned V>
struct RotateAndStore : RotatedRows {
  static constexpr unsigned threads = 128;

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept { return {tokens * blocks(), 1, 1}; }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    std::uint32_t const item = t.block_x() % blocks() * threads + t.thread();
    if (item >= items()) return;
    std::int64_t const token = t.block_x() / blocks();
    std::uint32_t const half = head_dim / 2;
    std::uint32_t const slot = item / (half / V);  // a query head, a key head or a value head
    std::uint32_t const i = item % (half / V) * V;
    auto const position = t.template load<std::int32_t>(positions + token);
    float low[V] = {};
    float high[V] = {};

    if (slot < heads) {
      std::int64_t const at = std::int64_t{slot} * head_dim + i;
      if (position >= 0) load_rotated(t, q.row(token) + at, position, i, low, high);
      store_elements<float, V>(t, q_out.row(token) + at, low);
      store_elements<float, V>(t, q_out.row(token) + at + half, high);
      return;
    }
    if (position < 0) return;
    bool const is_key = slot < heads + kv_heads;
    std::uint32_t const head = slot - heads - (is_key ? 0 : kv_heads);
    std::int32_t const row = table_rows == nullptr
                                 ? static_cast<std::int32_t>(token)
                                 : t.template load<std::int32_t>(table_rows + token);
    std::byte* const unit = is_key ? to.addr_key(row, static_cast<std::int32_t>(head), position)
                                   : to.addr_value(row, static_cast<std::int32_t>(head), position);
    if (unit == nullptr) return;
    std::int64_t const at = std::int64_t{head} * head_dim + i;
    if (is_key) {
      load_rotated(t, k.row(token) + at, position, i, low, high);
    } else {
      load_elements<float, V>(t, v.row(token) + at, low);
      load_elements<float, V>(t, v.row(token) + at + half, high);
    }
    store_elements<E, V>(t, unit + i * sizeof(E), low);
    store_elements<E, V>(t, unit + (i + half) * sizeof(E), high);
  }

 private:
  /// Of a token.
  HYBRIDSTATE_HD constexpr std::uint32_t items() const noexcept {
    return (heads + 2 * kv_heads) * (head_dim / 2 / V);
  }
  HYBRIDSTATE_HD constexpr std::uint32_t blocks() const noexcept {
    return quotient_up(items(), threads);
  }

  /// Elements from `head` on and their partners half a head away, rotated.
  template <class T>
  HYBRIDSTATE_HD void load_rotated(T& t, const float* head, std::int64_t position, std::uint32_t i,
                                   float (&low)[V], float (&high)[V]) const {
    std::uint32_t const half = head_dim / 2;
    float cosine[V];
    float sine[V];
    load_elements<float, V>(t, head, low);
    load_elements<float, V>(t, head + half, high);
    load_elements<float, V>(t, cosines + position * half + i, cosine);
    load_elements<float, V>(t, sines + position * half + i, sine);
    for (unsigned e = 0; e < V; ++e) {
      float const a = low[e];
      float const b = high[e];
      low[e] = numeric::fused(a, cosine[e], 0.0F - b * sine[e]);
      high[e] = numeric::fused(b, cosine[e], a * sine[e]);
    }
  }
};

/// With keys and values of a type that is known at run time only.
struct RotationJob : RotatedRows {
  ElementType type = ElementType::bf16;
};

/// False: an odd head_dim, blocks of no tokens, or more CTAs than a launch takes.
template <class Run>
bool with_kernel(const RotationJob& job, Run&& run) {
  std::uint64_t const pairs =
      (std::uint64_t{job.heads} + 2 * std::uint64_t{job.kv_heads}) * (job.head_dim / 2);
  AttentionBlocks const& units = job.to.blocks;
  if (job.head_dim % 2 != 0 || job.tokens * pairs > detail::most_grid_x ||
      (job.tokens != 0 && units.strides.block_tokens <= 0))
    return false;
  bool const in_vectors =
      job.head_dim % 8 == 0 && detail::row_vectors(job.q, job.q_out, job.k, job.v) &&
      detail::vectors(job.cosines, job.sines, units.base, units.unit_stride, units.strides.token,
                      units.strides.head, units.strides.value);
  return detail::with_element(job.type, [&]<class E>() {
    if (in_vectors)
      run(RotateAndStore<E, 4>{job});
    else
      run(RotateAndStore<E, 1>{job});
    return true;
  });
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
