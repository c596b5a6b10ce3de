// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <hybridstate/cache/concept.hpp>
#include <hybridstate/cache/types.hpp>
#include <hybridstate/policy/admission.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "executor/step_plan.hpp"
#include "report/result.hpp"
#include "scheduler/content.hpp"
#include "verify/schedule.hpp"
#include "workload/trace_options.hpp"

namespace hybridstate::runtime::verify {

/// Computes a schedule step by step in the place of a scheduler. The cache must have memory for
/// everything that the schedule computes.
template <joint_cache Cache, step_executor Executor, class Observer>
class Replayer {
 public:
  Replayer(const Schedule& schedule, Cache& cache, Executor& executor, TokenContent& content,
           Observer& observer)
      : schedule_(schedule),
        cache_(cache),
        executor_(executor),
        content_(content),
        observer_(observer),
        requests_(schedule.workload.requests.size()) {}

  void run() {
    auto const& chunks = schedule_.chunks;
    for (std::size_t i = 0; i < chunks.size();) {
      std::size_t end = i;
      while (end < chunks.size() && chunks[end].step == chunks[i].step) ++end;
      plan_.clear(cache_.begin_step());
      for (; i < end; ++i) submit(chunks[i]);
      executor_.run(plan_);
      for (Chunk const& c : plan_.chunks) finish(c);
      for (std::size_t k = i; k < chunks.size() && chunks[k].step == chunks[i].step; ++k)
        if (chunks[k].adopted) preempt(chunks[k].request);
      observer_.after_step(*this, plan_);
      cache_.complete(plan_.step);
    }
    for (Live& live : requests_)
      if (live.sequence) {  // the recorded run ended it early
        live.record.outcome = RequestOutcome::capacity;
        cache_.release(live.sequence);
      }
  }

  const RequestRecord& record(std::uint32_t request) const { return requests_[request].record; }

 private:
  struct Live {
    RequestRecord record;
    SequenceHandle sequence;
    Tokens computed = 0;  ///< most tokens ever computed
  };

  /// When it stopped running does not matter; observers see it between two steps.
  void preempt(std::uint32_t request) {
    Live& live = requests_[request];
    if (!live.sequence) return;
    cache_.preempt(live.sequence);
    ++live.record.preemptions;
  }

  void admit(const ScheduledChunk& c, Tokens adopted) {
    Live& live = requests_[c.request];
    std::uint64_t const salt = schedule_.workload.requests[c.request].salt;
    auto const known = content_.tokens(c.request);
    // As if the prompt ended one token past the boundary: nothing deeper can be adopted.
    Prompt const prompt = Prompt::of_tokens(known.first(adopted + 1), salt);
    Request const& r = schedule_.workload.requests[c.request];
    AdmitRequest const request{c.request, r.prompt_tokens + r.output_tokens};
    bool const resumes = static_cast<bool>(live.sequence);
    if (!resumes) cache_.enter(Prompt::of_tokens(known, salt), c.request, 0);
    FixedHeadroom const gate{};
    Admission const a = resumes ? cache_.resume(live.sequence, prompt, request, gate)
                                : cache_.admit(prompt, request, gate);
    if (!a)
      throw std::logic_error("request " + std::to_string(c.request) + " got no memory in step " +
                             std::to_string(c.step) + " of the schedule");
    live.sequence = a.sequence;
    if (a.match.joint != adopted)
      throw WorkloadError(schedule_.workload.description + ": request " +
                          std::to_string(c.request) + " continues from " + std::to_string(adopted) +
                          " tokens in step " + std::to_string(c.step) +
                          ", but no earlier step computed this prefix");
  }

  void submit(const ScheduledChunk& c) {
    if (c.adopted) admit(c, *c.adopted);
    Live& live = requests_[c.request];
    Tokens const end = c.first + c.tokens;
    auto const known = static_cast<Tokens>(content_.tokens(c.request).size());
    bool const generated = known > schedule_.workload.requests[c.request].prompt_tokens;
    bool const decode = c.tokens == 1 && generated && c.first == live.computed && end == known;
    if (!cache_.reserve(live.sequence, c.tokens))
      throw std::logic_error("request " + std::to_string(c.request) +
                             " ran out of memory in step " + std::to_string(c.step) +
                             " of the schedule");
    cache_.commit(live.sequence, content_.computed(c.request, c.first, end), 0);
    plan_.chunks.push_back({live.sequence, c.request, c.first, c.tokens, decode, end == known});
    live.computed = std::max(live.computed, end);
  }

  void finish(const Chunk& c) {
    if (!c.samples) return;
    Live& live = requests_[c.request];
    if (++live.record.output_tokens < schedule_.workload.requests[c.request].output_tokens) return;
    cache_.release(live.sequence);
    live.sequence = {};
  }

  const Schedule& schedule_;
  Cache& cache_;
  Executor& executor_;
  TokenContent& content_;
  Observer& observer_;
  std::vector<Live> requests_;
  StepPlan plan_;
};

}  // namespace hybridstate::runtime::verify
