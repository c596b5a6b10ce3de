// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "verify/schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <hybridstate/geometry/layout.hpp>
#include <limits>
#include <utility>

#include "executor/forward_pass.hpp"
#include "workload/json_line.hpp"
#include "workload/trace_options.hpp"

namespace hybridstate::runtime::verify {

namespace {

using detail::JsonField;

constexpr std::uint64_t max_step = std::uint64_t{1} << 53;

/// What the lines so far leave a request in.
struct Standing {
  Tokens known = 0;     ///< prompt and generated tokens
  Tokens position = 0;  ///< computed since the last admission
  Tokens generated = 0;
  std::uint64_t step = 0;  ///< of its last chunk
  bool admitted = false;
};

class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {
    for (std::size_t i = 0; i < names.size(); ++i) fields_[i].name = names[i];
  }

  void read(std::uint64_t line, std::string_view text) {
    line_ = line;
    std::string const reason = detail::parse_json_line(text, fields_);
    if (!reason.empty()) fail(reason);
    if (ended_) fail("there is a line after {\"end\": ...}");
    if (!headed_) {
      header();
    } else if (schedule_.workload.requests.size() < requests_) {
      request();
    } else if (field(f_end).kind != JsonField::Kind::absent) {
      std::uint64_t const chunks = number(f_end, 0, max_step);
      if (chunks != schedule_.chunks.size())
        fail(fmt::format("\"end\" says {} chunks, but {} were read", chunks,
                         schedule_.chunks.size()));
      ended_ = true;
    } else {
      chunk();
    }
  }

  Schedule finish() {
    if (!headed_) throw WorkloadError(name_ + ": holds no schedule");
    if (!ended_)
      throw WorkloadError(
          fmt::format("{}: ends after line {} without {{\"end\": ...}}; the file "
                      "was cut short",
                      name_, line_));
    return std::move(schedule_);
  }

 private:
  enum Name : std::size_t {
    f_schedule,
    f_block,
    f_native_block,
    f_native_boundary,
    f_carry,
    f_temperature,
    f_top_k,
    f_top_p,
    f_seed,
    f_requests,
    f_request,
    f_salt,
    f_output,
    f_input,
    f_step,
    f_first,
    f_tokens,
    f_adopted,
    f_end,
    f_count,
  };
  static constexpr std::array<std::string_view, f_count> names = {"schedule",
                                                                  "block_tokens",
                                                                  "native_block_tokens",
                                                                  "native_boundary_tokens",
                                                                  "carry",
                                                                  "temperature",
                                                                  "top_k",
                                                                  "top_p",
                                                                  "seed",
                                                                  "requests",
                                                                  "request",
                                                                  "salt",
                                                                  "output_length",
                                                                  "input_tokens",
                                                                  "step",
                                                                  "first",
                                                                  "tokens",
                                                                  "adopted",
                                                                  "end"};

  [[noreturn]] void fail(const std::string& reason) const {
    detail::fail_line(name_, line_, reason);
  }
  const JsonField& field(Name n) const { return fields_[n]; }

  std::uint64_t number(Name n, std::uint64_t least, std::uint64_t most) const {
    JsonField const& f = field(n);
    if (f.kind == JsonField::Kind::absent) fail(fmt::format("\"{}\" is missing", f.name));
    if (f.kind != JsonField::Kind::unsigned_number)
      fail(fmt::format("\"{}\" is {}, not a whole number from {} to {}", f.name, name_of(f.kind),
                       least, most));
    if (f.number < least || f.number > most)
      fail(fmt::format("\"{}\" is {}, not from {} to {}", f.name, f.number, least, most));
    return f.number;
  }
  Tokens tokens(Name n, Tokens least) const {
    return static_cast<Tokens>(number(n, least, max_trace_length));
  }
  double real(Name n, double least, double most) const {
    JsonField const& f = field(n);
    bool const given = f.kind == JsonField::Kind::unsigned_number ||
                       f.kind == JsonField::Kind::real_number ||
                       f.kind == JsonField::Kind::negative_number;
    if (!given || !(f.real >= least && f.real <= most))
      fail(fmt::format("\"{}\" must be a number from {} to {}", f.name, least, most));
    return f.real;
  }

  void header() {
    if (number(f_schedule, 0, max_step) != 1)
      fail("\"schedule\" names an unknown version; this program reads version 1");
    schedule_.block_tokens = tokens(f_block, 1);
    schedule_.native_block_tokens = tokens(f_native_block, 1);
    schedule_.native_boundary_tokens = tokens(f_native_boundary, 1);
    JsonField const& carry = field(f_carry);
    auto const parsed =
        carry.kind == JsonField::Kind::string ? carry_named(carry.text) : std::optional<Carry>{};
    if (!parsed) fail(R"("carry" must be "fp32", "bf16-per-token" or "bf16-at-grid")");
    schedule_.carry = *parsed;
    schedule_.sampling.temperature = real(f_temperature, 0, 1e6);
    schedule_.sampling.top_k =
        static_cast<std::uint32_t>(number(f_top_k, 0, std::numeric_limits<std::uint32_t>::max()));
    schedule_.sampling.top_p = real(f_top_p, 0, 1);
    schedule_.sampling.seed = number(f_seed, 0, std::numeric_limits<std::uint64_t>::max());
    requests_ = number(f_requests, 1, std::uint64_t{1} << 20);
    schedule_.workload.name = "schedule";
    schedule_.workload.description = name_;
    headed_ = true;
  }

  void request() {
    std::size_t const index = schedule_.workload.requests.size();
    if (number(f_request, 0, requests_ - 1) != index)
      fail(fmt::format("request {} is expected here", index));
    Request r;
    r.salt = number(f_salt, 0, std::numeric_limits<std::uint64_t>::max());
    r.output_tokens = tokens(f_output, 1);
    JsonField const& input = field(f_input);
    if (input.kind != JsonField::Kind::unsigned_array || input.array.empty() ||
        input.array.size() > max_trace_length)
      fail("\"input_tokens\" must be an array of at least one token id");
    for (std::uint64_t const id : input.array) {
      if (id > std::numeric_limits<TokenId>::max())
        fail(fmt::format("\"input_tokens\" holds {}, which is no 32-bit token id", id));
      r.tokens.push_back(static_cast<TokenId>(id));
    }
    r.prompt_tokens = static_cast<Tokens>(r.tokens.size());
    Standing p;
    p.known = r.prompt_tokens;
    standings_.push_back(p);
    schedule_.workload.requests.push_back(std::move(r));
  }

  void chunk() {
    ScheduledChunk c;
    c.step = number(f_step, std::max<std::uint64_t>(step_, 1), max_step);
    if (c.step > step_) close_step();
    step_ = c.step;
    c.request = static_cast<std::uint32_t>(number(f_request, 0, requests_ - 1));
    c.first = tokens(f_first, 0);
    c.tokens = tokens(f_tokens, 1);
    if (field(f_adopted).kind != JsonField::Kind::absent) c.adopted = tokens(f_adopted, 0);
    Request const& r = schedule_.workload.requests[c.request];
    Standing& p = standings_[c.request];
    if (p.step == c.step)
      fail(fmt::format("request {} has two chunks in step {}", c.request, c.step));
    if (p.generated >= r.output_tokens)
      fail(fmt::format("request {} has all of its {} output tokens already", c.request,
                       r.output_tokens));
    if (c.adopted) {
      if (*c.adopted >= p.known)
        fail(
            fmt::format("\"adopted\" is {}, but a request of {} known tokens can continue from {} "
                        "at most",
                        *c.adopted, p.known, p.known - 1));
      p.position = *c.adopted;
      p.admitted = true;
    } else if (!p.admitted) {
      fail(fmt::format("\"adopted\" is missing where request {} begins", c.request));
    }
    if (c.first != p.position)
      fail(fmt::format("\"first\" is {}, but request {} stands at {}", c.first, c.request,
                       p.position));
    if (c.tokens > p.known - c.first)
      fail(fmt::format("\"tokens\" is {}, but request {} has only {} known tokens from {} on",
                       c.tokens, c.request, p.known - c.first, c.first));
    p.position += c.tokens;
    p.step = c.step;
    schedule_.chunks.push_back(c);
    open_.push_back(c.request);
  }

  /// Tokens sampled in a step are known after it.
  void close_step() {
    for (std::uint32_t const r : open_) {
      Standing& p = standings_[r];
      if (p.position != p.known) continue;
      ++p.known;
      ++p.generated;
    }
    open_.clear();
  }

  std::string name_;
  std::array<JsonField, f_count> fields_;
  Schedule schedule_;
  std::vector<Standing> standings_;
  std::vector<std::uint32_t> open_;  ///< requests of the current step
  std::uint64_t line_ = 0;
  std::uint64_t requests_ = 0;
  std::uint64_t step_ = 0;
  bool headed_ = false;
  bool ended_ = false;
};

bool dual(Arm arm) { return arm == Arm::d0; }

/// A scenario with what the schedule says of an organization's blocks and boundaries.
Scenario on_grid_of(const Schedule& schedule, Arm arm, Carry carry) {
  Scenario s;
  s.name = "replay";
  s.arm = arm;
  s.carry = carry;
  s.block_tokens = dual(arm) ? schedule.native_block_tokens : schedule.block_tokens;
  s.checkpoint_tokens = dual(arm) ? schedule.native_boundary_tokens : schedule.block_tokens;
  return s;
}

}  // namespace

Schedule parse_schedule(std::string_view text, const std::string& name) {
  Reader reader(name);
  detail::for_each_line(
      text, [&](std::uint64_t line, std::string_view content) { reader.read(line, content); });
  return reader.finish();
}

Schedule read_schedule(const std::string& path) {
  return parse_schedule(detail::read_file(path), path);
}

std::string schedule_text(const Schedule& s) {
  std::string out =
      fmt::format(R"({{"schedule": 1, "block_tokens": {}, "native_block_tokens": {}, )"
                  R"("native_boundary_tokens": {}, "carry": "{}", "temperature": {}, "top_k": {}, )"
                  R"("top_p": {}, "seed": {}, "requests": {}}})"
                  "\n",
                  s.block_tokens, s.native_block_tokens, s.native_boundary_tokens,
                  carry_name(s.carry), s.sampling.temperature, s.sampling.top_k, s.sampling.top_p,
                  s.sampling.seed, s.workload.requests.size());
  for (std::size_t i = 0; i < s.workload.requests.size(); ++i) {
    Request const& r = s.workload.requests[i];
    out += fmt::format(R"({{"request": {}, "salt": {}, "output_length": {}, "input_tokens": [{}]}})"
                       "\n",
                       i, r.salt, r.output_tokens, fmt::join(r.tokens, ", "));
  }
  for (ScheduledChunk const& c : s.chunks)
    out += fmt::format(R"({{"step": {}, "request": {}, "first": {}, "tokens": {}{}}})"
                       "\n",
                       c.step, c.request, c.first, c.tokens,
                       c.adopted ? fmt::format(R"(, "adopted": {})", *c.adopted) : "");
  return out + fmt::format("{{\"end\": {}}}\n", s.chunks.size());
}

Schedule schedule_for(const Scenario& scenario) {
  Schedule s;
  s.carry = scenario.carry;
  s.sampling = scenario.sampling;
  s.workload = scenario.workload;
  if (dual(scenario.arm)) {
    s.native_block_tokens = scenario.block_tokens;
    s.native_boundary_tokens = scenario.checkpoint_tokens;
    // The paper's pair of grids where it is D0's; else the same boundaries.
    s.block_tokens = scenario.checkpoint_tokens == 1792 ? 512 : scenario.checkpoint_tokens;
  } else {
    s.block_tokens = scenario.block_tokens;
    s.native_block_tokens = std::min<Tokens>(16, scenario.block_tokens);
    s.native_boundary_tokens = scenario.block_tokens * 7 / 2;  // as 1,792 to 512
    Tokens const unit = scenario.carry == Carry::bf16_at_grid ? grid_tokens : s.native_block_tokens;
    s.native_boundary_tokens = (s.native_boundary_tokens + unit - 1) / unit * unit;
  }
  return s;
}

std::string replay_problem(const Schedule& schedule, Arm arm, Carry carry,
                           const FalconH1Config& model) {
  Tokens const grid = dual(arm) ? schedule.native_boundary_tokens : schedule.block_tokens;
  if (carry == Carry::bf16_at_grid && grid % grid_tokens != 0)
    return fmt::format(
        "carry bf16-at-grid rounds at multiples of {} tokens, but boundaries lie every {}",
        grid_tokens, grid);
  for (Request const& r : schedule.workload.requests)
    for (TokenId const id : r.tokens)
      if (id >= model.vocabulary)
        return fmt::format("token id {} is not below the model's vocabulary of {}", id,
                           model.vocabulary);
  std::uint64_t tokens = 0;
  for (ScheduledChunk const& c : schedule.chunks) tokens += c.tokens;
  if (tokens > max_trace_length)
    return fmt::format("it computes {} tokens; at most {} can be kept", tokens, max_trace_length);
  for (ScheduledChunk const& c : schedule.chunks)
    if (c.adopted && *c.adopted % grid != 0)
      return fmt::format(
          "request {} continues from {} tokens in step {}, and boundaries lie every {} tokens",
          c.request, *c.adopted, c.step, grid);
  auto const layout =
      checked_layout(geometry_for(model, carry), layout_options(on_grid_of(schedule, arm, carry)));
  return layout ? std::string() : layout.sentence();
}

Scenario replay_scenario(const Schedule& schedule, Arm arm, Carry carry,
                         const FalconH1Config& model) {
  Scenario s = on_grid_of(schedule, arm, carry);
  s.slab_position = SlabPosition::back;  // the paper's front would lose checkpoints with room left
  s.sampling = schedule.sampling;
  s.workload = schedule.workload;
  s.cap = static_cast<std::uint32_t>(schedule.workload.requests.size());
  // Every admission may leave blocks and states of its own behind.
  Tokens step_tokens = 0;
  Tokens tokens = 0;
  Units states = 0;
  std::uint64_t step = 0;
  s.token_budget = 1;
  for (ScheduledChunk const& c : schedule.chunks) {
    step_tokens = c.step == step ? step_tokens + c.tokens : c.tokens;
    step = c.step;
    s.token_budget = std::max(s.token_budget, step_tokens);
    tokens += c.tokens + (c.adopted ? 2 * s.block_tokens : 0);
    states += c.tokens / s.checkpoint_tokens + (c.adopted ? 4 : 1);
  }
  s.units = units_for(s, layout_of(s, model), tokens, states);
  return s;
}

}  // namespace hybridstate::runtime::verify
