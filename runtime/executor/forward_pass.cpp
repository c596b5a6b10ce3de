// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/forward_pass.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "executor/cpu/forward.hpp"
#include "executor/device/forward.hpp"
#include "executor/device_error.hpp"
#include "executor/sampling.hpp"

namespace hybridstate::runtime {
namespace {

[[noreturn]] void refuse(std::size_t chunk, const std::string& why) {
  throw DeviceError("chunk " + std::to_string(chunk) + " of the batch: " + why);
}

void check_row(const StateRow& row, std::size_t chunk, const char* which,
               std::size_t conv_elements) {
  auto const sentence = [which](const char* what) { return std::string("its ") + which + what; };
  if (row.arena == nullptr) refuse(chunk, sentence(" state names no arena"));
  std::size_t const bytes = conv_elements * dtype_bytes(row.arena->conv_dtype);
  auto const part = static_cast<std::size_t>(row.arena->conv.part_bytes);
  std::size_t const parts = part == 0 ? 1 : (bytes + part - 1) / part;
  if (row.pages.size() < row.arena->ssm.map.members() || row.lines.size() < parts)
    refuse(chunk, sentence(" state lacks member pages or convolution lines"));
  auto const absent = [](std::int32_t i) { return i < 0; };
  if (std::any_of(row.pages.begin(), row.pages.end(), absent) ||
      std::any_of(row.lines.begin(), row.lines.end(), absent))
    refuse(chunk, sentence(" state has an absent page or line"));
  if (row.arena->ssm_dtype == Dtype::f16 || row.arena->conv_dtype == Dtype::f16)
    refuse(chunk, sentence(" state is stored as F16; BF16 and F32 are supported"));
}

}  // namespace

ModelTensors tensors_of(const FalconH1Model& model) {
  ModelTensors t;
  t.config = model.config();
  t.embed = model.embed();
  t.final_norm = model.final_norm();
  t.lm_head = model.lm_head();
  for (std::uint32_t l = 0; l < t.config.layers; ++l) t.layers.push_back(model.layer(l));
  return t;
}

void check_batch(std::span<const ForwardChunk> chunks, const KvArena& kv, const FalconH1Config& c,
                 std::uint32_t max_tokens, std::size_t logits) {
  std::size_t tokens = 0;
  std::size_t rows = 0;
  std::size_t const conv_elements = std::size_t{c.conv_channels()} * (c.conv_width - 1);
  if (kv.dtype == Dtype::f16)
    throw DeviceError("keys and values cannot be F16; BF16 and F32 are supported");
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const ForwardChunk& chunk = chunks[i];
    tokens += chunk.tokens.size();
    rows += chunk.logits ? 1 : 0;
    if (chunk.tokens.empty()) refuse(i, "it has no tokens");
    for (TokenId const id : chunk.tokens)
      if (id >= c.vocabulary)
        refuse(i, "token id " + std::to_string(id) + " is not below the vocabulary of " +
                      std::to_string(c.vocabulary));
    std::size_t const end = chunk.begin + chunk.tokens.size();
    auto const block = static_cast<std::size_t>(kv.blocks.strides.block_tokens);
    std::size_t const blocks = (end + block - 1) / block;
    if (chunk.blocks.size() < blocks) refuse(i, "its block table ends before its last token");
    for (std::size_t b = 0; b < blocks; ++b)
      if (chunk.blocks[b] < 0) refuse(i, "attention block " + std::to_string(b) + " is absent");
    if (chunk.begin > 0) check_row(chunk.source, i, "source", conv_elements);
    std::size_t last = chunk.begin;
    for (const StateTarget& target : chunk.targets) {
      if (target.boundary <= chunk.begin || target.boundary < last || target.boundary > end)
        refuse(i, "its target boundaries do not ascend inside it");
      last = target.boundary;
      check_row(target.row, i, "target", conv_elements);
    }
  }
  if (tokens > max_tokens)
    throw DeviceError("a batch of " + std::to_string(tokens) +
                      " tokens exceeds max_tokens = " + std::to_string(max_tokens));
  if (logits < rows * c.vocabulary)
    throw DeviceError("the logits of " + std::to_string(rows) + " chunks need " +
                      std::to_string(rows * c.vocabulary) + " floats, not " +
                      std::to_string(logits));
}

void ForwardPass::choose(std::span<const ForwardChunk> chunks, const KvArena& kv,
                         const SamplingOptions& sampling, std::span<TokenId> choices) {
  std::size_t const width = config().vocabulary;
  logits_.resize(choices.size() * width);
  run(chunks, kv, logits_);
  std::size_t row = 0;
  for (const ForwardChunk& chunk : chunks)
    if (chunk.logits) {
      std::span<const float> const logits = std::span(logits_).subspan(row * width, width);
      choices[row++] = sampler_.sample(logits, sampling, chunk.end());
    }
}

std::unique_ptr<ForwardPass> make_forward_pass(ModelTensors model, const ForwardOptions& options,
                                               const ForwardLimits& limits) {
  if (options.compute == Compute::cpu && options.linear != LinearForm::exact)
    throw DeviceError(
        "cuBLASLt runs on a CUDA device alone; use --executor cuda or --linear exact");
  if (options.compute == Compute::cpu)
    return std::make_unique<cpu::CpuForward>(std::move(model), options);
  return std::make_unique<device::DeviceForward>(std::move(model), options,
                                                 options.compute == Compute::cuda
                                                     ? device::cuda_device(options.host_visible)
                                                     : device::interpreted_device(),
                                                 limits);
}

}  // namespace hybridstate::runtime
