// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "executor/cpu/forward.hpp"

// Falcon-H1 in double precision, to measure others against: stored weights and multipliers are
// taken exactly, and nothing is rounded to a shorter type, neither keys and values, nor states, nor
// the angles of the rotation. It shares no arithmetic with the executor. The order of its sums is
// whatever is fast; at 2^-53 an operation that does not show in a comparison with floats.

namespace fp64 {

using hybridstate::TokenId;
using hybridstate::runtime::FalconH1Config;
using hybridstate::runtime::LayerWeights;
using hybridstate::runtime::TensorView;

using hybridstate::runtime::ModelTensors;
using hybridstate::runtime::cpu::Workers;

using Doubles = std::vector<double>;

inline Doubles doubles(const TensorView& tensor) {
  Doubles out(tensor ? static_cast<std::size_t>(tensor.elements()) : 0);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(tensor.at(i));
  return out;
}

inline double silu(double v) { return v / (1 + std::exp(-v)); }
inline double softplus(double v) { return std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))); }

inline void rms_norm(const double* x, const double* weight, double epsilon, std::size_t n,
                     double* y) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += x[i] * x[i];
  double const inverse = 1 / std::sqrt(sum / static_cast<double>(n) + epsilon);
  for (std::size_t i = 0; i < n; ++i) y[i] = weight[i] * (x[i] * inverse);
}

/// y = (scale * W x + bias) * post. Rows are kept in panels, so that the innermost loop runs over
/// independent sums.
class Linear {
 public:
  Linear() = default;
  Linear(const TensorView& weights, std::size_t rows, std::size_t columns, const TensorView& bias,
         double scale, double post)
      : rows_(rows), columns_(columns), bias_(doubles(bias)), scale_(scale), post_(post) {
    panels_.resize((rows + panel - 1) / panel * panel * columns);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t k = 0; k < columns; ++k)
        panels_[(r / panel * columns + k) * panel + r % panel] =
            static_cast<double>(weights.at(r * columns + k));
  }

  /// x is [tokens][columns]; a row of y begins every `stride`.
  void apply(Workers& workers, const double* x, std::size_t tokens, double* y,
             std::size_t stride) const {
    workers.run((rows_ + panel - 1) / panel, [&](std::size_t p) {
      for (std::size_t t = 0; t < tokens; t += pair)
        tile(p, x + t * columns_, std::min(pair, tokens - t), y + t * stride, stride);
    });
  }

 private:
  static constexpr std::size_t panel = 8;
  static constexpr std::size_t pair = 2;

  void tile(std::size_t p, const double* x, std::size_t tokens, double* y,
            std::size_t stride) const {
    const double* const w = panels_.data() + p * columns_ * panel;
    const double* const x1 = tokens > 1 ? x + columns_ : x;
    std::array<std::array<double, panel>, pair> sums{};
    for (std::size_t k = 0; k < columns_; ++k)
      for (std::size_t i = 0; i < panel; ++i) {
        sums[0][i] += x[k] * w[k * panel + i];
        sums[1][i] += x1[k] * w[k * panel + i];
      }
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t i = 0; i < panel && p * panel + i < rows_; ++i) {
        std::size_t const row = p * panel + i;
        double const bias = bias_.empty() ? 0 : bias_[row];
        y[t * stride + row] = (scale_ * sums[t][i] + bias) * post_;
      }
  }

  std::size_t rows_ = 0, columns_ = 0;
  Doubles panels_, bias_;
  double scale_ = 1, post_ = 1;
};

/// One sequence, from its first token on.
class Forward {
 public:
  Forward(const ModelTensors& model, std::size_t capacity, Workers& workers)
      : c_(model.config), capacity_(capacity), workers_(workers), embed_(model.embed) {
    for (const LayerWeights& w : model.layers) layers_.emplace_back(c_, w, capacity);
    final_norm_ = doubles(model.final_norm);
    lm_head_ =
        Linear(model.lm_head, c_.vocabulary, c_.hidden, TensorView{}, c_.lm_head_multiplier, 1);
  }

  /// Takes the next tokens and returns the logits of the last one.
  Doubles feed(std::span<const TokenId> tokens) {
    std::size_t const n = tokens.size();
    h_.resize(n * c_.hidden);
    for (std::size_t t = 0; t < n; ++t)
      for (std::size_t i = 0; i < c_.hidden; ++i)
        h_[t * c_.hidden + i] =
            static_cast<double>(embed_.at(std::size_t{tokens[t]} * c_.hidden + i)) *
            c_.embedding_multiplier;
    for (Layer& layer : layers_) run(layer, n);
    position_ += n;
    Doubles f(c_.hidden);
    rms_norm(&h_[(n - 1) * c_.hidden], final_norm_.data(), c_.norm_epsilon, c_.hidden, f.data());
    Doubles logits(c_.vocabulary);
    lm_head_.apply(workers_, f.data(), 1, logits.data(), c_.vocabulary);
    return logits;
  }

  /// [head][row][element] after the last token.
  const Doubles& ssm(std::size_t layer) const { return layers_[layer].ssm; }

  /// For every layer and head, the tokens over which the state decays to 1/e: the inverse of the
  /// mean of -dt A so far.
  Doubles memory_tokens() const {
    Doubles out;
    for (const Layer& l : layers_)
      for (double const sum : l.decayed) out.push_back(static_cast<double>(position_) / sum);
    return out;
  }

 private:
  struct Layer {
    Layer(const FalconH1Config& c, const LayerWeights& w, std::size_t capacity)
        : in_proj(w.in_proj, c.in_proj_rows(), c.hidden, w.in_proj_bias, c.ssm_in_multiplier, 1),
          q(w.q, c.query_width(), c.hidden, w.q_bias, c.attention_in_multiplier, 1),
          k(w.k, c.kv_width(), c.hidden, w.k_bias, c.attention_in_multiplier, c.key_multiplier),
          v(w.v, c.kv_width(), c.hidden, w.v_bias, c.attention_in_multiplier, 1),
          o(w.o, c.hidden, c.query_width(), w.o_bias, 1, c.attention_out_multiplier),
          out_proj(w.out_proj, c.hidden, c.ssm_width(), w.out_proj_bias, 1, c.ssm_out_multiplier),
          gate(w.gate, c.intermediate, c.hidden, w.gate_bias, 1, c.gate_multiplier),
          up(w.up, c.intermediate, c.hidden, w.up_bias, 1, 1),
          down(w.down, c.hidden, c.intermediate, w.down_bias, 1, c.down_multiplier),
          input_norm(doubles(w.input_norm)),
          ff_norm(doubles(w.ff_norm)),
          ssm_norm(doubles(w.ssm_norm)),
          conv(doubles(w.conv)),
          conv_bias(doubles(w.conv_bias)),
          a(doubles(w.a_log)),
          d(doubles(w.d)),
          dt_bias(doubles(w.dt_bias)),
          keys(capacity * c.kv_width()),
          values(capacity * c.kv_width()),
          columns(std::size_t{c.conv_width - 1} * c.conv_channels()),
          ssm(std::size_t{c.ssm_heads} * c.ssm_head_dim * c.ssm_state),
          decayed(c.ssm_heads) {
      for (double& value : a) value = -std::exp(value);
    }

    Linear in_proj, q, k, v, o, out_proj, gate, up, down;
    Doubles input_norm, ff_norm, ssm_norm, conv, conv_bias, a, d, dt_bias;
    Doubles keys;     ///< [kv head][element][position], multiplied and rotated
    Doubles values;   ///< [kv head][position][element]
    Doubles columns;  ///< [tap][channel], the oldest first
    Doubles ssm;
    Doubles decayed;  ///< per head: the sum of -dt A
  };

  template <class F>
  void each_token(std::size_t n, F&& f) {
    workers_.run(n, f);
  }

  void run(Layer& l, std::size_t n) {
    u_.resize(n * c_.hidden);
    each_token(n, [&](std::size_t t) {
      rms_norm(&h_[t * c_.hidden], l.input_norm.data(), c_.norm_epsilon, c_.hidden,
               &u_[t * c_.hidden]);
    });
    attention(l, n);
    mamba(l, n);
    each_token(n, [&](std::size_t t) {
      for (std::size_t i = t * c_.hidden; i < (t + 1) * c_.hidden; ++i) h_[i] += ssm_[i] + att_[i];
      rms_norm(&h_[t * c_.hidden], l.ff_norm.data(), c_.norm_epsilon, c_.hidden,
               &u_[t * c_.hidden]);
    });
    std::size_t const m = c_.intermediate;
    gate_.resize(n * m);
    up_.resize(n * m);
    l.gate.apply(workers_, u_.data(), n, gate_.data(), m);
    l.up.apply(workers_, u_.data(), n, up_.data(), m);
    each_token(n, [&](std::size_t t) {
      for (std::size_t i = t * m; i < (t + 1) * m; ++i) up_[i] *= silu(gate_[i]);
    });
    l.down.apply(workers_, up_.data(), n, att_.data(), c_.hidden);
    for (std::size_t i = 0; i < n * c_.hidden; ++i) h_[i] += att_[i];
  }

  /// The two halves of a head as the coordinates of a plane, turned by position * theta^(-2i/dim).
  void rotate(double* head, std::size_t position) const {
    std::size_t const half = c_.head_dim / 2;
    for (std::size_t i = 0; i < half; ++i) {
      double const exponent = 2 * static_cast<double>(i) / static_cast<double>(c_.head_dim);
      double const angle = static_cast<double>(position) / std::pow(c_.rope_theta, exponent);
      double const x = head[i], y = head[half + i];
      head[i] = x * std::cos(angle) - y * std::sin(angle);
      head[half + i] = y * std::cos(angle) + x * std::sin(angle);
    }
  }

  void attention(Layer& l, std::size_t n) {
    std::size_t const dim = c_.head_dim, width = c_.query_width(), kv = c_.kv_width();
    std::size_t const group = c_.heads / c_.kv_heads;
    q_.resize(n * width);
    k_.resize(n * kv);
    v_.resize(n * kv);
    o_.resize(n * width);
    l.q.apply(workers_, u_.data(), n, q_.data(), width);
    l.k.apply(workers_, u_.data(), n, k_.data(), kv);
    l.v.apply(workers_, u_.data(), n, v_.data(), kv);
    each_token(n, [&](std::size_t t) {
      std::size_t const at = position_ + t;
      for (std::size_t j = 0; j < c_.heads; ++j) rotate(&q_[t * width + j * dim], at);
      for (std::size_t j = 0; j < c_.kv_heads; ++j) {
        rotate(&k_[t * kv + j * dim], at);
        for (std::size_t i = 0; i < dim; ++i) {
          l.keys[(j * dim + i) * capacity_ + at] = k_[t * kv + j * dim + i];
          l.values[(j * capacity_ + at) * dim + i] = v_[t * kv + j * dim + i];
        }
      }
    });

    // Queries that share keys pass over them together, piece by piece.
    std::size_t const blocks = (n + query_block - 1) / query_block;
    workers_.run(blocks * c_.kv_heads, [&](std::size_t item) {
      std::size_t const j = item % c_.kv_heads;
      std::size_t const first = item / c_.kv_heads * query_block;
      std::size_t const last = std::min(n, first + query_block);
      std::size_t const queries = (last - first) * group;
      std::size_t const seen = position_ + last;  // by the last of them
      Doubles p(queries * seen);
      auto const token = [&](std::size_t i) { return first + i / group; };
      auto const offset = [&](std::size_t i) {
        return token(i) * width + (j * group + i % group) * dim;
      };
      for (std::size_t from = 0; from < seen; from += piece) {
        for (std::size_t i = 0; i < queries; ++i) {
          std::size_t const end = std::min({seen, from + piece, position_ + token(i) + 1});
          for (std::size_t e = 0; e < dim; ++e) {
            double const q = q_[offset(i) + e];
            const double* const keys = &l.keys[(j * dim + e) * capacity_];
            for (std::size_t s = from; s < end; ++s) p[i * seen + s] += q * keys[s];
          }
        }
      }
      double const scale = 1 / std::sqrt(static_cast<double>(dim));
      for (std::size_t i = 0; i < queries; ++i) {
        double* const own = &p[i * seen];
        std::size_t const end = position_ + token(i) + 1;
        double largest = -std::numeric_limits<double>::infinity();
        for (std::size_t s = 0; s < end; ++s) largest = std::max(largest, own[s]);
        double sum = 0;
        for (std::size_t s = 0; s < end; ++s) {
          own[s] = std::exp((own[s] - largest) * scale);
          sum += own[s];
        }
        for (std::size_t s = 0; s < end; ++s) own[s] /= sum;
        std::fill_n(&o_[offset(i)], dim, 0.0);
      }
      for (std::size_t from = 0; from < seen; from += piece)
        for (std::size_t i = 0; i < queries; ++i) {
          std::size_t const end = std::min({seen, from + piece, position_ + token(i) + 1});
          double* const out = &o_[offset(i)];
          for (std::size_t s = from; s < end; ++s) {
            const double* const value = &l.values[(j * capacity_ + s) * dim];
            for (std::size_t e = 0; e < dim; ++e) out[e] += p[i * seen + s] * value[e];
          }
        }
    });
    att_.resize(n * c_.hidden);
    l.o.apply(workers_, o_.data(), n, att_.data(), c_.hidden);
  }

  void mamba(Layer& l, std::size_t n) {
    std::size_t const rows = c_.in_proj_rows(), width = c_.ssm_width();
    std::size_t const channels = c_.conv_channels(), kept = c_.conv_width - 1;
    p_.resize(n * rows);
    l.in_proj.apply(workers_, u_.data(), n, p_.data(), rows);
    std::array<std::size_t, 5> const slices{width, width, c_.group_width(), c_.group_width(),
                                            c_.ssm_heads};
    each_token(n, [&](std::size_t t) {
      double* p = &p_[t * rows];
      for (std::size_t s = 0; s < slices.size(); p += slices[s++])
        for (std::size_t i = 0; i < slices[s]; ++i) p[i] *= c_.ssm_multipliers[s];
    });

    auto const column = [&](std::size_t t, std::size_t tap) {
      std::size_t const at = t + tap;  // counted from the oldest kept column
      return at < kept ? &l.columns[at * channels] : &p_[(at - kept) * rows + width];
    };
    conv_.resize(n * channels);
    each_token(n, [&](std::size_t t) {
      for (std::size_t i = 0; i < channels; ++i) {
        double sum = l.conv_bias.empty() ? 0 : l.conv_bias[i];
        for (std::size_t tap = 0; tap <= kept; ++tap)
          sum += l.conv[i * (kept + 1) + tap] * column(t, tap)[i];
        conv_[t * channels + i] = silu(sum);
      }
    });
    Doubles next;
    for (std::size_t tap = 0; tap < kept; ++tap)
      next.insert(next.end(), column(n, tap), column(n, tap) + channels);
    l.columns = next;

    y_.resize(n * width);
    workers_.run(c_.ssm_heads, [&](std::size_t head) { recurrence(l, n, head); });

    each_token(n, [&](std::size_t t) {
      double* const y = &y_[t * width];
      const double* const z = &p_[t * rows];
      auto const gate = [&] {
        for (std::size_t i = 0; i < width; ++i) y[i] *= silu(z[i]);
      };
      if (!c_.gated_norm) return gate();
      if (!c_.norm_before_gate) gate();
      std::size_t const part = width / c_.ssm_groups;
      for (std::size_t g = 0; g < width; g += part)
        rms_norm(y + g, &l.ssm_norm[g], c_.norm_epsilon, part, y + g);
      if (c_.norm_before_gate) gate();
    });
    ssm_.resize(n * c_.hidden);
    l.out_proj.apply(workers_, y_.data(), n, ssm_.data(), c_.hidden);
  }

  /// S = exp(dt A) S + (dt x) B, y = S . C + D x, token by token.
  void recurrence(Layer& l, std::size_t n, std::size_t head) {
    std::size_t const rows = c_.ssm_head_dim, state = c_.ssm_state, width = c_.ssm_width();
    std::size_t const channels = c_.conv_channels();
    std::size_t const group = head / (c_.ssm_heads / c_.ssm_groups);
    for (std::size_t t = 0; t < n; ++t) {
      const double* const x = &conv_[t * channels + head * rows];
      const double* const b = &conv_[t * channels + width + group * state];
      const double* const c = b + c_.group_width();
      double const raw = p_[t * c_.in_proj_rows() + width + channels + head];
      double const dt =
          std::clamp(softplus(raw + l.dt_bias[head]), c_.time_step_low, c_.time_step_high);
      double const decay = std::exp(dt * l.a[head]);
      l.decayed[head] -= dt * l.a[head];
      for (std::size_t r = 0; r < rows; ++r) {
        double* const s = &l.ssm[(head * rows + r) * state];
        double const input = dt * x[r];
        double sum = 0;
        for (std::size_t i = 0; i < state; ++i) s[i] = decay * s[i] + input * b[i];
        for (std::size_t i = 0; i < state; ++i) sum += s[i] * c[i];
        y_[t * width + head * rows + r] = sum + l.d[head] * x[r];
      }
    }
  }

  static constexpr std::size_t query_block = 8;  // tokens
  static constexpr std::size_t piece = 256;      // positions

  FalconH1Config c_;
  std::size_t capacity_;
  Workers& workers_;
  TensorView embed_;
  std::vector<Layer> layers_;
  Doubles final_norm_;
  Linear lm_head_;
  std::size_t position_ = 0;
  Doubles h_, u_, q_, k_, v_, o_, att_, p_, conv_, y_, ssm_, gate_, up_;
};

}  // namespace fp64
