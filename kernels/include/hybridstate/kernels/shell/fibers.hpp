// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <hybridstate/core/config.hpp>
#include <memory>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

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

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

#if defined(__x86_64__)
/// A suspended stack. (The system's contexts cost two system calls a switch.)
class StackContext {
 public:
  /// Will call `entry` on the stack that ends at `end`, a multiple of 16; `entry` never returns.
  void begin(std::byte*, std::byte* end, void (*entry)()) {
    constexpr int saved = 6;  // registers below the address that the first switch returns to
    auto** const top = reinterpret_cast<void**>(end) - 2;
    top[0] = reinterpret_cast<void*>(entry);
    top[1] = nullptr;
    for (int i = 1; i <= saved; ++i) top[-i] = nullptr;
    sp_ = static_cast<void*>(top - saved);
  }
  /// Leaves the running stack here and goes on with another.
  void switch_to(const StackContext& other) { exchange(&sp_, other.sp_); }

 private:
  [[gnu::naked, gnu::noinline]] static void exchange(void**, void*) {
    asm volatile(
        "pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
        "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
        "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
  }

  void* sp_ = nullptr;
};
#else
class StackContext {
 public:
  void begin(std::byte* first, std::byte* end, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = first;
    context_.uc_stack.ss_size = static_cast<std::size_t>(end - first);
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }
  void switch_to(const StackContext& other) { swapcontext(&context_, &other.context_); }

 private:
  ucontext_t context_{};
};
#endif

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
      fibers_.back()->stack = std::make_unique_for_overwrite<Chunk[]>(stack_bytes / sizeof(Chunk));
    }
    for (std::size_t i = 0; i < count; ++i) {
      Fiber& f = *fibers_[i];
      f.context.begin(f.first(), f.first() + stack_bytes, &Fibers::enter);
      f.finished = false;
    }
  }
  /// Runs fiber i until it waits or returns; whether it has returned.
  bool resume(std::size_t i) {
    current_ = i;
    running = this;
    Fiber& f = *fibers_[i];
    leave(&host_fake_stack_, f.first(), stack_bytes);
    host_.switch_to(f.context);
    arrive(host_fake_stack_, nullptr, nullptr);
    return f.finished;
  }
  /// On a fiber: ends its turn.
  void wait() {
    Fiber& f = *fibers_[current_];
    leave(&f.fake_stack, host_stack_, host_stack_bytes_);
    f.context.switch_to(host_);
    arrive(f.fake_stack, &host_stack_, &host_stack_bytes_);
  }

 private:
  struct alignas(16) Chunk {
    std::byte bytes[16];
  };
  struct Fiber {
    StackContext context;
    std::unique_ptr<Chunk[]> stack;
    void* fake_stack = nullptr;
    bool finished = true;

    std::byte* first() const { return stack[0].bytes; }
  };

  static void enter() {
    Fibers& all = *running;
    all.arrive(nullptr, &all.host_stack_, &all.host_stack_bytes_);
    std::size_t const i = all.current_;
    all.body_(i);
    all.fibers_[i]->finished = true;
    all.leave(nullptr, all.host_stack_, all.host_stack_bytes_);
    all.fibers_[i]->context.switch_to(all.host_);
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
  StackContext host_;
  void* host_fake_stack_ = nullptr;
  const void* host_stack_ = nullptr;
  std::size_t host_stack_bytes_ = 0;
};

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
