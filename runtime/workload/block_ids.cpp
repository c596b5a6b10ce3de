// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "workload/block_ids.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <hybridstate/core/hash.hpp>

#include "math/deterministic.hpp"
#include "workload/trace_options.hpp"

namespace hybridstate::runtime {

namespace {

constexpr std::uint64_t max_blocks = 1ULL << 30;
constexpr std::uint64_t max_index = 1ULL << 30;  ///< of a request, and of a stream

/// A table with open addressing from what `same` compares to numbers in order of first appearance.
class Numbering {
 public:
  /// The number of the entry with this hash for which same(number) holds, or a new one.
  template <class Same>
  std::uint32_t find_or_add(std::uint64_t hash, Same same, bool& added) {
    if (2 * (hashes_.size() + 1) > slots_.size()) grow();
    std::size_t const mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    while (slots_[at] != 0) {
      std::uint32_t const number = slots_[at] - 1;
      if (hashes_[number] == hash && same(number)) {
        added = false;
        return number;
      }
      at = (at + 1) & mask;
    }
    if (hashes_.size() >= max_index)
      throw WorkloadError("the workload holds more than 2^30 different streams or blocks");
    hashes_.push_back(hash);
    slots_[at] = static_cast<std::uint32_t>(hashes_.size());
    added = true;
    return slots_[at] - 1;
  }

 private:
  void grow() {
    std::size_t const size = slots_.empty() ? 1024 : 2 * slots_.size();
    slots_.assign(size, 0);
    for (std::size_t i = 0; i < hashes_.size(); ++i) {
      std::size_t at = hashes_[i] & (size - 1);
      while (slots_[at] != 0) at = (at + 1) & (size - 1);
      slots_[at] = static_cast<std::uint32_t>(i + 1);
    }
  }

  std::vector<std::uint64_t> hashes_;  ///< by number
  std::vector<std::uint32_t> slots_;   ///< number + 1; 0 = free
};

/// Numbers streams without gaps.
class Streams {
 public:
  std::uint32_t number(std::uint64_t stream) {
    bool added = false;
    std::uint32_t const n = numbering_.find_or_add(
        mix64(stream), [&](std::uint32_t i) { return names_[i] == stream; }, added);
    if (added) names_.push_back(stream);
    return n;
  }

 private:
  Numbering numbering_;
  std::vector<std::uint64_t> names_;
};

/// Numbers sequences of 32-bit words. They are not copied: the caller keeps them.
class Sequences {
 public:
  /// `added` tells whether the table now points to `words`.
  std::uint32_t number(std::span<const std::uint32_t> words, bool& added) {
    std::uint64_t const hash = hybridstate::detail::hash_bytes(words.data(), words.size_bytes(), 0);
    std::uint32_t const n = numbering_.find_or_add(
        hash,
        [&](std::uint32_t i) {
          return sequences_[i].size() == words.size() &&
                 std::memcmp(sequences_[i].data(), words.data(), words.size_bytes()) == 0;
        },
        added);
    if (added) sequences_.push_back(words);
    return n;
  }

 private:
  Numbering numbering_;
  std::vector<std::span<const std::uint32_t>> sequences_;
};

/// Memory for words that stay where they are.
class Words {
 public:
  /// Room for n more words; what was asked for last and not kept is given out again.
  std::uint32_t* room(std::size_t n) {
    if (left_ < n) {
      left_ = std::max<std::size_t>(n, 1U << 16);
      chunks_.push_back(std::make_unique_for_overwrite<std::uint32_t[]>(left_));
      next_ = chunks_.back().get();
    }
    return next_;
  }
  void keep(std::size_t n) {
    next_ += n;
    left_ -= n;
  }

 private:
  std::vector<std::unique_ptr<std::uint32_t[]>> chunks_;
  std::uint32_t* next_ = nullptr;
  std::size_t left_ = 0;
};

/// A stretch of a numbered stream; neighbours that continue each other are one.
struct Piece {
  std::uint32_t stream = 0;
  Tokens offset = 0;
  Tokens tokens = 0;
};

/// Writes the ids of one request after another.
class IdWriter {
 public:
  IdWriter(Tokens block, std::uint64_t numbered_tag) : block_(block), tag_(numbered_tag) {}

  std::uint64_t* write(const Request& request, std::size_t index, std::uint64_t* out) {
    if (request.tokens.empty()) {
      join_runs(request, index);
      return write_pieces(out);
    }
    if (request.tokens.size() != request.prompt_tokens)
      fail_sum(request, index, request.tokens.size());
    std::span<const std::uint32_t> const tokens = request.tokens;
    for (std::size_t at = 0; at + block_ <= tokens.size(); at += block_) {
      bool added = false;
      // Odd numbers for token ids, even ones for pieces: the two kinds are never equal.
      std::uint64_t const n = token_blocks_.number(tokens.subspan(at, block_), added);
      *out++ = tag_ | (2 * n + 1);
    }
    return out;
  }

 private:
  [[noreturn]] static void fail_sum(const Request& request, std::size_t index, std::uint64_t sum) {
    throw WorkloadError(fmt::format("request {} has content for {} tokens but a prompt of {}",
                                    index, sum, request.prompt_tokens));
  }

  void join_runs(const Request& request, std::size_t index) {
    pieces_.clear();
    std::uint64_t sum = 0;
    std::uint64_t last_stream = 0;
    for (const ContentRun& run : request.content) {
      if (run.tokens == 0) continue;
      sum += run.tokens;
      if (std::uint64_t{run.offset} + run.tokens > 1ULL << 32) {
        throw WorkloadError(
            fmt::format("request {} has content beyond position 2^32 of a stream", index));
      }
      if (!pieces_.empty() && last_stream == run.stream &&
          std::uint64_t{pieces_.back().offset} + pieces_.back().tokens == run.offset) {
        pieces_.back().tokens += run.tokens;
        continue;
      }
      pieces_.push_back({streams_.number(run.stream), run.offset, run.tokens});
      last_stream = run.stream;
    }
    if (sum != request.prompt_tokens) fail_sum(request, index, sum);
  }

  std::uint64_t* write_pieces(std::uint64_t* out) {
    std::size_t p = 0;
    Tokens used = 0;  // of pieces_[p]
    while (p < pieces_.size()) {
      const Piece& piece = pieces_[p];
      std::uint64_t const base = (std::uint64_t{piece.stream} << 32) | piece.offset;
      Tokens left = piece.tokens - used;
      for (; left >= block_; left -= block_, used += block_) *out++ = base + used;
      if (left == 0) {
        ++p;
        used = 0;
        continue;
      }
      // The next block begins here and ends in a later piece, or there is none.
      std::size_t last = p;
      std::uint64_t reach = left;
      while (reach < block_ && ++last < pieces_.size()) reach += pieces_[last].tokens;
      if (reach < block_) return out;
      std::size_t const size = 3 * (last - p + 1);
      std::uint32_t* const words = words_.room(size);
      std::uint32_t* w = words;
      Tokens missing = block_;
      for (;; ++p, used = 0) {
        Tokens const taken = std::min(pieces_[p].tokens - used, missing);
        *w++ = pieces_[p].stream;
        *w++ = pieces_[p].offset + used;
        *w++ = taken;
        missing -= taken;
        if (missing == 0) {
          used += taken;
          break;
        }
      }
      bool added = false;
      std::uint64_t const n = spanning_.number({words, size}, added);
      if (added) words_.keep(size);
      *out++ = tag_ | (2 * n);
      if (used == pieces_[p].tokens) {
        ++p;
        used = 0;
      }
    }
    return out;
  }

  Tokens block_;
  std::uint64_t tag_;
  Streams streams_;
  Sequences spanning_;
  Sequences token_blocks_;
  Words words_;
  std::vector<Piece> pieces_;
};

}  // namespace

BlockIds::BlockIds(const Workload& workload, Tokens block_tokens) : block_tokens_(block_tokens) {
  if (block_tokens == 0) throw WorkloadError("blocks need at least 1 token");
  if (workload.requests.size() > max_index)
    throw WorkloadError("the workload holds more than 2^30 requests");
  first_.reserve(workload.requests.size() + 1);
  std::uint64_t total = 0;
  for (const Request& request : workload.requests) {
    first_.push_back(static_cast<std::size_t>(total));
    total += request.prompt_tokens / block_tokens;
    if (total > max_blocks) {
      throw WorkloadError(
          fmt::format("the prompts hold more than 2^30 blocks of {} tokens; limit "
                      "the number of requests or their length",
                      block_tokens));
    }
  }
  first_.push_back(static_cast<std::size_t>(total));
  ids_ = std::make_unique_for_overwrite<std::uint64_t[]>(static_cast<std::size_t>(total));
  IdWriter writer(block_tokens, numbered_tag);
  std::uint64_t* out = ids_.get();
  for (std::size_t i = 0; i < workload.requests.size(); ++i)
    out = writer.write(workload.requests[i], i, out);
}

void prompt_tokens(const Request& request, std::uint32_t vocab, std::vector<TokenId>& tokens) {
  if (vocab == 0) throw WorkloadError("a vocabulary needs at least 1 token");
  tokens.clear();
  tokens.reserve(request.prompt_tokens);
  if (!request.tokens.empty()) {
    for (TokenId const token : request.tokens) tokens.push_back(token % vocab);
    return;
  }
  for (const ContentRun& run : request.content) {
    std::uint64_t const base = mix64(run.stream + 0x9e3779b97f4a7c15ULL);
    for (std::uint64_t i = run.offset; i < std::uint64_t{run.offset} + run.tokens; ++i)
      tokens.push_back(static_cast<TokenId>(mix64(base + i * 0x9e3779b97f4a7c15ULL) % vocab));
  }
}

}  // namespace hybridstate::runtime
