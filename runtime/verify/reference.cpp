// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "verify/reference.hpp"

#include <algorithm>
#include <hybridstate/core/hash.hpp>

namespace hybridstate::runtime::verify {

namespace {

/// Appends `bytes` bytes of stored numbers as floats: equal values in BF16 and FP32 read the same.
void append(std::vector<float>& out, const std::byte* p, std::int64_t bytes, Dtype dtype) {
  std::size_t const count = static_cast<std::size_t>(bytes) / dtype_bytes(dtype);
  for (std::size_t i = 0; i < count; ++i) out.push_back(element_as_float(p, dtype, i));
}

std::int64_t width(Dtype dtype) { return static_cast<std::int64_t>(dtype_bytes(dtype)); }

/// One sequence in plain memory: a state for every boundary, one attention unit per block.
class PlainMemory {
 public:
  PlainMemory(const FalconH1Config& c, const ForwardOptions& options, Tokens block_tokens,
              Tokens tokens, std::size_t states) {
    bool const fp32 =
        options.carry != Carry::bf16_per_token || options.broken == Condition::lossless_checkpoint;
    Dtype const ssm = fp32 ? Dtype::f32 : Dtype::bf16;
    std::size_t const blocks = (std::size_t{tokens} + block_tokens - 1) / block_tokens;
    KvStrides& k = kv_.blocks.strides;
    kv_.dtype = Dtype::bf16;
    k.token = std::int64_t{c.head_dim} * width(kv_.dtype);
    k.head = k.token * block_tokens;
    k.value = k.head * c.kv_heads;
    k.block_tokens = static_cast<std::int32_t>(block_tokens);
    kv_.blocks.unit_stride = 2 * k.value;
    kv_.layer_stride = kv_.blocks.unit_stride * static_cast<std::int64_t>(blocks);
    kv_bytes_.resize(static_cast<std::size_t>(kv_.layer_stride) * c.layers);
    kv_.blocks.base = kv_bytes_.data();
    for (std::size_t i = 0; i < blocks; ++i) blocks_.push_back(static_cast<std::int32_t>(i));

    Bytes const head = Bytes{c.ssm_head_dim} * c.ssm_state * static_cast<Bytes>(width(ssm));
    std::int64_t const ssm_bytes = static_cast<std::int64_t>(head) * c.ssm_heads;
    std::int64_t const conv_bytes =
        std::int64_t{c.conv_width - 1} * c.conv_channels() * width(options.conv_dtype);
    auto const n = static_cast<std::int64_t>(states);
    states_.ssm.map = {head, head, c.ssm_heads, 1, 1};
    states_.ssm.page_stride = ssm_bytes;
    states_.ssm_layer_stride = ssm_bytes * n;
    states_.ssm_dtype = ssm;
    states_.conv.line_stride = conv_bytes;
    states_.conv_layer_stride = conv_bytes * n;
    states_.conv_dtype = options.conv_dtype;
    ssm_bytes_.resize(static_cast<std::size_t>(states_.ssm_layer_stride) * c.layers);
    conv_bytes_.resize(static_cast<std::size_t>(states_.conv_layer_stride) * c.layers);
    states_.ssm.base = ssm_bytes_.data();
    states_.conv.base = conv_bytes_.data();
    for (std::size_t i = 0; i < states; ++i) ids_.push_back(static_cast<std::int32_t>(i));
  }
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;

  const KvArena& kv() const { return kv_; }
  std::span<const std::int32_t> blocks() const { return blocks_; }
  StateRow state(std::size_t i) const { return {&states_, {&ids_[i], 1}, {&ids_[i], 1}}; }

 private:
  KvArena kv_;
  StateArena states_;
  std::vector<std::byte> kv_bytes_, ssm_bytes_, conv_bytes_;
  std::vector<std::int32_t> blocks_, ids_;
};

}  // namespace

std::uint64_t bits_of(std::span<const float> values) noexcept {
  return hybridstate::detail::hash_bytes(values.data(), values.size_bytes(), 1);
}

std::uint64_t bits_of_state(const FalconH1Config& c, const StateRow& row) {
  std::vector<float> values;
  StateArena const& arena = *row.arena;
  auto const head_bytes = std::int64_t{c.ssm_head_dim} * c.ssm_state * width(arena.ssm_dtype);
  std::int64_t const conv_bytes =
      std::int64_t{c.conv_width - 1} * c.conv_channels() * width(arena.conv_dtype);
  for (std::uint32_t l = 0; l < c.layers; ++l) {
    SsmPages<> ssm = arena.ssm;
    ssm.base += std::int64_t{l} * arena.ssm_layer_stride;
    ssm.pages = row.pages.data();
    for (std::uint32_t h = 0; h < c.ssm_heads; ++h)
      for (std::int64_t at = 0; at < head_bytes;) {
        auto const run = std::min(head_bytes - at,
                                  static_cast<std::int64_t>(ssm.map.run(static_cast<Bytes>(at))));
        append(values, ssm.addr_ssm(0, static_cast<std::int32_t>(h), at), run, arena.ssm_dtype);
        at += run;
      }
    ConvLines conv = arena.conv;
    conv.base += std::int64_t{l} * arena.conv_layer_stride;
    conv.lines = row.lines.data();
    for (std::int64_t at = 0; at < conv_bytes;) {
      std::int64_t const run = conv.run(at, conv_bytes);
      append(values, conv.addr_row(0, at), run, arena.conv_dtype);
      at += run;
    }
  }
  return bits_of(values);
}

std::uint64_t bits_of_block(const FalconH1Config& c, const KvArena& kv, std::int32_t unit,
                            Tokens tokens) {
  std::vector<float> values;
  for (std::uint32_t l = 0; l < c.layers; ++l) {
    AttentionBlocks blocks = kv.blocks;
    blocks.base += std::int64_t{l} * kv.layer_stride;
    blocks.units = &unit;
    for (std::uint32_t h = 0; h < c.kv_heads; ++h) {
      auto const head = static_cast<std::int32_t>(h);
      std::int64_t const bytes = std::int64_t{tokens} * blocks.strides.token;
      append(values, blocks.addr_key(0, head, 0), bytes, kv.dtype);
      append(values, blocks.addr_value(0, head, 0), bytes, kv.dtype);
    }
  }
  return bits_of(values);
}

Reference compute_reference(cpu::CpuForward& forward, const Request& request, Tokens block_tokens,
                            Tokens grid, Tokens chunk, const SamplingOptions& sampling) {
  FalconH1Config const& c = forward.config();
  std::vector<TokenId> tokens = request.tokens;
  // The last output token is sampled and never computed.
  Tokens const all = request.prompt_tokens + request.output_tokens - 1;
  std::size_t const working = all / grid + 1;
  PlainMemory const memory(c, forward.options(), block_tokens, all, working + 1);
  Reference reference;
  reference.checkpoints.resize(all / grid + 1);
  std::vector<float> logits(c.vocabulary);
  Sampler sampler;
  std::vector<StateTarget> targets;
  for (Tokens at = 0; at < all;) {
    auto const end = std::min({at + chunk, static_cast<Tokens>(tokens.size()), all});
    targets.clear();
    for (Tokens b = (at / grid + 1) * grid; b < end; b += grid)
      targets.push_back({b, memory.state(b / grid)});
    targets.push_back({end, memory.state(end % grid == 0 ? end / grid : working)});
    ForwardChunk f;
    f.tokens = std::span(tokens).subspan(at, end - at);
    f.begin = at;
    f.blocks = memory.blocks();
    f.source = memory.state(at % grid == 0 ? at / grid : working);
    f.targets = targets;
    f.logits = end == tokens.size();
    f.decode = at >= request.prompt_tokens;
    forward.run({&f, 1}, memory.kv(), f.logits ? std::span<float>(logits) : std::span<float>());
    if (f.logits) {
      TokenId const next = sampler.sample(logits, sampling, end);
      reference.logits.push_back(bits_of(logits));
      reference.generated.push_back(next);
      tokens.push_back(next);
    }
    at = end;
  }
  for (std::size_t b = 1; b < reference.checkpoints.size(); ++b)
    reference.checkpoints[b] = bits_of_state(c, memory.state(b));
  for (Tokens b = 0; b + block_tokens <= all; b += block_tokens)
    reference.blocks.push_back(
        bits_of_block(c, memory.kv(), static_cast<std::int32_t>(b / block_tokens), block_tokens));
  return reference;
}

}  // namespace hybridstate::runtime::verify
