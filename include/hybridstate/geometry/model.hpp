// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/config.hpp>
#include <hybridstate/core/error.hpp>
#include <hybridstate/core/types.hpp>
#include <initializer_list>
#include <string>
#include <utility>

HYBRIDSTATE_NAMESPACE_BEGIN

/// The fields of a hybrid model that decide how many bytes its serving state takes. Integers only,
/// so a geometry can be a template argument (`StaticLayout<geometry>`). Counts describe the whole
/// model; the byte functions answer for one layer of one tensor-parallel rank.
///
/// One recurrent form covers the known families: a layer keeps `ssm_heads` matrices of
/// `ssm_head_dim` rows by `ssm_state` columns, and a short convolution over
/// ssm_heads * ssm_head_dim + 2 * conv_groups * ssm_state channels.
///
/// | family           | ssm_heads | ssm_head_dim | ssm_state | conv_groups        |
/// |------------------|-----------|--------------|-----------|--------------------|
/// | Mamba-2          | heads     | head dim P   | N         | groups G (B and C) |
/// | Mamba-1          | d_inner   | 1            | N         | 0                  |
/// | gated delta net  | v heads   | v head dim   | k dim     | k heads (q and k)  |
struct ModelGeometry {
  std::uint32_t attention_layers = 0;  ///< layers that keep KV
  std::uint32_t recurrent_layers = 0;  ///< layers that keep recurrent state; may be the same ones
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;  ///< of attention
  std::uint32_t ssm_heads = 0;
  std::uint32_t ssm_head_dim = 0;
  std::uint32_t ssm_state = 0;
  std::uint32_t conv_groups = 0;  ///< pairs of ssm_state channels convolved beside the heads
  std::uint32_t d_conv = 4;       ///< convolution width; d_conv - 1 columns are kept
  std::uint32_t kv_dtype_bytes = 2;
  std::uint32_t ssm_dtype_bytes = 2;
  std::uint32_t conv_dtype_bytes = 2;
  std::uint32_t tensor_parallel = 1;  ///< ranks that share the heads

  /// KV heads on one rank: n / t, and one replicated head when there are fewer heads than ranks.
  HYBRIDSTATE_HD constexpr std::uint32_t rank_kv_heads() const noexcept {
    return kv_heads <= tensor_parallel ? 1U : kv_heads / tensor_parallel;
  }
  /// SSM heads on one rank; the ranks divide them.
  HYBRIDSTATE_HD constexpr std::uint32_t rank_ssm_heads() const noexcept {
    return ssm_heads / tensor_parallel;
  }
  /// Convolution groups on one rank: G / t, replicated below one per rank, none for Mamba-1.
  HYBRIDSTATE_HD constexpr std::uint32_t rank_conv_groups() const noexcept {
    if (conv_groups == 0) return 0;
    return conv_groups <= tensor_parallel ? 1U : conv_groups / tensor_parallel;
  }
  /// Convolution channels on one rank: H P / t + 2 max(1, G / t) N.
  HYBRIDSTATE_HD constexpr Bytes rank_conv_channels() const noexcept {
    return Bytes{rank_ssm_heads()} * ssm_head_dim + Bytes{2} * rank_conv_groups() * ssm_state;
  }

  /// Key and value bytes of one token in one layer of one rank.
  HYBRIDSTATE_HD constexpr Bytes kv_bytes_per_token() const noexcept {
    return Bytes{2} * rank_kv_heads() * head_dim * kv_dtype_bytes;
  }
  /// Bytes of one row (ssm_state elements) of a recurrent head.
  HYBRIDSTATE_HD constexpr Bytes row_bytes() const noexcept {
    return Bytes{ssm_state} * ssm_dtype_bytes;
  }
  /// Bytes of one recurrent head.
  HYBRIDSTATE_HD constexpr Bytes head_bytes() const noexcept { return ssm_head_dim * row_bytes(); }
  /// SSM state bytes of one sequence in one layer of one rank.
  HYBRIDSTATE_HD constexpr Bytes ssm_bytes() const noexcept {
    return rank_ssm_heads() * head_bytes();
  }
  /// Convolution state bytes of one sequence in one layer of one rank.
  HYBRIDSTATE_HD constexpr Bytes conv_bytes() const noexcept {
    return (Bytes{d_conv} - 1) * rank_conv_channels() * conv_dtype_bytes;
  }
  /// SSM and convolution state of one sequence in one layer of one rank.
  HYBRIDSTATE_HD constexpr Bytes composite_bytes() const noexcept {
    return ssm_bytes() + conv_bytes();
  }

  friend constexpr bool operator==(const ModelGeometry&, const ModelGeometry&) = default;
};

/// The same model with another element width of the SSM state (2: BF16, 4: FP32).
constexpr ModelGeometry with_ssm_dtype(ModelGeometry model, std::uint32_t bytes) noexcept {
  model.ssm_dtype_bytes = bytes;
  return model;
}

/// The same model shared by `ranks` tensor-parallel ranks. Not validated; see checked().
constexpr ModelGeometry with_tensor_parallel(ModelGeometry model, std::uint32_t ranks) noexcept {
  model.tensor_parallel = ranks;
  return model;
}

namespace detail {

/// No size, not even a sum over all layers, may exceed this: signed differences stay exact.
inline constexpr Bytes largest_bytes = Bytes{1} << 62;
/// Units, members and pages are numbered by 32-bit signed indices.
inline constexpr std::uint64_t largest_index = 0x7fffffffU;

/// a * b, or the largest 64-bit number when the product does not fit.
constexpr std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) noexcept {
  if (a != 0 && b > ~std::uint64_t{0} / a) return ~std::uint64_t{0};
  return a * b;
}
constexpr std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) noexcept {
  return b > ~std::uint64_t{0} - a ? ~std::uint64_t{0} : a + b;
}
constexpr std::uint64_t saturating_product(std::initializer_list<std::uint64_t> factors) noexcept {
  std::uint64_t p = 1;
  bool zero = false;
  for (std::uint64_t const f : factors) {
    zero = zero || f == 0;
    p = saturating_product(p, f);
  }
  return zero ? 0 : p;
}

/// The first reason why a configuration cannot work, in a form that a constant expression can
/// compute; `sentence` turns it into words.
struct Issue {
  enum class Kind : std::uint8_t {
    none,
    zero,          // field `name` is 0, which `why` forbids
    dtype,         // field `name` holds a width a
    no_columns,    // d_conv a
    heads,         // a ranks, b SSM heads
    divide,        // a ranks, b of `name`
    groups,        // a SSM heads, b groups
    too_large,     // the bytes called `name`
    not_multiple,  // field `name` = a is not a multiple of `why` = b
    too_many,      // `name` exceeds the 32-bit index range
  };
  Kind kind = Kind::none;
  const char* name = "";
  const char* why = "";
  std::uint64_t a = 0;
  std::uint64_t b = 0;

  constexpr bool ok() const noexcept { return kind == Kind::none; }
};

inline std::string sentence(const Issue& i) {
  std::string const a = std::to_string(i.a);
  std::string const b = std::to_string(i.b);
  std::string const name = i.name;
  switch (i.kind) {
    case Issue::Kind::none:
      return {};
    case Issue::Kind::zero:
      return name + " is 0, but " + i.why + "; give at least 1";
    case Issue::Kind::dtype:
      return name + " is " + a +
             ", but an element is 1, 2, 4 or 8 bytes wide; BF16 takes 2 and FP32 takes 4";
    case Issue::Kind::no_columns:
      return "d_conv is " + a +
             ", so no convolution column outlives its token; a state needs at least 2, and Mamba "
             "models use 4";
    case Issue::Kind::heads:
      return "tensor_parallel is " + a + ", which does not divide the " + b +
             " SSM heads; choose a divisor of " + b;
    case Issue::Kind::divide:
      return "tensor_parallel is " + a + ", which fits the " + b + " " + name +
             " neither as a divisor nor as a multiple, so a rank would need parts of two; choose a "
             "divisor or a multiple of " +
             b;
    case Issue::Kind::groups:
      return "conv_groups is " + b + ", which does not divide the " + a +
             " SSM heads into equal groups; choose a divisor of " + a +
             ", or 0 when only the heads are convolved";
    case Issue::Kind::too_large:
      return std::string("the ") + name + " (" + i.why +
             ") exceed 2^62 bytes; a layer takes kilobytes to megabytes, so check the counts and "
             "dimensions";
    case Issue::Kind::not_multiple:
      return name + " is " + a + ", which is not a multiple of " + i.why + " = " + b +
             "; choose a multiple of " + b;
    case Issue::Kind::too_many:
      return std::string("the ") + name + " (" + i.why +
             ") exceed 2^31 - 1, the largest 32-bit index; choose more tokens per block or check "
             "the dimensions";
  }
  return {};
}

constexpr bool element_width(std::uint32_t bytes) noexcept {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}

constexpr Issue first_issue(const ModelGeometry& m) noexcept {
  using K = Issue::Kind;
  if (m.attention_layers == 0)
    return {K::zero, "attention_layers", "a hybrid model keeps KV in some layer"};
  if (m.recurrent_layers == 0)
    return {K::zero, "recurrent_layers", "a hybrid model keeps recurrent state in some layer"};
  if (m.kv_heads == 0) return {K::zero, "kv_heads", "every attention layer has KV heads"};
  if (m.head_dim == 0) return {K::zero, "head_dim", "every KV head has a width"};
  if (m.ssm_heads == 0) return {K::zero, "ssm_heads", "every recurrent layer has heads"};
  if (m.ssm_head_dim == 0)
    return {K::zero, "ssm_head_dim", "every recurrent head has rows (Mamba-1: 1 row per channel)"};
  if (m.ssm_state == 0) return {K::zero, "ssm_state", "every recurrent row has elements"};
  if (m.tensor_parallel == 0)
    return {K::zero, "tensor_parallel", "at least one rank holds the model"};
  if (m.d_conv < 2) return {K::no_columns, "", "", m.d_conv};
  if (!element_width(m.kv_dtype_bytes)) return {K::dtype, "kv_dtype_bytes", "", m.kv_dtype_bytes};
  if (!element_width(m.ssm_dtype_bytes))
    return {K::dtype, "ssm_dtype_bytes", "", m.ssm_dtype_bytes};
  if (!element_width(m.conv_dtype_bytes))
    return {K::dtype, "conv_dtype_bytes", "", m.conv_dtype_bytes};
  std::uint32_t const t = m.tensor_parallel;
  if (m.ssm_heads % t != 0) return {K::heads, "", "", t, m.ssm_heads};
  if (m.kv_heads % t != 0 && t % m.kv_heads != 0) return {K::divide, "KV heads", "", t, m.kv_heads};
  if (m.conv_groups != 0) {
    if (m.ssm_heads % m.conv_groups != 0) return {K::groups, "", "", m.ssm_heads, m.conv_groups};
    if (m.conv_groups % t != 0 && t % m.conv_groups != 0)
      return {K::divide, "convolution groups", "", t, m.conv_groups};
  }
  std::uint64_t const kv =
      saturating_product({2, m.rank_kv_heads(), m.head_dim, m.kv_dtype_bytes, m.attention_layers});
  if (kv > largest_bytes)
    return {K::too_large, "KV bytes of one token",
            "2 x kv_heads x head_dim x kv_dtype_bytes over all attention layers"};
  std::uint64_t const ssm = saturating_product(
      {m.rank_ssm_heads(), m.ssm_head_dim, m.ssm_state, m.ssm_dtype_bytes, m.recurrent_layers});
  if (ssm > largest_bytes)
    return {K::too_large, "SSM bytes of one sequence",
            "ssm_heads x ssm_head_dim x ssm_state x ssm_dtype_bytes over all recurrent layers"};
  std::uint64_t const channels =
      saturating_sum(saturating_product(m.rank_ssm_heads(), m.ssm_head_dim),
                     saturating_product({2, m.rank_conv_groups(), m.ssm_state}));
  std::uint64_t const conv =
      saturating_product({m.d_conv - 1, channels, m.conv_dtype_bytes, m.recurrent_layers});
  if (conv > largest_bytes)
    return {K::too_large, "convolution bytes of one sequence",
            "(d_conv - 1) x channels x conv_dtype_bytes over all recurrent layers"};
  return {};
}

}  // namespace detail

/// Whether checked() accepts the geometry; usable in constant expressions.
constexpr bool sound(const ModelGeometry& model) noexcept {
  return detail::first_issue(model).ok();
}

/// Why the geometry cannot work, as one sentence; empty when it can.
inline std::string problem(const ModelGeometry& model) {
  detail::Issue const issue = detail::first_issue(model);
  return issue.ok() ? std::string{} : "model geometry: " + detail::sentence(issue);
}

/// The geometry itself when every size derived from it is exact, otherwise the sentence of
/// problem(). The byte functions of an unchecked geometry may wrap around.
inline Result<ModelGeometry> checked(const ModelGeometry& model) {
  std::string sentence = problem(model);
  if (!sentence.empty()) return Failure{std::move(sentence)};
  return model;
}

HYBRIDSTATE_NAMESPACE_END
