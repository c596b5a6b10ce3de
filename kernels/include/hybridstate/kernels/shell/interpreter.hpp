// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <hybridstate/kernels/shell/fibers.hpp>
#include <hybridstate/kernels/thread.hpp>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// The CPU shell: runs the body of a kernel, CTA by CTA, each thread from one barrier or shuffle to
// the next. What a missing barrier leaves to chance depends on the order of the threads here, so
// the orders must agree; shared memory is filled with a pattern before each CTA.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// In what order CTAs, warps, and lanes between two barriers run.
enum class ThreadOrder : std::uint8_t { forward, reverse, shuffled };

/// One access of a thread to global memory.
struct Access {
  std::uint64_t cta = 0;
  std::uint32_t thread = 0;
  /// Barriers and shuffles that the thread has passed, the line of the body's source, and how many
  /// accesses of that line came before since then: lanes that skip an access are level with their
  /// warp again after the next barrier.
  std::uint32_t phase = 0;
  std::uint32_t line = 0;
  std::uint32_t visit = 0;
  const std::byte* address = nullptr;
  std::uint32_t bytes = 0;
  bool write = false;
};

class Interpreter;

/// cta_thread of the interpreter.
class InterpretedThread {
 public:
  unsigned thread() const noexcept { return thread_; }
  unsigned block_x() const noexcept { return block_.x; }
  unsigned block_y() const noexcept { return block_.y; }
  unsigned block_z() const noexcept { return block_.z; }
  template <class V>
  V load(const void* from, unsigned line = __builtin_LINE()) {
    V value;
    note(from, sizeof(V), false, line);
    std::memcpy(static_cast<void*>(&value), from, sizeof(V));
    return value;
  }
  template <class V>
  void store(void* to, V value, unsigned line = __builtin_LINE()) {
    note(to, sizeof(V), true, line);
    std::memcpy(to, &value, sizeof(V));
  }
  inline void sync();
  inline float shuffle_xor(float value, unsigned lane_mask);
  template <class S>
  S& shared();

 private:
  friend class Interpreter;
  inline void note(const void* address, std::size_t bytes, bool write, unsigned line);
  void meet() noexcept {
    ++phase_;
    visits_.clear();
  }

  Interpreter* interpreter_ = nullptr;
  unsigned thread_ = 0;
  Grid block_{};  ///< this CTA's place in the grid
  std::uint32_t phase_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> visits_;  ///< of lines, while recording
};

class Interpreter {
 public:
  explicit Interpreter(ThreadOrder order = ThreadOrder::forward, std::uint64_t seed = 1)
      : order_(order), random_(seed) {}

  /// Records every access from now on; null: none.
  void record(std::vector<Access>* log) noexcept { log_ = log; }

  /// Runs all CTAs. Throws std::logic_error, with the CTA and thread, where threads of a CTA meet
  /// at different barriers, an access is not aligned to its size, or shared memory has two types.
  template <class Kernel>
  void run(const Kernel& kernel) {
    static_assert(Kernel::threads % warp_lanes == 0 && Kernel::threads <= 1024);
    Grid const grid = kernel.grid();
    std::vector<std::uint64_t> ctas(grid.ctas());
    std::iota(ctas.begin(), ctas.end(), 0U);
    arrange(ctas);
    for (std::uint64_t const cta : ctas) {
      begin_cta(cta, Kernel::threads);
      for (unsigned i = 0; i < Kernel::threads; ++i) {
        InterpretedThread& t = threads_[i];
        t.interpreter_ = this;
        t.thread_ = i;
        t.phase_ = 0;
        t.visits_.clear();
        t.block_ = {static_cast<std::uint32_t>(cta % grid.x),
                    static_cast<std::uint32_t>(cta / grid.x % grid.y),
                    static_cast<std::uint32_t>(cta / grid.x / grid.y)};
      }
      fibers_.start(Kernel::threads, [this, &kernel](std::size_t i) { kernel(threads_[i]); });
      run_cta();
    }
  }

 private:
  friend class InterpretedThread;
  enum class At : std::uint8_t { running, barrier, shuffle, end };
  struct Lane {
    At at = At::running;
    std::uint32_t sent[2] = {0, 0};  // a lane can be one shuffle ahead of another
    unsigned shuffles = 0;
  };
  static constexpr std::size_t shared_bytes = 48U << 10;  // what every GPU grants statically
  static constexpr unsigned char shared_pattern = 0xa5;

  template <class Container>
  void arrange(Container& c) {
    if (order_ == ThreadOrder::reverse) std::reverse(c.begin(), c.end());
    if (order_ == ThreadOrder::shuffled) std::shuffle(c.begin(), c.end(), random_);
  }

  void begin_cta(std::uint64_t cta, unsigned threads) {
    cta_ = cta;
    lanes_.assign(threads, {});
    threads_.resize(threads);
    shared_type_ = nullptr;
    shared_.assign(shared_bytes / sizeof(Vector16), Vector16{});
    std::memset(shared_.data(), shared_pattern, shared_bytes);
    warps_.resize(threads / warp_lanes);
    std::iota(warps_.begin(), warps_.end(), 0U);
  }

  /// Every warp to its next barrier, then all of them past it.
  void run_cta() {
    for (;;) {
      arrange(warps_);
      for (unsigned const warp : warps_) run_warp(warp);
      std::size_t const ended = static_cast<std::size_t>(std::count_if(
          lanes_.begin(), lanes_.end(), [](const Lane& l) { return l.at == At::end; }));
      if (!fault_.empty()) throw std::logic_error(std::exchange(fault_, {}));
      if (ended == lanes_.size()) return;
      if (ended != 0)
        throw std::logic_error(place() + ": some threads returned, others wait at a barrier");
      for (Lane& l : lanes_) l.at = At::running;
    }
  }

  /// All lanes of a warp through their shuffles, up to a barrier or the end.
  void run_warp(unsigned warp) {
    std::vector<unsigned> order(warp_lanes);
    std::iota(order.begin(), order.end(), warp * warp_lanes);
    auto const first = lanes_.begin() + warp * warp_lanes;
    for (;;) {
      arrange(order);
      for (unsigned const i : order) {
        if (lanes_[i].at == At::end) continue;
        lanes_[i].at = At::running;
        if (fibers_.resume(i)) lanes_[i].at = At::end;
      }
      bool const together =
          std::all_of(first, first + warp_lanes, [&](const Lane& l) { return l.at == first->at; });
      if (!together)
        throw std::logic_error(place() + ", warp " + std::to_string(warp) +
                               ": its lanes wait at different places");
      if (first->at != At::shuffle) return;
    }
  }

  void wait(unsigned thread, At at) {
    lanes_[thread].at = at;
    fibers_.wait();
  }
  float exchange(unsigned thread, float value, unsigned lane_mask) {
    Lane& mine = lanes_[thread];
    unsigned const slot = mine.shuffles++ % 2;
    mine.sent[slot] = std::bit_cast<std::uint32_t>(value);
    wait(thread, At::shuffle);
    return std::bit_cast<float>(lanes_[thread ^ lane_mask].sent[slot]);
  }
  void note(InterpretedThread& t, const void* address, std::size_t bytes, bool write,
            unsigned line) {
    if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0 && fault_.empty())
      fault_ = place() + ", thread " + std::to_string(t.thread_) + ": a " + std::to_string(bytes) +
               "-byte access is not aligned";
    if (log_ == nullptr) return;
    auto visit = std::find_if(t.visits_.begin(), t.visits_.end(),
                              [&](const auto& v) { return v.first == line; });
    if (visit == t.visits_.end()) visit = t.visits_.insert(visit, {line, 0});
    log_->push_back({cta_, t.thread_, t.phase_, line, visit->second++,
                     static_cast<const std::byte*>(address), static_cast<std::uint32_t>(bytes),
                     write});
  }
  void note_shared(const void* type) {
    if (shared_type_ == nullptr) shared_type_ = type;
    if (shared_type_ != type && fault_.empty())
      fault_ = place() + ": asks for shared memory of two types";
  }
  std::string place() const { return "CTA " + std::to_string(cta_); }

  ThreadOrder order_;
  std::mt19937_64 random_;
  std::vector<Access>* log_ = nullptr;
  Fibers fibers_;
  std::uint64_t cta_ = 0;
  std::vector<InterpretedThread> threads_;
  std::vector<Lane> lanes_;
  std::vector<unsigned> warps_;
  std::vector<Vector16> shared_;
  const void* shared_type_ = nullptr;  ///< of what the CTA asked for
  std::string fault_;                  ///< of a fiber, which cannot throw past its own stack
};

inline void InterpretedThread::sync() {
  meet();
  interpreter_->wait(thread_, Interpreter::At::barrier);
}
inline float InterpretedThread::shuffle_xor(float value, unsigned lane_mask) {
  meet();
  return interpreter_->exchange(thread_, value, lane_mask);
}
inline void InterpretedThread::note(const void* address, std::size_t bytes, bool write,
                                    unsigned line) {
  interpreter_->note(*this, address, bytes, write, line);
}
template <class S>
S& InterpretedThread::shared() {
  static_assert(sizeof(S) <= Interpreter::shared_bytes && alignof(S) <= alignof(Vector16));
  static const char type{};
  interpreter_->note_shared(&type);
  return *reinterpret_cast<S*>(interpreter_->shared_.data());
}

static_assert(cta_thread<InterpretedThread>);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
