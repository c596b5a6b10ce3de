// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define HYBRIDSTATE_ASAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HYBRIDSTATE_ASAN_FIBERS 1
#endif
#endif
#if defined(HYBRIDSTATE_ASAN_FIBERS)
#include <sanitizer/common_interface_defs.h>
#endif

#include <hybridstate/core/config.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// Functions that run in turns on stacks of their own: each until it calls wait(), from where its
/// next turn goes on. One thread of the machine; a function must not throw.
class Fibers {
 public:
  static constexpr std::size_t stack_bytes = 256U << 10;

  /// Begins `count` functions body(0), body(1), ...; none has run yet.
  void start(std::size_t count, std::function<void(std::size_t)> body) {
    body_ = std::move(body);
    while (fibers_.size() < count) {
      fibers_.push_back(std::make_unique<Fiber>());
      fibers_.back()->stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
    }
    for (std::size_t i = 0; i < count; ++i) {
      Fiber& f = *fibers_[i];
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.get();
      f.context.uc_stack.ss_size = stack_bytes;
      f.context.uc_link = nullptr;
      makecontext(&f.context, &Fibers::enter, 0);
      f.finished = false;
    }
  }
  /// Runs fiber i until it waits or returns; whether it has returned.
  bool resume(std::size_t i) {
    current_ = i;
    running = this;
    Fiber& f = *fibers_[i];
    leave(&host_fake_stack_, f.stack.get(), stack_bytes);
    swapcontext(&host_, &f.context);
    arrive(host_fake_stack_, nullptr, nullptr);
    return f.finished;
  }
  /// On a fiber: ends its turn.
  void wait() {
    Fiber& f = *fibers_[current_];
    leave(&f.fake_stack, host_stack_, host_stack_bytes_);
    swapcontext(&f.context, &host_);
    arrive(f.fake_stack, &host_stack_, &host_stack_bytes_);
  }

 private:
  struct Fiber {
    ucontext_t context{};
    std::unique_ptr<std::byte[]> stack;
    void* fake_stack = nullptr;
    bool finished = true;
  };

  static void enter() {
    Fibers& all = *running;
    all.arrive(nullptr, &all.host_stack_, &all.host_stack_bytes_);
    std::size_t const i = all.current_;
    all.body_(i);
    all.fibers_[i]->finished = true;
    all.leave(nullptr, all.host_stack_, all.host_stack_bytes_);
    setcontext(&all.host_);
  }

  // The address sanitizer keeps a shadow of the stack that it believes to be current.
#if defined(HYBRIDSTATE_ASAN_FIBERS)
  static void leave(void** save, const void* bottom, std::size_t size) {
    __sanitizer_start_switch_fiber(save, bottom, size);
  }
  static void arrive(void* saved, const void** bottom, std::size_t* size) {
    __sanitizer_finish_switch_fiber(saved, bottom, size);
  }
#else
  static void leave(void**, const void*, std::size_t) {}
  static void arrive(void*, const void**, std::size_t*) {}
#endif

  static inline thread_local Fibers* running = nullptr;

  std::function<void(std::size_t)> body_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::size_t current_ = 0;
  ucontext_t host_{};
  void* host_fake_stack_ = nullptr;
  const void* host_stack_ = nullptr;
  std::size_t host_stack_bytes_ = 0;
};

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
