// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/device/conv_lines.hpp>
#include <hybridstate/kernels/job.hpp>

// The causal convolution with SiLU over states in tap-major lines:
// y[t][c] = silu(bias[c] + sum over i of weights[i][c] * x[t - (width - 1) + i][c]). Inputs are
// rounded to the state's type first, so that a state says everything about them.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

inline constexpr unsigned most_taps = 4;  ///< width of the convolution, at most

/// FP32 inputs and outputs, one row a token; x and y do not overlap.
struct ConvolutionInputs {
  const float* weights = nullptr;  ///< tap-major [width][channels]
  const float* bias = nullptr;     ///< [channels]; null: none
  const float* x = nullptr;        ///< [token][x_stride]
  std::int64_t x_stride = 0;
  float* y = nullptr;  ///< [token][y_stride]
  std::int64_t y_stride = 0;
  std::uint32_t channels = 0;
  std::uint32_t width = most_taps;  ///< 2 to most_taps
};

/// One token of each sequence. Row s of the lines and token row s belong to sequence s; a state
/// without source begins at zero; without destination the row is padding: its output is zero and
/// nothing else is touched. A destination may equal its source.
struct ConvolutionStep : ConvolutionInputs {
  ConvLines source{};
  ConvLines destination{};
  ConvLines checkpoint{};  ///< a second destination; rows may be absent. Null lines: none
  std::uint32_t sequences = 0;
};

/// A run of tokens of each sequence: token rows [token_begin[s], token_begin[s + 1]) from the state
/// in row s of `source` (absent: zero); without tokens it is padding. Once store_after[k] tokens
/// have passed, for k in [store_begin[s], store_begin[s + 1]), the state goes to row k of `stores`
/// (absent: nowhere). Rows of `stores` may equal the sequence's own source.
struct ConvolutionRuns : ConvolutionInputs {
  const std::int32_t* token_begin = nullptr;  ///< [sequences + 1]
  ConvLines source{};
  const std::int32_t* store_begin = nullptr;  ///< [sequences + 1]
  const std::int32_t* store_after = nullptr;  ///< [store], in [1, tokens of the sequence]
  ConvLines stores{};
  std::uint32_t sequences = 0;
  std::uint32_t most_tokens = 0;  ///< of one sequence
};

/// The last inputs of V neighbouring channels of a sequence: 16 bytes of the state or one element.
template <class E, unsigned V>
class ChannelWindow {
 public:
  HYBRIDSTATE_HD ChannelWindow(const ConvolutionInputs& in, std::uint32_t channel) noexcept
      : in_(in), channel_(channel), unused_(most_taps - in.width) {
    for (auto& taps : x_)
      for (float& x : taps) x = 0.0F;
  }

  /// The inputs in front of the first token: the state in a row, if it is present.
  template <class T>
  HYBRIDSTATE_HD void load_state(T& t, const ConvLines& from, std::int32_t row) {
    if (absent(from, row)) return;
    for (unsigned i = 1; i < most_taps; ++i)
      if (i > unused_) load_elements<E, V>(t, from.addr_row(row, byte_of(i)), x_[i]);
  }
  /// The same of the token rows in front of `token`.
  template <class T>
  HYBRIDSTATE_HD void load_before(T& t, std::int64_t token) {
    for (unsigned i = 1; i < most_taps; ++i)
      if (i > unused_) load_token(t, token + i - most_taps, x_[i]);
  }
  template <class T>
  HYBRIDSTATE_HD void load_token(T& t, std::int64_t token, float* to) const {
    load_elements<float, V>(t, in_.x + token * in_.x_stride + channel_, to);
    for (unsigned v = 0; v < V; ++v) to[v] = to_float(from_float<E>(to[v]));
  }

  /// Takes a token's inputs in and lets the oldest go.
  HYBRIDSTATE_HD void push(const float* x) noexcept {
    for (unsigned v = 0; v < V; ++v) {
      for (unsigned i = 1; i < most_taps; ++i) x_[i - 1][v] = x_[i][v];
      x_[most_taps - 1][v] = x[v];
    }
  }

  /// The state of now to a row of lines, if it is present.
  template <class T>
  HYBRIDSTATE_HD void store_state(T& t, const ConvLines& to, std::int32_t row) const {
    if (absent(to, row)) return;
    for (unsigned i = 1; i < most_taps; ++i)
      if (i > unused_) store_elements<E, V>(t, to.addr_row(row, byte_of(i)), x_[i]);
  }

  HYBRIDSTATE_HD float input(unsigned tap, unsigned v) const noexcept { return x_[tap][v]; }

  HYBRIDSTATE_HD static bool absent(const ConvLines& lines, std::int32_t row) noexcept {
    return lines.lines == nullptr || lines.addr_row(row, 0) == nullptr;
  }

 private:
  /// Of input i in the state.
  HYBRIDSTATE_HD std::int64_t byte_of(unsigned i) const noexcept {
    return (std::int64_t{i - 1 - unused_} * in_.channels + channel_) *
           static_cast<std::int64_t>(sizeof(E));
  }

  const ConvolutionInputs& in_;
  std::uint32_t channel_;
  unsigned unused_;        ///< taps in front of a narrower convolution
  float x_[most_taps][V];  ///< oldest first; a state is all but the first of `width`
};

/// The weights of V neighbouring channels.
template <unsigned V>
class ChannelWeights {
 public:
  template <class T>
  HYBRIDSTATE_HD ChannelWeights(T& t, const ConvolutionInputs& in, std::uint32_t channel)
      : unused_(most_taps - in.width) {
    for (unsigned i = 0; i < most_taps; ++i)
      if (i >= unused_)
        load_elements<float, V>(t, in.weights + std::int64_t{i - unused_} * in.channels + channel,
                                taps_[i]);
    for (float& b : bias_) b = 0.0F;
    if (in.bias != nullptr) load_elements<float, V>(t, in.bias + channel, bias_);
  }

  template <class E>
  HYBRIDSTATE_HD void output(const ChannelWindow<E, V>& window, float (&y)[V]) const {
    for (unsigned v = 0; v < V; ++v) {
      float sum = bias_[v];
      for (unsigned i = 0; i < most_taps; ++i)
        if (i >= unused_) sum = numeric::fused(taps_[i][v], window.input(i, v), sum);
      y[v] = numeric::silu(sum);
    }
  }

 private:
  unsigned unused_;
  float taps_[most_taps][V];
  float bias_[V];
};

/// The decode step. E: Bf16 or float. V: channels of a thread, 16 bytes of the state (then all
/// addresses, strides and parts are multiples of 16 bytes) or 1.
template <class E, unsigned V>
struct ConvolutionUpdate : ConvolutionStep {
  static constexpr unsigned threads = 64;

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept {
    return {quotient_up(channels, threads * V), sequences, 1};
  }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    std::uint32_t const channel = (t.block_x() * threads + t.thread()) * V;
    if (channel >= channels) return;
    auto const row = static_cast<std::int32_t>(t.block_y());
    float* const to = y + row * y_stride + channel;
    float out[V] = {};
    if (ChannelWindow<E, V>::absent(destination, row)) {
      store_elements<float, V>(t, to, out);
      return;
    }
    ChannelWindow<E, V> window(*this, channel);
    float own[V];
    window.load_token(t, row, own);
    window.load_state(t, source, row);
    ChannelWeights<V> const filter(t, *this, channel);
    window.push(own);
    filter.output(window, out);
    store_elements<float, V>(t, to, out);
    window.store_state(t, destination, row);
    window.store_state(t, checkpoint, row);
  }
};

/// Prefill, in tiles of tokens. E and V as in the decode step. The first tile of a sequence, which
/// alone reads the source, also writes all stores: they may lie in the source.
template <class E, unsigned V>
struct ConvolutionPrefill : ConvolutionRuns {
  static constexpr unsigned threads = 64;
  static constexpr std::uint32_t tile_tokens = 64;
  static constexpr unsigned unroll = 4;  ///< tokens in flight

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept {
    return {quotient_up(channels, threads * V), quotient_up(most_tokens, tile_tokens), sequences};
  }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    std::uint32_t const channel = (t.block_x() * threads + t.thread()) * V;
    if (channel >= channels) return;
    auto const sequence = static_cast<std::int32_t>(t.block_z());
    std::int64_t const first = t.template load<std::int32_t>(token_begin + sequence);
    std::int64_t const end = t.template load<std::int32_t>(token_begin + sequence + 1);
    std::int64_t const begin = first + std::int64_t{t.block_y()} * tile_tokens;
    if (begin >= end) return;
    ChannelWindow<E, V> window(*this, channel);
    if (begin == first) {
      window.load_state(t, source, sequence);
      leave_states(t, window, sequence, first);
    } else {
      window.load_before(t, begin);
    }
    ChannelWeights<V> const filter(t, *this, channel);
    std::int64_t const stop = begin + tile_tokens < end ? begin + tile_tokens : end;
    for (std::int64_t token = begin; token < stop; token += unroll) {
      float own[unroll][V];
      HYBRIDSTATE_UNROLL
      for (unsigned u = 0; u < unroll; ++u)
        if (token + u < stop) window.load_token(t, token + u, own[u]);
      HYBRIDSTATE_UNROLL
      for (unsigned u = 0; u < unroll; ++u)
        if (token + u < stop) {
          window.push(own[u]);
          float out[V];
          filter.output(window, out);
          store_elements<float, V>(t, y + (token + u) * y_stride + channel, out);
        }
    }
  }

 private:
  /// All states that the sequence leaves, from the window in front of its first token.
  template <class T>
  HYBRIDSTATE_HD void leave_states(T& t, const ChannelWindow<E, V>& initial, std::int32_t sequence,
                                   std::int64_t first) const {
    std::int32_t const end = t.template load<std::int32_t>(store_begin + sequence + 1);
    for (auto k = t.template load<std::int32_t>(store_begin + sequence); k < end; ++k) {
      auto const after = t.template load<std::int32_t>(store_after + k);
      ChannelWindow<E, V> window = initial;
      auto token = after - (static_cast<std::int32_t>(width) - 1);
      for (token = token < 0 ? 0 : token; token < after; ++token) {
        float own[V];
        window.load_token(t, first + token, own);
        window.push(own);
      }
      window.store_state(t, stores, k);
    }
  }
};

/// With states of a type that is known at run time only.
struct ConvolutionStepJob : ConvolutionStep {
  ElementType type = ElementType::bf16;  ///< of the states
};
struct ConvolutionRunsJob : ConvolutionRuns {
  ElementType type = ElementType::bf16;
};

namespace detail {
inline bool line_multiples_of(std::int64_t bytes, const ConvLines& lines) noexcept {
  return multiples_of(bytes, lines.base, lines.line_stride, lines.part_bytes);
}
template <template <class, unsigned> class Kernel, class Job, class Run, class... Lines>
bool with_convolution(const Job& job, Run&& run, const Lines&... lines) {
  if (job.width < 2 || job.width > most_taps || job.channels > most_elements ||
      job.sequences > most_grid_y || !(line_multiples_of(bytes_of(job.type), lines) && ...))
    return false;
  bool const in_vectors =
      (line_multiples_of(sizeof(Vector16), lines) && ...) &&
      row_vectors(Rows<const float>{job.x, job.x_stride}, Rows<float>{job.y, job.y_stride}) &&
      vectors(job.weights, job.bias, job.channels * bytes_of(job.type));
  return with_element(job.type, [&]<class E>() {
    if (in_vectors)
      run(Kernel<E, per_vector<E>>{job});
    else
      run(Kernel<E, 1>{job});
    return true;
  });
}
}  // namespace detail

/// False: a width other than 2 to 4, lines that cut elements, or more than 65535 sequences, tiles
/// of 64 tokens of a sequence, or 2^31 - 1 channels.
template <class Run>
bool with_kernel(const ConvolutionStepJob& job, Run&& run) {
  return detail::with_convolution<ConvolutionUpdate>(job, run, job.source, job.destination,
                                                     job.checkpoint);
}
template <class Run>
bool with_kernel(const ConvolutionRunsJob& job, Run&& run) {
  if (job.most_tokens > detail::most_grid_y * ConvolutionPrefill<float, 1>::tile_tokens)
    return false;
  return detail::with_convolution<ConvolutionPrefill>(job, run, job.source, job.stores);
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
