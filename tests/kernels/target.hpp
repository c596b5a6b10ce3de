// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <functional>
#include <hybridstate/kernels/attention.hpp>
#include <hybridstate/kernels/convolution.hpp>
#include <hybridstate/kernels/greedy.hpp>
#include <hybridstate/kernels/linear.hpp>
#include <hybridstate/kernels/page_copy.hpp>
#include <hybridstate/kernels/rotation.hpp>
#include <hybridstate/kernels/rows.hpp>
#include <hybridstate/kernels/sampling.hpp>
#include <hybridstate/kernels/shell/interpreter.hpp>
#include <hybridstate/kernels/state_update.hpp>
#include <memory>
#include <stdexcept>
#include <vector>

// Tests describe a job in host memory; a target runs it on copies of that memory. One target is the
// interpreter, another one a GPU (gpu/cuda_target.hpp): the same tests compare both to the CPU
// executor. A target has
//
//   template <class T> class Copy;   // made from a vector; get(), download(vector)
//   template <class Job> bool run(const Job& job);   // false: refused

/// Runs kernels with the interpreter.
struct Interpreted {
  template <class T>
  class Copy {
   public:
    explicit Copy(const std::vector<T>& host) : memory_(host) {}
    T* get() { return memory_.data(); }
    void download(std::vector<T>& host) const { host = memory_; }

   private:
    std::vector<T> memory_;
  };
  template <class Job>
  bool run(const Job& job) {
    return with_kernel(
        job, [&](const auto& kernel) { hybridstate::kernels::Interpreter(order, 3).run(kernel); });
  }
  hybridstate::kernels::ThreadOrder order;
};
inline std::array every_order{Interpreted{hybridstate::kernels::ThreadOrder::forward},
                              Interpreted{hybridstate::kernels::ThreadOrder::reverse},
                              Interpreted{hybridstate::kernels::ThreadOrder::shuffled}};

/// Copies of host memory on a target, and where in them something of the host's lies.
template <class Target>
class Copies {
 public:
  template <class T>
  void add(std::vector<T>& host) {
    auto copy = std::make_shared<typename Target::template Copy<T>>(host);
    copies_.push_back({reinterpret_cast<const std::byte*>(host.data()), host.size() * sizeof(T),
                       reinterpret_cast<std::byte*>(copy->get()),
                       [copy, &host] { copy->download(host); }});
  }
  template <class T>
  T* of(T* host) const {
    if (host == nullptr) return nullptr;
    const auto* const at = reinterpret_cast<const std::byte*>(host);
    for (One const& c : copies_)
      if (at == c.host || (std::less<>()(c.host, at) && std::less<>()(at, c.host + c.bytes)))
        return reinterpret_cast<T*>(c.target + (at - c.host));
    throw std::logic_error("a job points to memory that was not copied");
  }
  void download() const {
    for (One const& c : copies_) c.download();
  }

 private:
  struct One {
    const std::byte* host;
    std::size_t bytes;
    std::byte* target;
    std::function<void()> download;
  };
  std::vector<One> copies_;
};

// Every pointer of a job.
template <class F>
void each_pointer(hybridstate::kernels::AttentionJob& j, F f) {
  f(j.batch.blocks.base), f(j.batch.blocks.units), f(j.batch.row), f(j.batch.position);
  f(j.batch.first), f(j.batch.q), f(j.batch.out), f(j.results.softmax), f(j.results.output);
}
template <class F>
void each_pointer(hybridstate::ConvLines& l, F f) {
  f(l.base), f(l.lines);
}
template <class F>
void each_pointer(hybridstate::kernels::ConvolutionInputs& j, F f) {
  f(j.weights), f(j.bias), f(j.x), f(j.y);
}
template <class F>
void each_pointer(hybridstate::kernels::ConvolutionStepJob& j, F f) {
  each_pointer(static_cast<hybridstate::kernels::ConvolutionInputs&>(j), f);
  for (auto* lines : {&j.source, &j.destination, &j.checkpoint}) each_pointer(*lines, f);
}
template <class F>
void each_pointer(hybridstate::kernels::ConvolutionRunsJob& j, F f) {
  each_pointer(static_cast<hybridstate::kernels::ConvolutionInputs&>(j), f);
  f(j.token_begin), f(j.store_begin), f(j.store_after);
  each_pointer(j.source, f), each_pointer(j.stores, f);
}
template <class F>
void each_pointer(hybridstate::kernels::RotationJob& j, F f) {
  f(j.q.data), f(j.q_out.data), f(j.k.data), f(j.v.data), f(j.cosines), f(j.sines);
  f(j.positions), f(j.table_rows), f(j.to.blocks.base), f(j.to.blocks.units), f(j.to.valid_until);
}
template <class F>
void each_pointer(hybridstate::kernels::RmsNormJob& j, F f) {
  f(j.h.data), f(j.a.data), f(j.b.data), f(j.sum.data), f(j.weight), f(j.out), f(j.rows_of);
}
template <class F>
void each_pointer(hybridstate::kernels::GatedNormJob& j, F f) {
  f(j.y.data), f(j.z.data), f(j.weight), f(j.out);
}
template <class F>
void each_pointer(hybridstate::kernels::SiluProductJob& j, F f) {
  f(j.gate.data), f(j.up.data), f(j.out);
}
template <class F>
void each_pointer(hybridstate::kernels::EmbeddingJob& j, F f) {
  f(j.table), f(j.ids), f(j.out.data);
}
template <class F>
void each_pointer(hybridstate::kernels::ScaleRows& j, F f) {
  f(j.x.data), f(j.bias), f(j.factors);
}
template <class F>
void each_pointer(hybridstate::kernels::RoundRows& j, F f) {
  f(j.x.data), f(j.out);
}
template <class F>
void each_pointer(hybridstate::kernels::AddRows& j, F f) {
  f(j.h.data), f(j.a.data), f(j.b.data);
}
template <class F>
void each_pointer(hybridstate::kernels::LinearJob& j, F f) {
  f(j.weights), f(j.x.data), f(j.y.data), f(j.bias);
}
template <class F>
void each_pointer(hybridstate::kernels::CopyList& j, F f) {
  f(j.items);
}
template <class F>
void each_pointer(hybridstate::kernels::CopyPages& j, F f) {
  f(j.from), f(j.to), f(j.sources), f(j.destinations);
}
template <class F>
void each_pointer(hybridstate::kernels::SampleRows& j, F f) {
  f(j.logits.data), f(j.rows_of), f(j.options), f(j.ids), f(j.scratch.data);
}
template <class F>
void each_pointer(hybridstate::kernels::GreedyRows& j, F f) {
  f(j.logits.data), f(j.rows_of), f(j.ids), f(j.candidates);
}
template <class F>
void each_pointer(hybridstate::SsmPages<>& p, F f) {
  f(p.base), f(p.pages);
}
template <class F>
void each_pointer(hybridstate::kernels::WorkingStates<>& w, F f) {
  each_pointer(w.source, f), each_pointer(w.destination, f), f(w.position);
}
template <class F>
void each_pointer(hybridstate::kernels::RecurrenceInputs& j, F f) {
  f(j.x), f(j.b), f(j.c), f(j.dt), f(j.dt_bias), f(j.a), f(j.d), f(j.y);
}
template <class F>
void each_pointer(hybridstate::kernels::StateUpdateJob& j, F f) {
  each_pointer(j.in, f);
  for (auto* pages : {&j.source, &j.destination, &j.checkpoint}) each_pointer(*pages, f);
  each_pointer(j.working, f);
}
template <class F>
void each_pointer(hybridstate::kernels::StateScanJob& j, F f) {
  each_pointer(j.in, f), each_pointer(j.source, f), each_pointer(j.kept.states, f);
  f(j.runs.first), f(j.kept.first), f(j.kept.after);
  each_pointer(j.working, f);
}

/// Runs a job whose pointers lie in `memory`, and brings back what it left there.
template <class Target, class Job, class... T>
void run_on(Target& target, Job job, std::vector<T>&... memory) {
  Copies<Target> copies;
  (copies.add(memory), ...);
  each_pointer(job, [&](auto*& p) { p = copies.of(p); });
  CHECK(target.run(job));
  copies.download();
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}
